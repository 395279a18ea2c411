# The drivers' programs, and every function, through PgBouncer: examples/pgbouncer/pgbouncer.ini and
# the table of docs/drivers.md. tests/drivers.sh sources this file. Debian's PgBouncer knows nothing
# of prepared statements yet, which is the harder case.

POOLED_PROGRAMS=(psycopg sqlalchemy django jdbc activerecord)

driver_pgbouncer() {
  local name
  drivers_need pgbouncer "apt-get download pgbouncer" need_pgbouncer || return 0
  for name in "${POOLED_PROGRAMS[@]/#/pooled_}" pooled_control prepared session transaction statement; do drivers_database "$name"; done
  pgbouncer_start
  for name in "${POOLED_PROGRAMS[@]}"; do
    pgbouncer_grow "pooled_$name" app
    POOLED=1 pooled "pooled_$name" same_program "$name"
  done
  if program_psycopg; then
    pgbouncer_grow pooled_control postgres
    check drivers "control: pgbouncer: who prepares fails in mode transaction" finds 'prepared statement .* does not exist' pooled pooled_control "${PROGRAM[@]}"
    pgbouncer_grow prepared app
    pooled prepared same_program psycopg # in mode session
  fi
  for name in session transaction statement; do pgbouncer_functions $name; done
  check drivers "pgbouncer: every function was called" pgbouncer_all_functions tests/drivers/functions.sql
  check drivers "control: pgbouncer: a function that was not called is found" refuses pgbouncer_all_functions <(grep -v jobs.snooze tests/drivers/functions.sql) >/dev/null
  pgbouncer_transactions
  pgbouncer_waits
  pgbouncer_listens
  kill "$(cat "$TMP/drivers/pgbouncer.pid")"
}

# Its package would start a service; it is only unpacked, and what it is linked with is installed.
need_pgbouncer() {
  need_packages libevent-2.1-7 libc-ares2 && need_programs pgbouncer && pgbouncer --version
}

# With the settings pgbouncer.ini of the directory, from a copy, which its user can reach.
run_pgbouncer() { # DIRECTORY
  cp "$(PATH=$CACHE/programs/usr/sbin:$PATH type -P pgbouncer)" "$1/pgbouncer"
  as_pg "$1/pgbouncer" -d -q "$1/pgbouncer.ini"
}

# The example's file with this server's address. Connections take turns, so that statements do come
# to different ones.
pgbouncer_start() {
  local dir=$TMP/drivers name mode server="host=127.0.0.1 port=$DRIVERS_PORT dbname"
  POOL_PORT=$(test_port)
  printf '"app" ""\n"postgres" ""\n' >"$dir/userlist.txt"
  {
    echo "[databases]"
    for name in "${POOLED_PROGRAMS[@]/#/pooled_}" pooled_control; do
      sed -n "/^shop = /{s/port=5432/port=$DRIVERS_PORT/; s/shop/$name/g; p}" examples/pgbouncer/pgbouncer.ini
    done
    for mode in session transaction statement; do echo "$mode = $server=$mode pool_mode=$mode"; done
    sed -n "/^shop_workers/{s/port=5432/port=$DRIVERS_PORT/; s/^shop_//; s/dbname=shop/dbname=transaction/; p}" examples/pgbouncer/pgbouncer.ini
    echo "prepared = $server=prepared pool_mode=session"
    echo "one = $server=transaction pool_size=1"
    sed -e '1,/^\[databases\]/d' -e '/^shop/d' -e "s|^listen_port.*|listen_port = $POOL_PORT|" -e "s/^auth_type.*/auth_type = trust/" \
      -e "s|^auth_file.*|auth_file = $dir/userlist.txt|" examples/pgbouncer/pgbouncer.ini
    printf '%s\n' "server_round_robin = 1" "logfile = $dir/pgbouncer.log" "pidfile = $dir/pgbouncer.pid"
  } >"$dir/pgbouncer.ini"
  check drivers "pgbouncer: it starts with the example's settings" run_pgbouncer "$dir"
  check drivers "pgbouncer: it complains of nothing" refuses grep -E ' (WARNING|ERROR|FATAL) ' "$dir/pgbouncer.log"
}

# Runs a command with a database of the pooler as its database.
pooled() { # DATABASE COMMAND..
  local -x PGDATABASE=$1 PGPORT=$POOL_PORT DATABASE_URL=postgresql://postgres@127.0.0.1:$POOL_PORT/$1
  "${@:2}"
}

pool_sql() { # DATABASE SQL..; each a statement and a transaction of its own
  "$PG_BIN/psql" -X -q -At -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$POOL_PORT" -U postgres -d "$1" -f <(printf '%s;\n' "${@:2}") 2>&1
}

# A pool has as many connections as were needed at a time: with one, nothing could go wrong. Now it
# has three, which take turns.
pgbouncer_grow() { # DATABASE USER
  local n pids=()
  for n in 1 2 3; do
    "$PG_BIN/psql" -X -q -h 127.0.0.1 -p "$POOL_PORT" -U "$2" -d "$1" -o /dev/null -c "select pg_sleep(3)" &
    pids+=($!)
  done
  wait "${pids[@]}"
}

pgbouncer_functions() { # MODE
  local connections=3
  if [[ $1 == session ]]; then connections=1; fi
  pgbouncer_grow "$1" postgres
  check drivers "pgbouncer: mode $1 has $connections connections for a client" pgbouncer_connections "$1" $connections
  check drivers "pgbouncer: mode $1: every function works" pgbouncer_functions_work "$1" tests/drivers/functions.out
}

pgbouncer_connections() { # MODE HOW_MANY
  test "$(pool_sql "$1" "select pg_backend_pid()" "select pg_backend_pid()" "select pg_backend_pid()" | sort -u | wc -l)" = "$2"
}

pgbouncer_functions_work() { # MODE EXPECTED
  diff "$2" <(PGAPPNAME=pooled "$PG_BIN/psql" -X -q -At -h 127.0.0.1 -p "$POOL_PORT" -U postgres -d "$1" -f tests/drivers/functions.sql 2>&1)
}

# All that anybody can be granted, or that grants; the rest is internal, see docs/reference.md.
pgbouncer_all_functions() { # FILE
  local called
  called=$(grep -oE 'jobs\.[a-z_]+' "$1" | sort -u)
  diff <(drivers_sql transaction "select 'jobs.' || proname from pg_proc p where pronamespace = 'jobs'::regnamespace
      and exists (select from pg_description d where d.objoid = p.oid) and proname not in ('count_queues', 'idle_runs', 'installed', 'is_preloaded')
      order by proname collate \"C\"") \
    <(grep -xFf <(drivers_sql transaction "select 'jobs.' || proname from pg_proc p where pronamespace = 'jobs'::regnamespace") <<<"$called" | LC_ALL=C sort)
}

pgbouncer_transactions() {
  local in_transaction=("begin" "select jobs.insert('both')" "savepoint s" "select jobs.insert('none')" "rollback to s" "commit")
  pool_sql transaction "${in_transaction[@]}" >/dev/null
  check drivers "pgbouncer: a transaction with a savepoint" test "$(drivers_sql transaction "select string_agg(kind, ' ') from jobs.jobs where kind in ('both', 'none')")" = both
  check drivers "pgbouncer: mode statement has no transactions" finds 'ERROR|FATAL' pool_sql statement "${in_transaction[@]}" >/dev/null
  check drivers "pgbouncer: in a transaction, wait is refused" finds 'jobs.wait' pool_sql transaction "begin" "call jobs.wait()"
}

# A wait through the pooler ends when the job comes. While it waits, it has a connection of its
# pool: of one that has no more, a producer gets none, so the job comes only when the wait is over.
pgbouncer_waits() {
  local mode
  check drivers "pgbouncer: a wait in the workers' pool ends when a job comes by the producers' pool" pgbouncer_wait workers one 20 0 10
  check drivers "pgbouncer: a producer waits for a pool of waiters" pgbouncer_wait one one 6 2 20
  for mode in session transaction statement; do
    check drivers "pgbouncer: mode $mode: a wait ends when a job comes" pgbouncer_wait $mode $mode 20 0 10
    check drivers "pgbouncer: mode $mode: a wait can be cancelled" pgbouncer_cancel $mode
  done
}

# The insert begins when the wait has, and must take from LEAST to MOST seconds, as must the wait.
pgbouncer_wait() { # DATABASE_OF_THE_WAIT DATABASE_OF_THE_INSERT TIMEOUT LEAST MOST
  local pid queue=woken_$1_$2 begun
  pool_sql "$1" "call jobs.wait('$queue', timeout => '$3 s')" >/dev/null &
  pid=$!
  pgbouncer_until "query ilike 'call jobs.wait(''$queue''%' and state = 'active'" || return
  begun=$SECONDS
  pool_sql "$2" "select jobs.insert('a', queue => '$queue')" >/dev/null && wait $pid && ((SECONDS - begun >= $4 && SECONDS - begun <= $5))
}

pgbouncer_cancel() { # MODE
  local pid
  PGDATABASE=$1 PGPORT=$POOL_PORT env --default-signal=INT "$PG_BIN/psql" -X -c "call jobs.wait('cancelled', timeout => '60 s')" &>"$TMP/drivers/cancel.out" &
  pid=$!
  pgbouncer_until "query ilike 'call jobs.wait(''cancelled''%' and state = 'active'" || return
  kill -INT $pid
  wait $pid || true
  grep -q 'canceling statement due to user request' "$TMP/drivers/cancel.out" || { cat "$TMP/drivers/cancel.out"; return 1; }
}

pgbouncer_until() { # CONDITION_ON_PG_STAT_ACTIVITY
  local n
  for ((n = 0; n < 100; n++)); do
    [[ $(drivers_sql postgres "select count(*) from pg_stat_activity where $1") == 0 ]] || return 0
    sleep 0.1
  done
  echo "nobody did: $1"
  return 1
}

# What LISTEN subscribes is the connection, not the client. psql shows what it was notified of.
pgbouncer_listens() {
  check drivers "pgbouncer: mode session notifies" finds 'Asynchronous notification "jobs"' refuses pgbouncer_notified session
  check drivers "pgbouncer: mode transaction does not" refuses pgbouncer_notified transaction &>/dev/null
}

pgbouncer_notified() { # MODE
  pool_sql "$1" "listen jobs" "select jobs.insert('a', queue => 'heard')" "\! sleep 5" "select 1" "select 2" "select 3" |
    tee /dev/stderr | grep 'Asynchronous notification "jobs"'
}
