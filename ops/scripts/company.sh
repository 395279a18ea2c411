# ./dev console and ./dev pictures: a server with the jobs of clients/examples/company, the console,
# a browser. The suite `console` has its own by `./dev call`. Sourced.

COMPANY=company # the database

# psycopg, as the worker libraries' conformance cases have it.
need_company() {
  need_python clients clients/conformance/requirements.txt
}

# Over TCP each role needs its password, which is its name; who has the socket is trusted.
create_company() { # DATA SOCKET_DIRECTORY PORT
  local psql=("$PG_BIN/psql" -X -q -h "$2" -p "$3" -U postgres)
  local rules
  rules=$(as_pg cat "$1/pg_hba.conf")
  printf '%s\n' "host $COMPANY all 127.0.0.1/32 scram-sha-256" "$rules" | as_pg tee "$1/pg_hba.conf" >/dev/null
  as_pg "${psql[@]}" -d postgres -o /dev/null -c "select pg_reload_conf()" -c "create database $COMPANY" -c "alter role postgres password 'postgres'"
  as_pg "${psql[@]}" -d $COMPANY -c "create extension jobs"
}

# In this process: what it is started as is the company.
run_company() { # SOCKET_DIRECTORY PORT [OPTION]..
  company_python "$1" "$2" clients/examples/company/company.py "${@:3}"
}

# Once the company is at work.
give_past() { # SOCKET_DIRECTORY PORT [OPTION]..
  (company_python "$1" "$2" tests/company_past.py "${@:3}")
}

company_python() { # SOCKET_DIRECTORY PORT SCRIPT [OPTION]..
  DATABASE_URL="host=$1 port=$2 user=postgres dbname=$COMPANY" PYTHONPATH=clients/python/src PYTHONDONTWRITEBYTECODE=1 \
    exec "$STATE/clients/bin/python" "${@:3}"
}

# What the console's tests in a browser, its pictures and its bench need.
need_browser() {
  BROWSER=$STATE/browser
  need_packages chromium && need_npm tests/browser "$BROWSER"
}

# Runs a command while a console is there, at CONSOLE_URL.
with_console() { # OPTION COMMAND..
  local log pid status=0 n
  log=$(mktemp)
  "${CARGO_TARGET_DIR:-target}/debug/pgjobs" -d "$JOBS_COMPANY_URL" console --login --listen 127.0.0.1:0 $1 >"$log" &
  pid=$!
  for ((n = 0; n < 600; n++)); do
    [[ ! -s $log ]] && kill -0 "$pid" || break
    sleep 0.1
  done
  CONSOLE_URL=$(grep -o 'http://[^ ]*' "$log") PSQL=$PG_BIN/psql "${@:2}" || status=$?
  kill "$pid" && wait "$pid" || status=$?
  rm "$log"
  return $status
}

# In the foreground, and with a server that nothing else uses: what ends it leaves nothing behind.
# While it runs, other commands may build and test.
console() { # [OPTION OF pgjobs console]..
  begin_company
  "${CARGO_TARGET_DIR:-target}/debug/pgjobs" -d "$JOBS_COMPANY_URL" console --login "$@" &
  RUNNING+=($!)
  say "Log in as viewer, application, operator or admin; the password is the role's name. Ctrl-C ends it"
  wait -n
}

# The pictures of docs/console-screens.md, of which docs/console.md has some.
pictures() {
  need_packages pngquant
  begin_company
  need_browser
  say "The company works for two minutes, so that there is something to see"
  sleep 120
  with_console "" node "$BROWSER/pictures.mjs" "$ROOT/docs"
  pngquant --force --ext .png --skip-if-larger --strip docs/console/*.png
}

begin_company() {
  local data=$STATE/console socket port
  mkdir -p "$STATE"
  exec 9>"$STATE/lock"
  flock -n 9 || { say "Waiting for another ./dev in this checkout" && flock 9; }
  setup
  install_extension
  say "Building the program pgjobs"
  cargo build -p postgres-jobs-cli
  need_company
  exec 9>&-
  rm -rf "$data"
  socket=$(short_directory)
  RUNNING=()
  trap "end_company '$data' '$socket'" EXIT
  trap 'exit 0' INT TERM
  port=$(free_port)
  new_cluster "$data"
  start_cluster "$data" "$socket" "$port" 127.0.0.1
  create_company "$data" "$socket" "$port"
  rm -f "$STATE/company.log" # of another run
  run_company "$socket" "$port" >"$STATE/company.log" &
  RUNNING+=($!)
  say "The company begins its work"
  until grep -qs . "$STATE/company.log"; do sleep 0.2; kill -0 "${RUNNING[0]}"; done
  give_past "$socket" "$port"
  export JOBS_COMPANY_URL=postgresql://127.0.0.1:$port/$COMPANY
}

end_company() { # DATA SOCKET_DIRECTORY
  trap '' INT TERM
  kill "${RUNNING[@]}" 2>/dev/null || true
  wait "${RUNNING[@]}" || true
  [[ ! -d $1 ]] || stop_cluster "$1" || true
  rm -rf "$1" "$2"
}
