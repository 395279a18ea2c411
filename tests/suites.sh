# The test suites of ./dev, which sources this file. A suite is a function suite_NAME [FILTER] that
# counts what it ran with `record` or `check`. The scan of its server's log and its negative control
# count as tests too. A control proves that the suite can fail at all: it runs one test against an
# expectation that was made wrong on purpose.

# Those that take long come first, so that none is left alone at the end.
ALL_SUITES=(harness model pgtest clients examples drivers reliability packaging console server core site pgspot regress isolation regress_statements isolation_statements server_statements migration monitoring doc)

declare -gA PASSED FAILED SKIPPED TOOK # global: this is sourced inside a function
SUITES=() RUNNING=
# Commands that undo what a suite did outside of $TMP, if it stops half-way; they do nothing if it
# is undone.
AT_END=()

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
    declare -F "suite_${unit%%:*}" >/dev/null || die "there is no suite ${unit%%:*}; there are: ${ALL_SUITES[*]}"
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
    examples) UNITS+=($(printf 'examples:%s\n' "${WORKER_LANGUAGES[@]}" checksum)) ;;
    clients) UNITS+=($(printf 'clients:%s\n' "${CLIENTS[@]}")) ;;
    *) UNITS+=("$1") ;;
  esac
}

# One build after the other uses both cores well; units would only wait for each other.
build_for_units() {
  local start=$SECONDS unit wanted=" ${UNITS[*]} "
  template_cluster
  for unit in "${UNITS[@]}"; do
    [[ ${unit%%:*} =~ ^(harness|core|model|pgtest|cargo_pgrx|site)$ ]] || { need_extension; break; }
  done
  [[ ! $wanted =~ \ (pgtest|server:($WITH_FAULTS))[:\ ] ]] || need_faults
  # Their units say what is wrong.
  [[ ! $wanted =~ \ (server|server_statements)[:\ ] ]] || cargo test --quiet --no-run -p jobs-tests --test server || true
  [[ ! $wanted =~ \ (isolation|isolation_statements)[:\ ] ]] || cargo test --quiet --no-run -p jobs-tests --test isolation || true
  [[ ! $wanted =~ \ reliability[:\ ] ]] || cargo test --quiet --no-run -p jobs-tests --test reliability || true
  [[ ! $wanted =~ \ examples[:\ ] ]] || build_example
  [[ ! $wanted =~ \ console[:\ ] ]] || cargo test --quiet --no-run -p postgres-jobs-cli --test console || true
  [[ ! $wanted =~ \ clients[:\ ] ]] || need_runner || true
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
  TMP=$2 PASSED=() FAILED=() SKIPPED=() AT_END=()
  if is_root; then chown postgres "$TMP"; fi
  echo "$BASHPID" >"$TMP/begun"
  record "$name" 0 0
  exec {OUTPUT}>&1
  # shellcheck disable=SC2064
  trap "leave_unit '$1' $SECONDS" EXIT
  set -e
  RUNNING=$name
  "suite_$name" "$filter"
  RUNNING=
}

# What a unit leaves to the sum: what it counted, and what is to be undone at the end.
leave_unit() { # SUITE[:FILTER] BEGUN
  local name=${1%%:*} command
  exec >&"$OUTPUT" # it may have stopped within a redirection
  rm -f "$TMP/begun"
  if [[ $RUNNING ]]; then check "$name" "it stopped half-way" false; fi
  [[ $((PASSED[$name] + FAILED[$name] + ${SKIPPED[$name]:-0})) -gt 0 ]] || check "$name" "$1 ran nothing" false
  {
    echo "record $name ${PASSED[$name]} ${FAILED[$name]}"
    echo "SKIPPED[$name]=\$((\${SKIPPED[$name]:-0} + ${SKIPPED[$name]:-0}))"
    echo "TOOK[$name]=\$((\${TOOK[$name]:-0} + $((SECONDS - $2))))"
    for command in "${AT_END[@]}"; do printf 'AT_END+=(%q)\n' "$command"; done
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
  for data in "$ALL"/*/*/data; do
    [[ ! -f $data/postmaster.pid ]] || stop_cluster "$data" immediate || true
  done
  for data in "$ALL"/*/*/*.pid; do # other servers that a suite has started
    [[ ! -f $data ]] || kill "$(cat "$data")" || true
  done
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

# A fresh server for one suite in $TMP/NAME, which is also the directory of its socket. A file
# postgresql.conf next to the suite's tests adds settings. With a port it listens there on 127.0.0.1
# as well, for clients that know no Unix sockets.
begin_server() { # NAME [CONF [PORT]]
  # A worker for each of its databases.
  local dir=$TMP/$1 settings=(fsync=off max_prepared_transactions=10 max_worker_processes=64)
  # Compiling a test's own look at a view takes a second. Whose session sets another cost gets that.
  settings+=(jit_above_cost=-1)
  need_extension
  rm -rf "$dir" # the same suite may be named twice, with two filters
  own_directory "$dir"
  [[ ! -f ${2:-} ]] || settings+=("$(cat "$2")")
  [[ $1 != *_statements ]] || settings+=(jobs.direct_access=off)
  new_cluster "$dir/data" "${settings[@]}"
  start_cluster "$dir/data" "$dir" "${3:-5432}" "${3:+127.0.0.1}"
}

# Units that look at the same moment are not to find the same one.
test_port() { free_port $((20000 + RANDOM % 8000)); }

# Stops it and looks through its log.
end_server() { # SUITE [TIMES REGEX]..
  local dir=$TMP/$1
  stop_cluster "$dir/data"
  check "$1" "the server's log is clean" tests/scan_log.sh "$dir/data/server.log" "${@:2}"
}

# --- harness: what would say that a test failed does say so ---------------------------------------

suite_harness() {
  local log=$TMP/scan.log prefix='2000-01-01 00:00:00.000 UTC [7]' bad
  echo "$prefix 23505 client backend db: ERROR:  duplicate key value violates unique constraint" >"$log"
  check harness "an ordinary error in a log is no finding" tests/scan_log.sh "$log"
  for bad in "XX000 client backend db: ERROR:  cache lookup failed" "57P01 client backend db: FATAL:  terminating connection" \
    "00000 postmaster : LOG:  server process (PID 9) was terminated by signal 11: Segmentation fault" \
    "XX000 client backend db: ERROR:  panicked at src/lib.rs" "58P02 postmaster : PANIC:  could not write"; do
    echo "$prefix $bad" >"$log"
    check harness "the scan finds: $bad" refuses tests/scan_log.sh "$log" >/dev/null
    check harness "it allows what is declared: $bad" tests/scan_log.sh "$log" 1 "${bad%% *}"
    echo "$prefix $bad" >>"$log"
    check harness "but only so many: $bad" refuses tests/scan_log.sh "$log" 1 "${bad%% *}" >/dev/null
  done
  printf '%s\n' "$prefix 00000 postmaster : LOG:  received fast shutdown request" \
    "$prefix 57P01 jobs launcher : FATAL:  terminating background worker" >"$log"
  check harness "a shutdown ends workers" tests/scan_log.sh "$log"
  echo "$prefix 08006 client backend db: FATAL:  connection to client lost" >"$log"
  check harness "a client may go away" tests/scan_log.sh "$log"

  check harness "what is skipped is not counted as passed" test "$(SKIPPED=() PASSED=(); skip x y z e >/dev/null; echo "${SKIPPED[x]} ${PASSED[x]:-0}")" = "1 0"
  check harness "failed Rust tests are counted" counted "3 2" 'test result: FAILED. 3 passed; 2 failed; 0 ignored' 101
  check harness "a build that fails is a failure" counted "0 1" 'error: could not compile' 101
  check harness "packages are installed by one unit after the other" packages_one_by_one
  check harness "a unit that hangs is ended, and what it ran is shown" hung_unit_ends
  check harness "an environment stays in its place while it is asked for again" environment_stays
  check harness "test binaries are added up" counted "7 0" $'test result: ok. 3 passed; 0 failed;\ntest result: ok. 4 passed; 0 failed;' 0
}

counted() { # "PASSED FAILED" OUTPUT STATUS; in a subshell, so that it does not count in this run
  [[ $1 == "$(
    PASSED=() FAILED=()
    libtest x bash -c 'echo "$0"; exit "$1"' "$2" "$3" >/dev/null
    echo "${PASSED[x]} ${FAILED[x]}"
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
  local suite=$1 output=$TMP/$1.out status=0 passed failed
  "${@:2}" 2>&1 | tee "$output" || status=$?
  read -r passed failed < <(awk '/^test result:/ { p += $4; f += $6 } END { print p + 0, f + 0 }' "$output")
  [[ $status == 0 || $failed -gt 0 ]] || failed=1
  record "$suite" "$passed" "$failed"
}

suite_core() { libtest core cargo test --no-fail-fast -p jobs-core -- ${1:+"$1"}; }

# Every order of the protocol's steps: tests/model/README.md. It needs no server. The tests have a
# control for each mistake.
suite_model() {
  libtest model cargo test --no-fail-fast -p jobs-model -- --show-output ${1:+"$1"}
  check model "control: a protocol that looks in the same statement fails" \
    refuses env JOBS_MODEL_FAULT=look-in-the-same-statement cargo test -p jobs-model -- every_property >"$TMP/model.control" 2>&1
  check model "control: and says how" grep -q "^So this does not hold: " "$TMP/model.control"
}

# Every function of src/ with the attribute `pg_test`, in a session of its own whose transaction is
# rolled back. `error = ".."` in the attribute says how it ends.
suite_pgtest() {
  local INSTALLED=yes PG_BIN=${PG_BIN/#$PG/$PG_FAULTS} name error
  need_faults
  begin_server pgtest tests/pg_regress/postgresql.conf
  pgtest_sql -o /dev/null -c "create extension jobs" -c "create schema tests"
  pgtest_tests | sed "s/ .*//; s/.*/create function tests.&() returns void language c as '\$libdir\/jobs', '&_wrapper';/" | pgtest_sql
  while read -r -u 3 name error; do
    [[ $name != *"$1"* ]] || check pgtest "$name, see above" pgtest_ends "$name" "$error"
  done 3< <(pgtest_tests)
  [[ $((PASSED[pgtest] + FAILED[pgtest])) -gt 0 ]] || check pgtest "there is no test whose name has $1" false
  check pgtest "what the library exports is the extension's functions and these tests" pgtest_has_all
  check pgtest "control: a panic is a failure" refuses pgtest_ends panics_on_purpose "" >/dev/null
  check pgtest "control: another error than expected is one" refuses pgtest_ends panics_on_purpose "another error" >/dev/null
  check pgtest "control: an error that does not come is one" refuses pgtest_ends databases_have_names_in_any_encoding "an error" >/dev/null
  pgtest_sql -c "drop function tests.panics_on_purpose"
  check pgtest "control: a test that is not in the library is one" refuses pgtest_ends panics_on_purpose "" >/dev/null
  check pgtest "control: a test that is not known is found" refuses pgtest_has_all >/dev/null
  end_server pgtest 6 "panics.on.purpose"
}

# NAME ERROR of each.
pgtest_tests() {
  find src -name '*.rs' -exec sed -nE '/#\[pg_test/ { N; s/.*#\[pg_test(\(error = "(.*)"\))?\]\n *fn (\w+).*/\3 \2/p }' {} +
}

pgtest_sql() { as_pg "$PG_BIN/psql" -X -q -At -h "$TMP/pgtest" -U postgres -d postgres "$@"; }

# A session that is lost says nothing more.
pgtest_ends() { # NAME ERROR
  local said
  said=$(pgtest_sql -o /dev/null -c begin -c "select tests.$1()" -c "\echo ended: :LAST_ERROR_MESSAGE" 2>"$TMP/said")
  [[ $said == "ended: $2" ]] || { cat "$TMP/said"; return 1; }
}

pgtest_has_all() {
  diff <(pgtest_sql -c "select prosrc from pg_proc where probin = '\$libdir/jobs'" | sort) \
    <(nm -D --defined-only "$PG_FAULTS/lib/postgresql/$PG_MAJOR/lib/jobs.so" | sed -n 's/.* pg_finfo_//p' | sort)
}

# The tests start servers of their own; each scans its log when it ends (tests/support/cluster.rs),
# and log_scan.rs among them is the control. FILTER is a module of tests/server/, or
# MODULE:PART_OF_A_NAME.
suite_server() { server_tests server "$1"; }

# By statements only: every test of theirs has to pass that is not about direct access itself. What
# is worth the time is the default.
suite_server_statements() { JOBS_DIRECT_ACCESS=off JOBS_HISTORIES=${JOBS_HISTORIES:-750} server_tests server_statements "${1:-histories:every_history}"; }

WITH_FAULTS='histories|history|floors|bounds|concurrency|databases|hints|locks|lifecycle|notify|out_of_memory|together|wait|wait_any|wait_for|worker'
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

# --- pgspot: the scripts that CREATE EXTENSION and ALTER EXTENSION .. UPDATE run as superuser -----

# Every finding counts, warnings too. FILTER is a part of a script's name.
suite_pgspot() {
  local dir=$TMP/pgspot extension=$PG/share/postgresql/$PG_MAJOR/extension version script name
  need_pgspot
  if ! is_pgspot; then
    check pgspot "pgspot $PGSPOT_VERSION is not there, ./dev setup says why" false
    return
  fi
  need_extension
  mkdir -p "$dir"
  version=$(sed -n "s/^default_version *= *'\(.*\)'/\1/p" "$extension/jobs.control")
  for script in "$extension/jobs--$version.sql" sql/jobs--*--*.sql; do
    name=$(basename "$script" .sql)
    [[ $name != *'*'* && $name == *"$1"* ]] || continue
    check pgspot "$name" pgspot_clean "$dir" "$script"
  done

  # What is planted is found by its code, in both kinds of scripts; without it they are clean.
  cp "$extension/jobs--$version.sql" "$dir/jobs--planted.sql"
  echo "CREATE FUNCTION jobs.planted() RETURNS int LANGUAGE c SECURITY DEFINER AS 'MODULE_PATHNAME', 'planted';" >>"$dir/jobs--planted.sql"
  check pgspot "control: a function without a search_path of its own is found" pgspot_finds "$dir" "$dir/jobs--planted.sql" PS003
  local upgrade=$dir/jobs--$version--planted.sql set='SET LOCAL search_path = pg_catalog, pg_temp;'
  echo "$set ALTER TABLE jobs.job ADD COLUMN planted text DEFAULT 'a' || 'b';" >"$upgrade"
  check pgspot "an upgrade script that sets its search_path is clean" pgspot_clean "$dir" "$upgrade"
  cp ops/packaging/upgrade.sql "$upgrade"
  check pgspot "what upgrade scripts begin and end with is clean" pgspot_clean "$dir" "$upgrade"
  echo "ALTER TABLE jobs.job ADD COLUMN planted text DEFAULT 'a' || 'b';" >"$upgrade"
  check pgspot "control: an upgrade script that does not is found, whatever the earlier script sets" pgspot_finds "$dir" "$upgrade" PS001
  echo "$set CREATE OR REPLACE FUNCTION public.planted() RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'planted';" >"$upgrade"
  check pgspot "control: a function that somebody else may have made is found" pgspot_finds "$dir" "$upgrade" PS002
}

# An upgrade script is read after the install script that it starts from. How careful that one was
# does not matter, it has run; but what it has created the upgrade may replace.
pgspot_run() { # DIRECTORY SCRIPT
  local name from earlier script
  name=$(basename "$2" .sql)
  from=$(sed -n 's/^jobs--\(.*\)--.*/\1/p' <<<"$name")
  script=$1/$name.read
  pgspot_read "$2" >"$script"
  if [[ ! $from ]]; then
    "$PGSPOT" "$script" >"$1/$name.out"
    return
  fi
  earlier=$1/earlier.sql
  { echo "SET search_path = pg_catalog, pg_temp;" && pgspot_read "$PG/share/postgresql/$PG_MAJOR/extension/jobs--$from.sql" && echo "RESET search_path;"; } >"$earlier" &&
    "$PGSPOT" -a "$earlier" "$script" >"$1/$name.out"
}

# It knows bodies of functions as texts only.
pgspot_read() { sed 's/^BEGIN ATOMIC$/AS $atomic$/; s/^END;$/$atomic$;/' "$1"; } # SCRIPT

pgspot_clean() { # DIRECTORY SCRIPT
  pgspot_run "$@" || { cat "$1/$(basename "$2" .sql).out"; return 1; }
}

pgspot_finds() { # DIRECTORY SCRIPT CODE; this and nothing else
  local out
  out=$1/$(basename "$2" .sql).out
  refuses pgspot_run "$1" "$2" && grep -q "^$3:" "$out" && refuses grep -E '^PS[0-9]+:' <(grep -v "^$3:" "$out")
}

# --- isolation, and regress: golden files ---------------------------------------------------------

# FILTER is a part of a specification's name.
suite_isolation() { isolation isolation "$1"; }
# Where no table is read or written without statements: src/store/direct/mod.rs.
suite_isolation_statements() { JOBS_DIRECT_ACCESS=off isolation isolation_statements "$1"; }

isolation() { # SUITE FILTER
  need_extension
  libtest "$1" cargo test --no-fail-fast -p jobs-tests --test isolation -- ${2:+"$2"}
}

suite_regress() { golden regress "$1"; }
suite_regress_statements() { golden regress_statements "$1"; }

# Runs every test of tests/pg_regress in a database of its own, so that none depends on what another
# one did, in name order. The directory is copied: user postgres may not be able to read the
# checkout, and the control changes a file. Where majors of Postgres answer differently,
# expected/NAME_1.out is the other answer, as pg_regress has it.
golden() { # SUITE FILTER
  local suite=$1 filter=$2 from=tests/pg_regress dir=$TMP/$1 name names answer
  begin_server "$suite" "$from/postgresql.conf"
  cp -r "$from/sql" "$from/expected" "$dir/"
  names=$(cd "$from" && ls sql expected | sed -nE "s/(_[1-9])?\.(sql|out)$//p" | sort -u | grep -F -- "$filter" || true)
  for name in $names; do
    if [[ ! -f $dir/sql/$name.sql ]]; then
      check "$suite" "expected/$name.out has no sql/$name.sql" false
      continue
    fi
    # A test without its expectation would be silently green in other runners; here it fails and
    # shows all its output.
    [[ -f $dir/expected/$name.out ]] || touch "$dir/expected/$name.out"
    check "$suite" "$name, see above; if it is right: cp $STATE/results/$suite/$name.out $from/expected/" golden_test "$suite" "$name"
  done
  if [[ -z $names ]]; then
    check "$suite" "there is no test in $from/sql${filter:+ whose name has $filter}" false
  else
    for answer in "$dir/expected/$name"{,_[1-9]}.out; do
      [[ ! -f $answer ]] || echo "this must not be there" >>"$answer"
    done
    check "$suite" "control: a wrong expectation of $name fails" refuses golden_run "$suite" "$name" "${suite}_control" >/dev/null
  fi
  end_server "$suite"
}

golden_test() { # SUITE NAME; shows the difference and keeps the output when it fails
  local dir=$TMP/$1 keep=$STATE/results/$1
  if golden_run "$1" "$2" "$1_$2" >"$dir/$2.log" 2>&1; then
    grep -E '\bok\b' "$dir/$2.log"
    return
  fi
  cat "$dir/regression.diffs" 2>/dev/null || cat "$dir/$2.log"
  mkdir -p "$keep"
  cp "$dir/results/$2.out" "$keep/" 2>/dev/null || true
  return 1
}

golden_run() { # SUITE NAME DATABASE
  local dir=$TMP/$1
  as_pg rm -f "$dir/regression.diffs"
  as_pg "$(dirname "$("$JOBS_PG_CONFIG" --pgxs)")/../test/regress/pg_regress" --bindir="$PG_BIN" --host="$dir" --port=5432 --user=postgres \
    --inputdir="$dir" --outputdir="$dir" --dbname="$3" --load-extension=jobs "$2"
}

# --- examples -------------------------------------------------------------------------------------

source tests/programs.sh
source tests/example_workers.sh

# FILTER is `checksum` or the language of a worker.
suite_examples() {
  begin_server examples
  as_pg "$PG_BIN/psql" -X -q -h "$TMP/examples" -U postgres -d postgres -c "create database jobs"
  jobs_sql "create extension jobs"
  build_example
  if [[ checksum == *"$1"* ]]; then example_checksum; fi
  example_workers "$1"
  end_server examples
}

# The program on a small tree, and what the queue holds afterwards against what it must hold.
example_checksum() {
  local tree=$TMP/tree n
  mkdir -p "$tree/sub"
  for n in $(seq 300); do echo "$n" >"$tree/sub/file $n"; done
  ln -s nowhere "$tree/dangling"
  check examples "checksum runs" run_checksum
  cat "$TMP/checksum.out"
  check examples "it reports what it must" checksum_reported 301 903 300 1
  check examples "control: another number is refused" refuses checksum_reported 302 903 300 1
  check examples "every digest in the queue is right" checksums_match "$tree"
  check examples "the link that leads nowhere was tried three times" test "$(jobs_sql "$TRIES_OF_DISCARDED")" = 3
  check examples "a second run does it all again" run_checksum
  check examples "and reports the same" checksum_reported 301 903 300 1
}

TRIES_OF_DISCARDED="select count(*) from jobs.errors e join jobs.jobs j on j.id = e.job_id where j.state = 'discarded'"

jobs_sql() { as_pg "$PG_BIN/psql" -X -q -At -v ON_ERROR_STOP=1 -h "$TMP/examples" -U postgres -d jobs -c "$1"; }

# As user postgres, who owns the directory of the socket; from a copy, because the target directory
# may be out of reach.
run_checksum() {
  cp "$EXAMPLE" "$TMP/checksum"
  as_pg env DATABASE_URL="host=$TMP/examples user=postgres dbname=jobs" timeout 120 "$TMP/checksum" "$TMP/tree" >"$TMP/checksum.out"
}

# At least one job was rescued, and what was rescued was retried.
checksum_reported() { # INSERTED SKIPPED COMPLETED DISCARDED
  awk -v expected="$*" '
    /^inserted/ { i = $2 } /^skipped/ { s = $4 } /^completed/ { c = $2 } /^discarded/ { d = $3 }
    /^retried/ { retried = $2 } /rescued/ { rescued = $5 }
    END { exit !((i " " s " " c " " d) == expected && retried >= rescued && rescued > 0) }' "$TMP/checksum.out"
}

checksums_match() { # TREE
  diff <(jobs_sql "select output->>'sha256' || '  ' || (args->>'path') from jobs.jobs where state = 'completed' order by 1") \
    <(cd "$1" && sha256sum "$1"/sub/* | sort)
}

source tests/migration.sh
source tests/monitoring.sh
source tests/drivers.sh
source tests/clients.sh
source tests/packaging.sh
source tests/console.sh

# --- doc: the examples in README.md and docs/ -----------------------------------------------------

# Every ```sql block of a document runs, in order, in one fresh
# database of the document's own. A ```text or ```output block behind it is what psql must print;
# `...` in it stands for anything within a line, as for a time. A block with no output behind it
# must print nothing, so there is no output that is not compared. The line `<!-- not run: WHY -->`
# before a block leaves it out, as SQL of another system or a part of a program; these are listed.
# FILTER is a part of a document's name.
suite_doc() {
  local dir=$TMP/doc document block
  begin_server doc
  for document in $(doc_documents); do
    [[ $document != *"$1"* ]] || doc_document "$document" "$dir"
  done
  for block in "$dir"/*.md/*.expected; do
    echo "this must not be there" >>"$block"
    check doc "control: a wrong output is found" refuses doc_compare "${block%.expected}" >/dev/null
    rm "$block"
    check doc "control: an output that is not in the document is found" refuses doc_compare "${block%.expected}" >/dev/null
    break
  done
  grep -n '^<!-- not run' $(doc_documents) || true
  check doc "no block of a program is left out silently" refuses doc_silent docs/workers.md docs/testing.md
  check doc "control: one that is left out silently is found" doc_silent <(grep -v '^<!-- not run' docs/workers.md) >/dev/null
  check doc "no line of prose is too long" python3 ops/scripts/prose.py
  doc_reference "$dir"
  end_server doc
}

doc_documents() { grep -l '^```sql' ./*.md $(find docs -name '*.md' | LC_ALL=C sort) | sed 's,^\./,,'; }

# docs/reference.md is what the COMMENTs say now.
doc_reference() { # DIRECTORY
  local psql=("$PG_BIN/psql" -X -q -h "$1" -U postgres)
  as_pg "${psql[@]}" -d postgres -c "create database reference"
  as_pg "${psql[@]}" -d reference -c "create extension jobs"
  check doc "docs/reference.md is up to date; if this is right: ./dev reference" doc_reference_is_current "$1"
  check doc "it leaves out nothing" refuses grep -nE 'NO COMMENT|NO SUCH|Not in any section' docs/reference.md
  as_pg "${psql[@]}" -d reference -c "comment on column jobs.queues.paused is 'something else'"
  check doc "control: another COMMENT is found" refuses doc_reference_is_current "$1" >/dev/null
}

doc_reference_is_current() { # DIRECTORY
  make_reference "$1" reference | diff -u --label docs/reference.md --label generated docs/reference.md -
}

# Blocks that are not SQL and do not say that they are not run. Below the name of a language alone
# stands an example that the suite `clients` runs.
doc_silent() { # DOCUMENT..
  awk '
    /^```/ && inside { inside = 0; next }
    /^```/ { inside = 1 }
    /^```[a-z]/ && !/^```(sql|text)/ && before !~ /^(<!-- not run|\*[A-Za-z]+\* )/ { print FILENAME ":" FNR ": " $0; found = 1 }
    !inside && NF { before = $0 }
    END { exit !found }' "$@"
}

doc_document() { # DOCUMENT DIRECTORY
  local name=${1//\//_} block
  mkdir "$2/$name"
  as_pg "$PG_BIN/psql" -X -q -h "$2" -U postgres -d postgres -c "create database \"$name\""
  doc_blocks "$1" "$2/$name"
  for block in "$2/$name"/*.sql; do
    [[ -f $block ]] || continue # none of its blocks is run
    check doc "$1 line $((10#$(basename "$block" .sql)))" doc_block "$block"
  done
}

# Writes LINE.sql and, where there is one, LINE.expected for each block.
doc_blocks() { # FILE DIRECTORY
  awk -v dir="$2" '
    /^<!-- not run/ { skip = 1; next }
    /^```/ && inside { inside = 0; close(file); next }
    /^```sql/ { file = sprintf("%s/%05d.sql", dir, NR); sql = file; inside = 1; if (skip) { file = "/dev/null"; sql = "" } skip = 0; next }
    /^```(text|output)/ && sql { file = sql; sub(/sql$/, "expected", file); sql = ""; inside = 1; printf "" >file; next }
    /^```/ { file = "/dev/null"; inside = 1; sql = ""; skip = 0; next }
    inside { print >file }
    !inside && NF { sql = "" }  # other text between: the next block is no output of this one
  ' "$1"
}

doc_block() { # SQL_FILE
  local base=${1%.sql}
  as_pg "$PG_BIN/psql" -X -q -h "$TMP/doc" -U postgres -d "$(basename "$(dirname "$1")")" <"$1" >"$base.actual" 2>&1 || true
  doc_compare "$base"
}

doc_compare() { # BASE; line by line
  local expected actual pattern n
  mapfile -t expected < <(cat "$1.expected" 2>/dev/null | doc_normal)
  mapfile -t actual < <(doc_normal <"$1.actual")
  for n in "${!expected[@]}"; do
    # Everything is literal but `...`, which becomes `*`.
    pattern=$(printf '%s' "${expected[n]}" | sed -e 's/[][*?\\]/\\&/g' -e 's/\.\.\./*/g')
    # shellcheck disable=SC2053
    [[ ${actual[n]-} == $pattern ]] || { doc_difference "$1"; return 1; }
  done
  [[ ${#expected[@]} == "${#actual[@]}" ]] || { doc_difference "$1"; return 1; }
}

# The width of a column depends on what `...` stands for, so it does not count; nor do empty lines.
doc_normal() { sed -e 's/  */ /g' -e 's/---*/-/g' -e 's/ $//' -e '/^$/d'; }

doc_difference() { diff -uN --label document --label psql "$1.expected" "$1.actual" || true; }

source tests/site.sh
