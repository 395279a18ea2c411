# Servers: what ./dev, its parts and the tests begin them with, and the one of ./dev start. Sourced.

# Runs a command as the user that owns the servers.
as_pg() {
  if is_root; then (cd / && HOME=$STATE runuser -u postgres -- "$@"); else "$@"; fi
}

# Makes a directory that belongs to that user.
own_directory() {
  if is_root; then install -d -m 700 -o postgres -g postgres "$1"; else install -d -m 700 "$1"; fi
}

# Makes a new temporary directory that belongs to that user. Not under $STATE: the path of a Unix
# socket may have no more than 107 bytes.
short_directory() { # [WHERE]
  local dir
  dir=$(mktemp -d "${1:-/tmp}/jobs.XXXXXX")
  own_directory "$dir"
  echo "$dir"
}

# As the tests make theirs: tests/cluster.
new_cluster() { # DATA [LINE OF postgresql.conf]..
  cargo run --quiet -p jobs-cluster -- "$@"
}

start_cluster() { # DATA SOCKET_DIRECTORY PORT LISTEN_ADDRESSES; the log is DATA/server.log
  as_pg "$PG_BIN/pg_ctl" start -w -s -D "$1" -l "$1/server.log" -o "-k $2 -p $3 -c listen_addresses=$4" ||
    { as_pg tail -n 30 "$1/server.log" >&2; die "the server did not start"; }
}

stop_cluster() { # DATA [MODE]
  as_pg "$PG_BIN/pg_ctl" stop -w -s -D "$1" -m "${2:-fast}"
}

is_running() { as_pg "$PG_BIN/pg_ctl" status -s -D "$DATA" &>/dev/null; }

# Postgres writes its port and socket directory into lines 4 and 5 of its pid file: nothing else has
# to be remembered.
dev_port() { as_pg sed -n 4p "$DATA/postmaster.pid"; }
dev_socket() { as_pg sed -n 5p "$DATA/postmaster.pid"; }
dev_psql() { as_pg "$PG_BIN/psql" -X -h "$(dev_socket)" -p "$(dev_port)" -U postgres "$@"; }

free_port() { # [FROM]
  local port=${1:-28815}
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo $port
}

start() {
  if ! is_running; then
    if [[ ! -d $DATA ]]; then
      say "Creating the server's data directory $DATA"
      new_cluster "$DATA"
    fi
    start_cluster "$DATA" "$(short_directory)" "$(free_port)" 127.0.0.1
  fi
  create_extension
  say "Postgres is running: $(dev_url). ./dev psql opens it, ./dev stop ends it, its log is $DATA/server.log"
}

dev_url() { echo "host=127.0.0.1 port=$(dev_port) user=postgres dbname=jobs"; }

# While the extension's script changes without a new version, an old installation in the dev server
# would stay as it is.
create_extension() {
  local script
  script=$(cat "$PG"/share/postgresql/*/extension/jobs--*.sql | sha256sum | cut -d' ' -f1)
  [[ $(dev_psql -d postgres -Atc "select 1 from pg_database where datname = 'jobs'") ]] || dev_psql -d postgres -qc "create database jobs"
  [[ $(dev_psql -d jobs -Atc "select 1 from pg_extension where extname = 'jobs'") ]] || rm -f "$STATE/created$PG_MAJOR"
  [[ $(cat "$STATE/created$PG_MAJOR" 2>/dev/null) == "$script" ]] && return
  say "Creating the extension in database jobs (what an older build of it held there is dropped)"
  dev_psql -d jobs -v ON_ERROR_STOP=1 -q -c "set client_min_messages = warning" -c "drop extension if exists jobs cascade" -c "create extension jobs"
  echo "$script" >"$STATE/created$PG_MAJOR"
}

stop() {
  is_running || return 0
  say "Stopping the server of $DATA"
  local socket
  socket=$(dev_socket)
  stop_cluster "$DATA"
  rm -rf "$socket"
}

psql() {
  is_running || die "the server does not run: ./dev start"
  export PSQL_HISTORY=$HOME/.psql_history
  # As root itself: user postgres may not read root's files, but \i and \o are wanted.
  if is_root; then
    "$PG_BIN/psql" -h "$(dev_socket)" -p "$(dev_port)" -U postgres -d jobs "$@"
  else
    dev_psql -d jobs "$@"
  fi
}

run() {
  local directory=${1:-$PG/share}
  [[ $directory == /* ]] || directory=$JOBS_DEV_CWD/$directory
  [[ -d $directory || $# == 0 ]] || die "$directory is not a directory"
  setup
  install_extension
  start
  say "Building the example: clients/examples/checksum.rs"
  cargo build -p jobs-examples
  say "Taking checksums of all files under $directory through the queue"
  DATABASE_URL=$(dev_url) "${CARGO_TARGET_DIR:-target}/debug/checksum" "$directory"
  cat <<'TEXT'

The server is still running. Look at it:
  ./dev psql
  select * from jobs.queues;
  select id, state, attempt, args->>'path' as path, output from jobs.jobs order by id desc limit 10;
  select job_id, attempt, at, error from jobs.errors order by at desc limit 10;
  \df+ jobs.*
TEXT
}
