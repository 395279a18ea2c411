# Drivers and ORMs as their users use them: the programs of examples/, each against a database of
# its own. tests/suites.sh sources this file. The files in tests/drivers have a function driver_NAME
# for each: it runs the program, and compares what it prints and what it leaves in the queue with
# what docs/ promise.

DRIVERS=(psycopg sqlalchemy django jdbc activerecord pgbouncer node_postgres drizzle prisma knex tokio_postgres sqlx diesel)

for file in tests/drivers/*.sh; do source "$file"; done
unset file

# FILTER is a part of a driver's name. A driver_NAME finds DATABASE_URL and PGHOST, PGPORT, PGUSER
# and PGDATABASE set, for a superuser. There is also the role app, which owns the database and may
# produce and work.
suite_drivers() {
  local name found=0
  need_extension # takes minutes, after which the port might not be free
  DRIVERS_PORT=$(test_port)
  local -x PGHOST=127.0.0.1 PGPORT=$DRIVERS_PORT PGUSER=postgres PGDATABASE DATABASE_URL
  begin_server drivers "" "$DRIVERS_PORT"
  drivers_sql postgres "create role app login"
  for name in "${DRIVERS[@]}"; do
    [[ $name == *"$1"* ]] || continue
    found=$((found + 1))
    drivers_database "$name"
    PGDATABASE=$name DATABASE_URL=postgresql://postgres@127.0.0.1:$DRIVERS_PORT/$name
    "driver_$name"
  done
  check drivers "there is a driver whose name has ${1:-any letter}" test $found -gt 0
  end_server drivers
}

drivers_sql() { # DATABASE SQL; as superuser, by the Unix socket
  as_pg "$PG_BIN/psql" -X -q -At -v ON_ERROR_STOP=1 -h "$TMP/drivers" -p "$DRIVERS_PORT" -U postgres -d "$1" -c "set client_min_messages = warning" -c "$2"
}

# A fresh database with the extension.
drivers_database() { # NAME
  drivers_sql postgres "create database \"$1\" owner app"
  drivers_sql "$1" "create extension jobs"
  drivers_sql "$1" "select jobs.grant_producer('app'), jobs.grant_worker('app')" >/dev/null
}
