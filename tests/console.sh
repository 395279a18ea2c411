# The console on the company's jobs: by HTTP (cli/tests/console), and in Debian's browser
# (tests/browser). tests/suites.sh sources this file.

source "$ROOT/ops/scripts/company.sh"

# FILTER: http, browser or controls; http/NAME and browser/NAME are the tests of that name.
suite_console() {
  local dir=$TMP/console port said
  local -x JOBS_COMPANY_URL JOBS_RESTART JOBS_STANDBY_URL JOBS_STANDBY_LOG JOBS_PROMOTE
  port=$(test_port)
  said=$(need_company 2>&1) || { cannot console "the company" "pip install" "$said"; return 0; }
  begin_server console "" "$port"
  create_company "$dir/data" "$dir" "$port"
  check console "the company's jobs are there" console_company "$dir" "$port"
  check console "and everything that must hold holds" console_in_order
  JOBS_COMPANY_URL=postgresql://127.0.0.1:$port/$COMPANY
  # pg_ctl remembers the options that the server was started with.
  JOBS_RESTART="$(console_pg_ctl "$dir/data") -l $dir/data/server.log -m fast -s -w restart"
  cargo build --quiet -p postgres-jobs-cli || { check console "the program is built" false; return 0; }
  if [[ http == "${1%%/*}" || ! $1 ]]; then
    begin_standby "$dir" "$port"
    # Most of them wait for something.
    libtest console cargo test --quiet -p postgres-jobs-cli --test console -- --test-threads 6 "$(console_name "$1")"
    end_standby
    # What disturbs all others.
    libtest console cargo test --quiet -p postgres-jobs-cli --test console -- --ignored --test-threads 1
  fi
  if [[ browser == "${1%%/*}" || ! $1 ]] && need_browser; then
    browser_tests "$(console_name "$1")"
  fi
  if [[ controls == "$1" || ! $1 ]]; then console_controls; fi
  end_server console 1000 "57P01 .* FATAL: +terminating connection due to administrator command" \
    1000 "57P0[13] .* FATAL: +the database system is (starting up|shutting down)" 1000 "28P01 .* FATAL: +password authentication failed" \
    1000 "28000 .* FATAL: +role .* (is not permitted to log in|does not exist)" \
    1000 "53300 .* FATAL: +too many connections for role"
}

console_pg_ctl() { # DATA
  echo "cd / && $(is_root && echo "runuser -u postgres --") $PG_BIN/pg_ctl -D $1"
}

# A standby, which a test promotes.
begin_standby() { # SOCKET_DIRECTORY PORT of the server
  local dir=$TMP/console_standby port
  port=$(test_port)
  own_directory "$dir"
  as_pg "$PG_BIN/pg_basebackup" -h "$1" -p "$2" -U postgres -R -c fast --no-sync -D "$dir/data"
  as_pg rm "$dir/data/server.log"
  start_cluster "$dir/data" "$dir" "$port" 127.0.0.1
  JOBS_STANDBY_URL=postgresql://127.0.0.1:$port/$COMPANY
  JOBS_STANDBY_LOG=$dir/data/server.log
  JOBS_PROMOTE="$(console_pg_ctl "$dir/data") -s -w promote"
}

end_standby() {
  stop_cluster "$TMP/console_standby/data"
  check console "the standby's log is clean" tests/scan_log.sh "$JOBS_STANDBY_LOG" 1000 " walreceiver : FATAL: "
}

console_name() { [[ $1 != */* ]] || echo "${1#*/}"; } # FILTER

console_company() { # SOCKET_DIRECTORY PORT
  { (run_company "$@" --once) && give_past "$@" --odd; } >"$TMP/company.out" 2>&1 || { cat "$TMP/company.out"; return 1; }
}

console_sql() { as_pg "$PG_BIN/psql" -X -q -At -v ON_ERROR_STOP=1 -h "$TMP/console" -p "$(cd / && sed -n 4p "$TMP/console/data/postmaster.pid")" -U postgres -d $COMPANY "$@"; }

console_in_order() { [[ $(console_sql -c "select * from jobs.check()" | tee /dev/stderr) == "" ]]; }

# --- In a browser ---------------------------------------------------------------------------------

need_browser() {
  local said
  BROWSER=$STATE/browser
  said=$(need_packages chromium && need_npm tests/browser "$BROWSER" 2>&1) ||
    { cannot console "the browser" "apt-get install chromium, npm ci" "$said"; return 1; }
}

# Counts tests by the last lines of Node's runner.
browser_tests() { # NAME
  local log=$TMP/browser.log passed failed
  with_console "" node --test --test-name-pattern "$1" "$BROWSER/console.test.mjs" | tee "$log" || true
  read -r passed failed < <(awk '/^(#|ℹ) pass / { p = $3 } /^(#|ℹ) fail / { f = $3 } END { print p + 0, f + 0 }' "$log")
  [[ $((passed + failed)) -gt 0 ]] || failed=1
  record console "$passed" "$failed"
}

# Runs a command while a console is there, at CONSOLE_URL.
with_console() { # OPTION COMMAND..
  local log=$TMP/console.$RANDOM pid status=0 n
  "${CARGO_TARGET_DIR:-target}/debug/jobs" -d "$JOBS_COMPANY_URL" console --login --listen 127.0.0.1:0 $1 >"$log" &
  pid=$!
  for ((n = 0; n < 600; n++)); do
    [[ ! -s $log ]] && kill -0 "$pid" || break
    sleep 0.1
  done
  CONSOLE_URL=$(grep -o 'http://[^ ]*' "$log") PSQL=$PG_BIN/psql "${@:2}" || status=$?
  kill "$pid" && wait "$pid" || status=$?
  return $status
}

# --- What must be found ---------------------------------------------------------------------------

console_controls() {
  console_sql -o /dev/null -c "update jobs.scheduled set due_at = 'infinity' where job_id = (select job_id from jobs.scheduled where state = 'retryable' limit 1)"
  check console "control: what does not hold is found" refuses console_in_order &>/dev/null
}
