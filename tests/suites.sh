# The test suites of ./dev, which sources this file. A suite is a function suite_NAME [FILTER] that
# counts what it ran with `record` or `check`. The scan of its server's log and its negative control
# count as tests too. A control proves that the suite can fail at all: it runs one test against an
# expectation that was made wrong on purpose.

# Those that take long come first, so that none is left alone at the end.
# Those in RUST_SUITES are targets of tests/Cargo.toml.
ALL_SUITES=(harness model pgtest clients examples drivers reliability packaging console server forward core site pgspot regress isolation regress_statements isolation_statements server_statements migration outbox monitoring standby doc)

RUST_SUITES=' forward isolation regress pgtest pgspot doc examples drivers clients console migration outbox monitoring packaging site standby failover '

declare -gA PASSED FAILED SKIPPED TOOK # global: this is sourced inside a function
SUITES=() RUNNING=
AT_END=() # commands

record() { # SUITE PASSED FAILED
  PASSED[$1]=$((${PASSED[$1]:-0} + $2))
  FAILED[$1]=$((${FAILED[$1]:-0} + $3))
}

check() { # SUITE WHAT COMMAND..; one test
  if "${@:3}"; then record "$1" 1 0; else
    record "$1" 0 1
    echo "FAILED: $1: $2"
  fi
}

# One test that cannot run on this machine. It is never counted as passed; the command that was
# tried and what it said are shown.
skip() { # SUITE WHAT COMMAND ERROR
  SKIPPED[$1]=$((${SKIPPED[$1]:-0} + 1))
  printf 'SKIPPED: %s: %s\n  tried: %s\n  error: %s\n' "$@"
}

# One test whose preparations failed: skipped where the machine cannot have what it needs, else it
# is a failure.
cannot() { # SUITE WHAT COMMAND ERROR
  if grep -qiE "unable to locate package|E404|name resolution|could not resolve|NewConnectionError|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|unreachable|timed out" <<<"$4"; then
    skip "$@"
  else
    printf '%s\n' "$4"
    check "$1" "$2: $3" false
  fi
}

refuses() { ! "$@"; }

# A unit is a suite, or a part of one that runs by itself. Several run at once, each in a process
# and a directory of its own, and what each printed is shown in one piece when it ends. What they
# share is built before.
test_suites() {
  local unit
  UNITS=() ENDED=0 FAILURES=
  [[ $# -gt 0 ]] || set -- "${ALL_SUITES[@]}"
  for unit; do
    is_rust "${unit%%:*}" || declare -F "suite_${unit%%:*}" >/dev/null || die "there is no suite ${unit%%:*}; there are: ${ALL_SUITES[*]}"
    units_of "$unit"
  done
  scratch
  ALL=$(short_directory "$JOBS_SCRATCH")
  trap finish EXIT
  busy_loops
  build_for_units
  watch_units &
  AT_END+=("kill $!")
  run_units
}

# As many as JOBS_TEST_BUSY says: how the tests do on a machine that is busy with something else.
busy_loops() {
  local loop
  for loop in $(seq "${JOBS_TEST_BUSY:-0}"); do
    (while :; do :; done) &
    AT_END+=("kill $!")
  done
}

# A unit that hangs would keep everything behind it from being shown. 30 minutes are far longer than
# one takes on a machine that is busy.
watch_units() {
  while sleep 10 >&- 2>&-; do end_hung_units "$ALL" "${JOBS_TEST_MINUTES:-30}"; done
}

# Shows what runs in a unit that is older, and ends it.
end_hung_units() { # DIRECTORY MINUTES
  local begun pid all
  for begun in $(find "$1" -maxdepth 2 -name begun -mmin "+$2"); do
    pid=$(cat "$begun")
    rm "$begun"
    all=$(descendants "$pid")
    {
      echo "FAILED: a unit had not ended after $2 minutes. What it ran then:"
      ps -o pid,ppid,stat,etime,wchan:20,args -p "${all//$'\n'/,}" | cut -c -200
    } >>"${begun%/*}/output"
    # shellcheck disable=SC2086
    kill "$pid" && kill -9 $all || true
  done
}

descendants() { # PID
  local child
  for child in $(pgrep -P "$1"); do
    echo "$child"
    descendants "$child"
  done
}

# Where servers of tests are: in memory, if 4 GB are free there and programs can run. The journal of
# a disk takes more time for so many files that come and go than the tests do.
scratch() {
  export JOBS_SCRATCH=/tmp
  local available=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1) program
  [[ ${available:-0} -gt $((4 << 20)) ]] || return 0
  program=/dev/shm/jobs.$$
  install -m 755 "$(type -P true)" "$program"
  if "$program" 2>/dev/null; then JOBS_SCRATCH=/dev/shm; fi
  rm "$program"
}

# Each module of the suite `server` is a unit, those that take long first, and so is each program of
# `examples` and each library of `clients`, which mostly wait.
LONGEST='^(lifecycle|maintenance|worker|dump|histories|history|retention|large_transactions|unique|wait|durability|concurrency|floors|together|out_of_memory)$'
units_of() { # SUITE[:FILTER]
  local modules
  case $1 in
    server)
      modules=$(sed -n 's/^mod \(.*\);$/\1/p' tests/server/main.rs)
      UNITS+=($(printf 'server:%s\n' $(grep -E "$LONGEST" <<<"$modules") $(grep -vE "$LONGEST" <<<"$modules")))
      ;;
    examples) UNITS+=(examples:python examples:shell examples:checksum) ;;
    clients) UNITS+=(clients:go clients:rust clients:typescript clients:python clients:control) ;;
    *) UNITS+=("$1") ;;
  esac
}

# One build after the other uses both cores well; units would only wait for each other.
build_for_units() {
  local start=$SECONDS unit name wanted=" ${UNITS[*]} " tests=()
  for unit in "${UNITS[@]}"; do
    [[ ${unit%%:*} =~ ^(harness|core|model|pgtest|cargo_pgrx|site)$ ]] || { need_extension; break; }
  done
  [[ ! $wanted =~ \ (pgtest|server:($WITH_FAULTS))[:\ ] ]] || need_faults
  for name in server reliability $RUST_SUITES; do
    [[ ! $wanted =~ \ ${name}(_statements)?[:\ ] ]] || tests+=(--test "$name")
  done
  # Their units say what is wrong.
  cargo test --quiet --no-run -p jobs-tests --lib --bins "${tests[@]}" || true
  [[ ! $wanted =~ \ forward[:\ ] ]] || cargo build --quiet -p postgres-jobs-cli || true
  [[ ! $wanted =~ \ console[:\ ] ]] || cargo test --quiet --no-run -p postgres-jobs-cli --test console || true
  TOOK[build]=$((SECONDS - start))
}

run_units() {
  local unit n=0 pid
  declare -A UNIT_OF=() DIRECTORY_OF=() BEGUN=()
  for unit in "${UNITS[@]}"; do
    [[ ${#UNIT_OF[@]} -lt ${JOBS_TEST_UNITS:-5} ]] || end_unit
    n=$((n + 1))
    mkdir -p -m 755 "$ALL/$n"
    ( run_unit "$unit" "$ALL/$n" ) >>"$ALL/$n/output" 2>&1 & # end_hung_units writes there, too
    UNIT_OF[$!]=$unit DIRECTORY_OF[$!]=$ALL/$n BEGUN[$!]=$SECONDS
  done
  while [[ ${#UNIT_OF[@]} -gt 0 ]]; do end_unit; done
}

# Waits for whichever ends first, shows what it printed and adds what it counted. One that left no
# counts was ended.
end_unit() {
  local pid unit name failed
  wait -n -p pid "${!UNIT_OF[@]}" || true
  unit=${UNIT_OF[$pid]} name=${UNIT_OF[$pid]%%:*}
  say "test $unit, $((SECONDS - BEGUN[$pid])) s"
  cat "${DIRECTORY_OF[$pid]}/output"
  [[ ${PASSED[$name]+known} ]] || SUITES+=("$name")
  record "$name" 0 0
  failed=${FAILED[$name]}
  # shellcheck source=/dev/null
  source "${DIRECTORY_OF[$pid]}/left" 2>/dev/null || check "$name" "$unit was ended" false
  [[ $failed == "${FAILED[$name]}" ]] || FAILURES+=$(say "failed: $unit" 2>&1 && failures <"${DIRECTORY_OF[$pid]}/output")$'\n'
  unset "UNIT_OF[$pid]" "DIRECTORY_OF[$pid]"
  ENDED=$((ENDED + 1))
}

# What programs that run tests say of those that failed, as far as a page has room for it.
failures() { grep -E -B 4 -A 15 '^(---- .* stdout ----|FAILED|not ok )' | head -n 60 || true; }

# In a process of its own, so that one that stops half-way is one failed test, and the others run.
run_unit() { # SUITE[:FILTER] DIRECTORY
  local name=${1%%:*} filter=
  [[ $1 != *:* ]] || filter=${1#*:}
  TMP=$2 PASSED=() FAILED=() SKIPPED=()
  export JOBS_SCRATCH=$TMP # so that clean_up finds the servers of a unit that was ended
  if is_root; then chown postgres "$TMP"; fi
  echo "$BASHPID" >"$TMP/begun"
  record "$name" 0 0
  exec {OUTPUT}>&1
  # shellcheck disable=SC2064
  trap "leave_unit '$1' $SECONDS" EXIT
  set -e
  RUNNING=$name
  if is_rust "$name"; then rust_suite "$name" "$name" "$filter"; else "suite_$name" "$filter"; fi
  RUNNING=
}

# What a unit leaves to the sum.
leave_unit() { # SUITE[:FILTER] BEGUN
  local name=${1%%:*}
  exec >&"$OUTPUT" # it may have stopped within a redirection
  rm -f "$TMP/begun"
  if [[ $RUNNING ]]; then check "$name" "it stopped half-way" false; fi
  [[ $((PASSED[$name] + FAILED[$name] + ${SKIPPED[$name]:-0})) -gt 0 ]] || check "$name" "$1 ran nothing" false
  {
    echo "record $name ${PASSED[$name]} ${FAILED[$name]}"
    echo "SKIPPED[$name]=\$((\${SKIPPED[$name]:-0} + ${SKIPPED[$name]:-0}))"
    echo "TOOK[$name]=\$((\${TOOK[$name]:-0} + $((SECONDS - $2))))"
  } >"$TMP/left"
}

# What failed once more, the table, with the seconds that the units of a suite took, and as the very
# last line the sum.
summary() {
  local suite passed=0 failed=0
  printf '\n%s' "$FAILURES"
  printf '\n%-20s %8s %8s %8s %8s\n' suite passed failed skipped seconds
  printf '%-20s %35d\n' building "${TOOK[build]:-0}"
  for suite in "${SUITES[@]}"; do
    printf '%-20s %8d %8d %8d %8d\n' "$suite" "${PASSED[$suite]}" "${FAILED[$suite]}" "${SKIPPED[$suite]:-0}" "${TOOK[$suite]:-0}"
    passed=$((passed + PASSED[$suite]))
    failed=$((failed + FAILED[$suite]))
  done
  printf '%-20s %35d\n' 'all, at once' $SECONDS
  printf '\n%d passed, %d failed\n' $passed $failed
  [[ $failed == 0 && $passed -gt 0 ]]
}

# Also after Ctrl-C: what has not come to its end by then did not pass.
finish() {
  [[ ${#UNITS[@]} == "$ENDED" ]] || { SUITES+=(unfinished) && record unfinished 0 $((${#UNITS[@]} - ENDED)); }
  clean_up
  if summary; then exit 0; else exit 1; fi
}

clean_up() {
  local data command
  for data in "$ALL"/*/jobs.*/data; do
    [[ ! -f $data/postmaster.pid ]] || stop_cluster "$data" immediate || true
  done
  # What the suite packaging did outside, if it was ended.
  if [[ " ${UNITS[*]} " == *" packaging"* && -e /etc/postgresql/$PG_MAJOR/jobs_packaging ]]; then
    dpkg -r "postgresql-$PG_MAJOR-jobs" && pg_dropcluster --stop "$PG_MAJOR" jobs_packaging || true
  fi
  for command in "${AT_END[@]}"; do $command || true; done
  rm -rf "$ALL"
}

# The extension, installed once per run of the tests, and only if a suite needs it.
need_extension() {
  [[ -z ${INSTALLED:-} ]] || return 0
  install_extension ${JOBS_RELIABILITY_REPORT:+release}
  INSTALLED=yes
}

# The extension with faults for some tests of the server and their controls, in a tree of its own.
need_faults() {
  [[ -z ${JOBS_FAULTS_PG_CONFIG:-} ]] || return 0
  install_faults
  export JOBS_FAULTS_PG_CONFIG=$PG_FAULTS/lib/postgresql/$PG_MAJOR/bin/pg_config
}

# --- harness: what would say that a test failed does say so ---------------------------------------

suite_harness() {
  libtest harness cargo test --no-fail-fast -p jobs-tests --lib
  check harness "what is skipped is not counted as passed" test "$(SKIPPED=() PASSED=(); skip x y z e >/dev/null; echo "${SKIPPED[x]} ${PASSED[x]:-0}")" = "1 0"
  check harness "nor is what a Rust test skips" counted "1 0 1" $'SKIPPED: a\ntest result: ok. 1 passed; 0 failed;' 0
  check harness "failed Rust tests are counted" counted "3 2" 'test result: FAILED. 3 passed; 2 failed; 0 ignored' 101
  check harness "a build that fails is a failure" counted "0 1" 'error: could not compile' 101
  check harness "packages are installed by one unit after the other" packages_one_by_one
  check harness "a unit that hangs is ended, and what it ran is shown" hung_unit_ends
  check harness "an environment stays in its place while it is asked for again" environment_stays
  check harness "test binaries are added up" counted "7 0" $'test result: ok. 3 passed; 0 failed;\ntest result: ok. 4 passed; 0 failed;' 0
}

# In a subshell, so that it does not count in this run.
counted() { # "PASSED FAILED [SKIPPED]" OUTPUT STATUS
  [[ $1 == "$(
    PASSED=() FAILED=() SKIPPED=()
    libtest x bash -c 'echo "$0"; exit "$1"' "$2" "$3" >/dev/null
    echo "${PASSED[x]} ${FAILED[x]}${SKIPPED[x]:+ ${SKIPPED[x]}}"
  )" ]]
}

# A unit whose command never ends, nor those that it started.
hung_unit_ends() {
  local dir=$TMP/units/1 hung="sleep 1000.$BASHPID" pid
  suite_hung() { bash -c "trap '' TERM; $hung & wait"; }
  mkdir -p "$dir"
  ( run_unit hung "$dir" ) >>"$dir/output" 2>&1 &
  pid=$!
  until pgrep -f "^$hung" >/dev/null; do sleep 0.1; done
  sleep 0.1
  end_hung_units "$TMP/units" 0
  wait "$pid"
  # What was killed may be there for a moment.
  for _ in {1..600}; do pgrep -f "$hung" >/dev/null && sleep 0.1 || break; done
  ! pgrep -f "$hung" >/dev/null && grep -q " $hung" "$dir/output" && grep -qx 'record hung 0 1' "$dir/left"
}

# With an apt-get that fails beside another one.
packages_one_by_one() {
  local bin=$TMP/bin
  mkdir -p "$bin"
  printf '%s\n' '#!/bin/sh' "mkdir $TMP/apt || exit" 'sleep 0.2' "rmdir $TMP/apt" >"$bin/apt-get"
  chmod +x "$bin/apt-get"
  (
    is_root() { true; }
    PATH=$bin:$PATH
    need_packages no-such-package &
    need_packages no-such-package-either && wait $!
  ) 2>/dev/null
}

# Programs of another suite start through the link at any time.
environment_stays() (
  CACHE=$TMP/environments STATE=$TMP/environments/state
  python3() { if [[ $1 == -m ]]; then mkdir -p "$4/bin" && ln -s /bin/true "$4/bin/pip"; fi; }
  need_python some clients/conformance/requirements.txt >/dev/null || exit
  ln() { touch "$TMP/linked_again"; }
  need_python some clients/conformance/requirements.txt && [[ -d $STATE/some && ! -e $TMP/linked_again ]]
)

# --- core, pgtest, server: Rust tests -------------------------------------------------------------

# Runs cargo and adds up its "test result" lines. A build that fails has none, so the exit status
# counts too.
libtest() { # SUITE COMMAND..
  local suite=$1 output=$TMP/$1.out status=0 passed failed skipped
  "${@:2}" 2>&1 | tee "$output" || status=$?
  read -r passed failed < <(awk '/^test result:/ { p += $4; f += $6 } END { print p + 0, f + 0 }' "$output")
  [[ $status == 0 || $failed -gt 0 ]] || failed=1
  record "$suite" "$passed" "$failed"
  skipped=$(grep -c '^SKIPPED: ' "$output") && SKIPPED[$suite]=$((${SKIPPED[$suite]:-0} + skipped)) || true
}

is_rust() { [[ $RUST_SUITES == *" $1 "* ]]; } # SUITE

rust_suite() { # SUITE TARGET FILTER
  libtest "$1" cargo test --no-fail-fast -p jobs-tests --test "$2" -- ${3:+"$3"}
}

# Where no table is read or written without statements: src/store/direct/mod.rs.
suite_isolation_statements() { JOBS_DIRECT_ACCESS=off rust_suite isolation_statements isolation "$1"; }
suite_regress_statements() { JOBS_DIRECT_ACCESS=off rust_suite regress_statements regress "$1"; }

suite_core() { libtest core cargo test --no-fail-fast -p jobs-core -- ${1:+"$1"}; }

# Every order of the protocol's steps: tests/model/README.md. It needs no server. The tests have a
# control for each mistake.
suite_model() {
  libtest model cargo test --no-fail-fast -p jobs-model -- --show-output ${1:+"$1"}
  check model "control: a protocol that looks in the same statement fails" \
    refuses env JOBS_MODEL_FAULT=look-in-the-same-statement cargo test -p jobs-model -- every_property >"$TMP/model.control" 2>&1
  check model "control: and says how" grep -q "^So this does not hold: " "$TMP/model.control"
}

# The tests start servers of their own; each scans its log when it ends (tests/support/cluster.rs),
# and log_scan.rs among them is the control. FILTER is a module of tests/server/, or
# MODULE:PART_OF_A_NAME.
suite_server() { server_tests server "$1"; }

# By statements only: every test of theirs has to pass that is not about direct access itself. What
# is worth the time is the default.
suite_server_statements() { JOBS_DIRECT_ACCESS=off JOBS_HISTORIES=${JOBS_HISTORIES:-750} server_tests server_statements "${1:-histories:every_history}"; }

WITH_FAULTS='cells|histories|history|limits|keyed|floors|bounds|concurrency|databases|hints|locks|lifecycle|notify|out_of_memory|retention|together|wait|wait_any|wait_for|worker'
SERVER_TESTS=(cargo test --no-fail-fast -p jobs-tests --test server --)

server_tests() { # SUITE FILTER
  local module=${2%%:*} part= tests
  if [[ $2 == *:* ]]; then part=${2#*:}; fi
  need_extension
  if [[ $module =~ ^($WITH_FAULTS)$ && $part != every_history ]]; then need_faults; fi
  # Names are given whole: as a filter, a module's name may be a part of others.
  tests=$("${SERVER_TESTS[@]}" --list 2>/dev/null | sed -n "s/^\($module::.*\): test$/\1/p" | grep -F -- "$part") || true
  # shellcheck disable=SC2086
  libtest "$1" "${SERVER_TESTS[@]}" --exact ${tests:-"$2"}
}

source tests/reliability.sh
source tests/cargo_pgrx.sh
