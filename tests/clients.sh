# The worker libraries of clients/: the cases of clients/conformance, each library with a driver of
# its own, and what its registry would refuse. tests/suites.sh sources this file.

CLIENTS=(go rust typescript python control)

# A unit is one library, or the control.
suite_clients() { # LIBRARY
  local library=$1
  local -a DRIVER=() EXAMPLE=()
  [[ " ${CLIENTS[*]} " == *" $library "* ]] || die "there is no library $library in clients/: ${CLIENTS[*]}"
  need_runner || return 0
  "client_$library" || return 0
  begin_clients_server
  if [[ $library == control ]]; then
    check clients "control: a third of the cases fail with a broken driver" fails_a_third "${DRIVER[@]}"
    check clients "control: a case fails with a driver that loses errors" fails_without_errors "${DRIVER[@]}"
    end_clients_server
    return 0
  fi
  check clients "$library: every case" conforms "$library" -- "${DRIVER[@]}"
  check clients "$library: docs/workers.md shows its example" diff <(example_shown "$library") "${EXAMPLE[0]}"
  check clients "$library: the example works" example_works "${EXAMPLE[@]:1}"
  "package_$library"
  end_clients_server
}

conforms() { # LIBRARY [OPTION..] -- COMMAND..
  local passed failed
  run_cases "$@" && record clients "$passed" "$failed"
}

# A third passes as well: a driver that cannot do anything fails them all.
fails_a_third() { # COMMAND..
  local passed=0 failed=0
  run_cases python --jobs 12 -- "$@" >"$TMP/control.log"
  echo "with a broken driver $passed cases pass, and $failed fail"
  [[ $((3 * failed)) -ge $((passed + failed)) && $((3 * passed)) -ge $((passed + failed)) && $passed -gt 0 ]] ||
    { cat "$TMP/control.log"; return 1; }
}

# This waits for what does not come.
fails_without_errors() { # COMMAND..
  local passed=0 failed=0
  JOBS_BROKEN=lose JOBS_PATIENCE=20 run_cases python --only "^an error fails the attempt" -- "$@" >"$TMP/control.log"
  [[ $passed == 0 && $failed == 1 ]] && grep -q 'it is \[\["completed", 1\]\]' "$TMP/control.log" ||
    { cat "$TMP/control.log"; return 1; }
}

# Counts the cases by the runner's last line, as passed and failed; that there is none is a failure.
run_cases() { # LIBRARY [OPTION..] -- COMMAND..
  local log=$TMP/conformance.log
  "$RUNNER" clients/conformance/run.py "$@" | tee "$log" || true
  read -r passed failed < <(sed -nE '$s/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$log")
}

# The block of code below the library's name.
example_shown() { # LIBRARY
  awk -v library="$1" '
    tolower($0) ~ "^\\*" library "\\*" { is_below = 1 }
    is_below && /^```$/ { exit }
    is_shown { print }
    is_below && /^```/ { is_shown = 1 }' docs/workers.md
}

# It does a job, and ends in order.
example_works() { # COMMAND..
  local id pid n
  id=$(clients_sql "select id from jobs.insert('email.send', '{\"to\": \"ada@example.org\"}', queue => 'mail')")
  "$@" >"$TMP/example.out" 2>&1 &
  pid=$!
  for ((n = 0; n < 600; n++)); do
    [[ $(clients_sql "select state from jobs.jobs where id = $id") != completed ]] || break
    sleep 0.1
  done
  kill "$pid" && wait "$pid" && grep -q "ada@example.org" "$TMP/example.out" &&
    [[ $(clients_sql "select output from jobs.jobs where id = $id") == '{"sent": true}' ]] || { cat "$TMP/example.out"; return 1; }
}

clients_sql() { "$PG_BIN/psql" -X -q -At -v ON_ERROR_STOP=1 "$DATABASE_URL" -c "$1"; }

# --- What it needs --------------------------------------------------------------------------------

need_runner() {
  local said
  RUNNER=$STATE/clients/bin/python
  said=$(need_python clients clients/conformance/requirements.txt && need_packages faketime && need_pgbouncer 2>&1) ||
    { cannot clients "the runner" "pip install, apt-get install" "$said"; return 1; }
}

# A server, and PgBouncer before it: a database of its for each of two modes.
begin_clients_server() {
  local dir=$TMP/clients port pool_port
  port=$(test_port)
  begin_server clients "" "$port"
  DATABASE_URL=postgresql://postgres@127.0.0.1:$port/postgres clients_sql "create database clients"
  export DATABASE_URL=postgresql://postgres@127.0.0.1:$port/clients
  clients_sql "create extension jobs"
  pool_port=$(test_port)
  echo '"postgres" ""' >"$dir/userlist.txt"
  printf '%s\n' "[databases]" \
    "session = host=127.0.0.1 port=$port dbname=clients pool_mode=session" \
    "transaction = host=127.0.0.1 port=$port dbname=clients pool_mode=transaction" \
    "[pgbouncer]" "listen_addr = 127.0.0.1" "listen_port = $pool_port" "unix_socket_dir =" "auth_type = trust" \
    "auth_file = $dir/userlist.txt" "default_pool_size = 40" "ignore_startup_parameters = extra_float_digits" \
    "logfile = $dir/pgbouncer.log" "pidfile = $dir/pgbouncer.pid" >"$dir/pgbouncer.ini"
  run_pgbouncer "$dir"
  export JOBS_POOLED_URL=postgresql://postgres@127.0.0.1:$pool_port/
  # pg_ctl remembers the options that the server was started with.
  export JOBS_RESTART="cd / && $(is_root && echo "runuser -u postgres --") $PG_BIN/pg_ctl -D $dir/data -l $dir/data/server.log -m fast -s -w restart"
}

# The cases end connections and servers, and handlers say what they like.
end_clients_server() {
  kill "$(cat "$TMP/clients/pgbouncer.pid")"
  # A network that falls silent keeps connections that have not said yet who they are. Too much
  # memory is what an output with too many elements takes.
  end_server clients 1000000 "57P01 .* FATAL: +terminating connection due to administrator command" \
    1000000 "57P0[13] .* FATAL: +the database system is (starting up|shutting down)" 1000000 "57P01 .* ERROR: +mine" \
    1000000 "53300 .* FATAL: +too many connections for role .conformance_outside" \
    1000000 "57014 .* FATAL: +canceling authentication due to timeout" \
    8 "XX000 .* ERROR: +invalid memory alloc request size" 1000000 "XX000 .* (CONTEXT|STATEMENT): "
}

# --- The libraries: the command of the driver, as the array DRIVER; as EXAMPLE, the file of the
# example that docs/workers.md shows, and its command.

client_python() {
  local run=(env PYTHONPATH=clients/python/src "$RUNNER")
  DRIVER=("${run[@]}" clients/conformance/driver.py)
  EXAMPLE=(clients/python/examples/mail.py "${run[@]}" clients/python/examples/mail.py)
}

client_control() {
  client_python
  DRIVER=("${DRIVER[@]/driver.py/broken.py}")
}

client_typescript() {
  local said
  command -v npm >/dev/null || need_packages nodejs npm
  said=$(cd clients/typescript && npm ci --loglevel=error --no-audit --no-fund 2>&1 && npm run -s build 2>&1) ||
    { cannot clients "typescript" "npm ci, npm run build" "$said"; return 1; }
  DRIVER=(node clients/conformance/driver.mjs)
  (cd clients/typescript && npx tsc --outDir "$TMP/example" --rootDir examples --module nodenext --target es2022 --skipLibCheck examples/mail.ts)
  mkdir -p "$TMP/example/node_modules"
  ln -sfn "$PWD/clients/typescript" "$TMP/example/node_modules/postgres-jobs"
  echo '{"type": "module"}' >"$TMP/example/package.json"
  EXAMPLE=(clients/typescript/examples/mail.ts node "$TMP/example/mail.js")
}

client_rust() {
  cargo build --quiet -p postgres-jobs --example conformance --example mail || { check clients "rust: its driver is built" false; return 1; }
  DRIVER=("${CARGO_TARGET_DIR:-target}/debug/examples/conformance")
  EXAMPLE=(clients/rust/examples/mail.rs "${CARGO_TARGET_DIR:-target}/debug/examples/mail")
}

client_go() {
  local said
  mkdir -p "$STATE/go"
  said=$(need_packages golang-go golang-github-lib-pq-dev golang-opentelemetry-otel-dev && cd clients/go/conformance && go build -o "$STATE/go/" . ./mail 2>&1) ||
    { cannot clients "go" "apt-get install golang-go golang-github-lib-pq-dev golang-opentelemetry-otel-dev; go build" "$said"; return 1; }
  DRIVER=("$STATE/go/conformance")
  EXAMPLE=(clients/go/conformance/mail/main.go env PGSSLMODE=disable "$STATE/go/mail")
}

# --- Their packages: their own tests, and what their registry and their users' compilers refuse ---

package_python() {
  local bin=$STATE/clients_python/bin said
  said=$(need_python clients_python clients/python/tests/requirements.txt 2>&1) || { cannot clients "python: its package" "pip install" "$said"; return 0; }
  check clients "python: its own tests" in_library python "$bin/python" -m pytest -q -p no:cacheprovider
  check clients "python: the types hold, strictly" in_library python "$bin/mypy" --cache-dir "$TMP/mypy"
  check clients "python: the package is made" in_library python "$bin/python" -m build -q --no-isolation --outdir "$TMP/python"
  check clients "python: its registry would take it" "$bin/twine" check --strict "$TMP"/python/*
}

# What the package `postgres` does in another way than `pg`: connections that break, waits that are
# ended, stops.
POSTGRES_CASES="cut|silen|restart|PgBouncer|statement_timeout|cancel|lost|locked|stop|signal|SIG|grace|released|left behind|could not send"

package_typescript() {
  check clients "typescript: some cases, with postgres" \
    conforms typescript --only "$POSTGRES_CASES" -- env JOBS_DRIVER=postgres "${DRIVER[@]}"
  check clients "typescript: its own tests" in_library typescript npm test --silent
  check clients "typescript: the package is made" in_library typescript npm pack --silent --ignore-scripts --pack-destination "$TMP"
  check clients "typescript: its types resolve everywhere" in_library typescript npx attw --no-color -f table-flipped "$TMP"/postgres-jobs-*.tgz
  local major
  local -A NODE_TESTS=()
  for major in "${NODES[@]}"; do begin_node "$major"; done
  for major in "${NODES[@]}"; do
    [[ ! ${NODE_TESTS[$major]:-} ]] || end_node "$major"
  done
}

# The oldest Node that is supported, and newer ones; with the installed one everything runs.
NODES=(18 22 24)

# Begins the tests of workers and packages. They mostly wait, so those of all Nodes run at once.
begin_node() { # MAJOR
  local node said
  node=$(node_of "$1")
  [[ -x $node ]] || said=$(one_at_a_time npm install --prefix "$CACHE/node-$1" --loglevel=error --no-audit --no-fund "$(node_package)@$1" 2>&1) ||
    { cannot clients "typescript: Node $1" "npm install $(node_package)@$1" "$said"; return 0; }
  in_library typescript "$node" --test test/worker.test.mjs >"$TMP/node-$1.log" 2>&1 &
  NODE_TESTS[$1]=$!
}

# What can differ: how modules are imported and required, the drivers, how a worker begins, hears of
# a cancel, connects again and ends.
NODE_CASES="^(an error fails the attempt|a cancelled job's handler|a kind's timeout cancels|an idle worker whose|SIGINT is|every option of an insert|a program waits for results)"

end_node() { # MAJOR
  local node driver
  node=$(node_of "$1")
  check clients "typescript: it is Node $1" grep -q "^v$1\." <("$node" --version)
  check clients "typescript: Node $1: the tests of workers and packages" node_tests_pass "$1"
  for driver in pg postgres; do
    check clients "typescript: Node $1: some cases, with $driver" \
      conforms typescript --only "$NODE_CASES" -- env JOBS_DRIVER=$driver "$node" clients/conformance/driver.mjs
  done
}

node_tests_pass() { # MAJOR
  local code=0
  wait "${NODE_TESTS[$1]}" || code=$?
  cat "$TMP/node-$1.log"
  return "$code"
}

node_package() { node -p '`node-${process.platform}-${process.arch}`'; }
node_of() { echo "$CACHE/node-$1/node_modules/$(node_package)/bin/node"; } # MAJOR

package_rust() {
  check clients "rust: its own tests, with all features" cargo test --quiet -p postgres-jobs --all-features
  check clients "rust: control: a block of README.md that is changed fails" rust_readme_control
  check clients "rust: the crate is made" cargo package --quiet -p postgres-jobs --allow-dirty --no-verify
  check clients "rust: the program jobs" cargo test --quiet -p postgres-jobs-cli
  need_packages openssl
  begin_tls
  check clients "rust: TLS" cargo test --quiet -p postgres-jobs --all-features --test tls
  check clients "rust: control: without TLS that fails" without_tls
}

# Gives the server a certificate for its address.
begin_tls() {
  local dir=$TMP/clients
  printf '%s\n' '[req]' prompt=no distinguished_name=name x509_extensions=more '[name]' CN=jobs \
    '[more]' subjectAltName=IP:127.0.0.1 basicConstraints=CA:FALSE >"$dir/certificate.cnf"
  as_pg openssl req -x509 -config "$dir/certificate.cnf" -newkey rsa:2048 -noenc \
    -keyout "$dir/data/server.key" -out "$dir/data/server.crt" 2>"$dir/openssl.log" || cat "$dir/openssl.log"
  cp "$dir/data/server.crt" "$dir/server.crt"
  export JOBS_CERTIFICATE=$dir/server.crt
  set_tls on
}

set_tls() { # on|off
  local n
  clients_sql "alter system set ssl = $1" && clients_sql "select pg_reload_conf()" >/dev/null
  for ((n = 0; n < 600; n++)); do
    [[ $(clients_sql "show ssl") != "$1" ]] || return 0
    sleep 0.1
  done
  return 1
}

without_tls() {
  set_tls off && refuses cargo test --quiet -p postgres-jobs --all-features --test tls >"$TMP/tls.log" 2>&1
}

# README.md is the documentation of the crate, and its blocks are tests. With another rustdoc they
# are those of a README.md that was changed.
rust_readme_control() {
  sed 's/\.kind(/.knd(/; /^```$/q' clients/rust/README.md >"$TMP/README.md"
  printf '%s\n' '#!/bin/bash' "exec rustdoc \"\${@/%*\/lib.rs/$TMP\/README.md}\"" >"$TMP/rustdoc"
  chmod +x "$TMP/rustdoc"
  refuses env RUSTDOC="$TMP/rustdoc" cargo test --quiet --doc -p postgres-jobs >"$TMP/rustdoc.log" 2>&1 &&
    grep -q "no method named \`knd\`" "$TMP/rustdoc.log" || { cat "$TMP/rustdoc.log"; return 1; }
}

package_go() {
  check clients "go: its own tests" in_library go go test ./...
  check clients "go: its tests with a database" in_library go/conformance env DATABASE_URL="$DATABASE_URL?sslmode=disable" go test ./...
  check clients "go: the web application compiles" go_example
  check clients "go: vet finds nothing" in_library go go vet ./...
  check clients "go: OpenTelemetry" go_telemetry
  check clients "go: it is formatted" test -z "$(gofmt -l clients/go)"
}

# With Debian's driver, which needs no network.
go_example() {
  cp clients/go/example/go.mod "$TMP/example.mod" &&
    go mod edit -replace github.com/lib/pq=/usr/share/gocode/src/github.com/lib/pq "$TMP/example.mod" &&
    in_library go/example go vet -modfile="$TMP/example.mod" ./...
}

# With Debian's packages, which are no modules.
go_telemetry() {
  mkdir -p "$TMP/gopath/src" && ln -sfn "$PWD/clients/go" "$TMP/gopath/src/postgres_jobs" &&
    GO111MODULE=off GOPATH=$TMP/gopath:/usr/share/gocode go test postgres_jobs/jobsotel
}

# What waits for ever is to say which command it was.
in_library() { (cd "clients/$1" && timeout -k 10 900 "${@:2}"); } # LIBRARY COMMAND..
