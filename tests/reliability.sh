# Reliability in the large: tests/reliability.rs, as long as JOBS_RELIABILITY_SECONDS says.
# tests/suites.sh sources this file.
#
# What needs more than a server is begun here: sqlsmith, and small file systems. `./dev reliability`
# also writes the report.

source "$ROOT/ops/scripts/machine.sh"

SMALL_DISK=(mount -t tmpfs -o size=96m,mode=755 tmpfs)

# FILTER is a part of a test's name.
suite_reliability() {
  local name threads=()
  need_extension
  : >"$TMP/figures"
  # Figures are those of a machine that does nothing else.
  if [[ ${JOBS_RELIABILITY_REPORT:-} ]]; then threads=(--test-threads=1); fi
  reliability_tests "${threads[@]}" ${1:+"$1"}
  for name in sqlsmith tables_on_a_full_disk wal_on_a_full_disk; do
    [[ $name != *"$1"* ]] || "reliability_$name"
  done
  check reliability "control: the page says of a case that it has no figures" \
    grep -q 'Not in this run' <(python3 tests/reliability/report.py <(grep -v ' backends ' "$TMP/figures") /dev/null)
  if [[ ${JOBS_RELIABILITY_REPORT:-} && ${FAILED[reliability]} == 0 ]]; then reliability_report; fi
}

reliability_tests() { # ARGUMENT-OF-THE-TESTS..
  local before=${PASSED[reliability]:-0}
  libtest reliability "${WITHIN[@]}" cargo test --no-fail-fast -p jobs-tests --test reliability -- --nocapture "$@"
  # With one thread the first line of a test stands behind its name.
  grep -o 'figure: .*' "$TMP/reliability.out" >>"$TMP/figures" || true
  [[ ${PASSED[reliability]} -gt $before ]] || check reliability "there is a test $*" false
}

WITHIN=() # what a test is started by

reliability_sqlsmith() {
  local error
  if ! error=$( (need_packages sqlsmith) 2>&1 >/dev/null); then
    cannot reliability sqlsmith "apt-get install sqlsmith" "$error"
    return
  fi
  reliability_tests --ignored smith::
}

reliability_tables_on_a_full_disk() { on_a_small_disk disk::tables_on_a_full_disk; }
reliability_wal_on_a_full_disk() { on_a_small_disk disk::wal_on_a_full_disk; }

# The file system is there for the test alone, and gone with it.
on_a_small_disk() { # TEST
  local disk=$TMP/disk error
  mkdir -p "$disk"
  if ! error=$(unshare --mount "${SMALL_DISK[@]}" "$disk" 2>&1); then
    skip reliability "$1" "unshare --mount ${SMALL_DISK[*]} $disk" "$error"
    return
  fi
  WITHIN=(unshare --mount bash -c "${SMALL_DISK[*]} '$disk' && exec \"\$@\"" bash)
  JOBS_RELIABILITY_SMALL_DISK=$disk reliability_tests --ignored --exact "$1"
  WITHIN=()
}

reliability_report() {
  {
    machine_line
    echo "server: $("$PG_BIN/postgres" --version), with the harness's settings (fsync only where a case says so)"
    echo "jobs: $(sed -n "s/^default_version *= *'\(.*\)'/\1/p" "$PG/share/postgresql/$PG_MAJOR/extension/jobs.control"), commit $(commit_of "$ROOT")"
    echo "load: three producers and three workers, ${JOBS_RELIABILITY_SECONDS} s a case, one case after the other"
  } >"$TMP/machine"
  python3 tests/reliability/report.py "$TMP/figures" "$TMP/machine" >"$TMP/report.md"
  cp "$TMP/report.md" "$JOBS_RELIABILITY_REPORT"
  say "$JOBS_RELIABILITY_REPORT is written"
}
