# The drivers and ORMs of Node and Rust, for the suite `drivers`: a function driver_NAME for each,
# which runs an example in a fresh database with the extension (DATABASE_URL and psql's variables
# name it).
#
# All of these examples do the same, so one report and one state of the queue are expected of all.
# The session's time zone and the program's are two that are not UTC and not the same: a time that
# loses its zone on the way is then hours off.

DRIVER_REPORT='insert: available in mail
unique: skipped false, then true, same job true
reject: 23505, names the existing job true
rolled back: out of stock
committed: 1 order, 1 job
types: scheduled 2999-01-01T12:00:00.000Z, 90 minutes, ["a","b, \"c\"","NULL"], {"tenant":"acme"}
nulls: JSON null available, SQL NULL 22004
bigint: 9007199254740993, lease null
prepared: 6 of 12 inserted, generic plan true
insert_many: skipped false,false,true, third is the first true
worker: ok completed
worker: bad discarded'

# Kind, state, queue, priority, max_attempts, args, meta, tags, timeout, what is not now, output;
# how many. Then errors and orders.
DRIVER_LEAVES='bad discarded work 1 25 {} {} {} 00:01:00 - - - x1
email.send available mail 1 25 {"subject": "Grüße, '\''Ada'\'' \\ 😀", "user_id": 42} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 0} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 1} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 2} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 3} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 4} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 5} {} {} 00:01:00 - - - x1
nulls available default 1 25 null {} {} 00:01:00 - - - x1
ok completed work 1 25 {"n": 1} {} {} 00:01:00 - - {"done": true} x1
order.confirm available default 1 25 {"order_id": 2} {} {} 00:01:00 - - - x1
report available default 1 25 {"customer": 7} {} {} 00:01:00 - - - x1
typed scheduled default -5 3 [1, {"deep": [null]}] {"tenant": "acme"} {a,"b, \"c\"","NULL"} 01:30:00 2999-01-01 12:00:00 2999-01-02 00:00:00 - x1
bad: no such address, type BadAddress
Grace 3'

driver_node_postgres() { driver_of_node node_postgres postgres_example.mjs; }
driver_drizzle() { driver_of_node drizzle drizzle_example.mjs; }
driver_knex() { driver_of_node knex knex_example.mjs; }
driver_tokio_postgres() { driver_of_rust tokio_postgres "$DRIVER_REPORT"; }
driver_sqlx() { driver_of_rust sqlx "$DRIVER_REPORT"; }
# It tells only a few SQLSTATEs apart.
driver_diesel() { driver_of_rust diesel "${DRIVER_REPORT/22004/Unknown}"; }

# Its adapter loses DETAIL, which has the existing job's id. It needs a newer Node than Debian has.
driver_prisma() {
  local error=$TMP/prisma.err
  if need_prisma 2>"$error"; then
    driver_example prisma "${DRIVER_REPORT/, names the existing job true/}" node "$STATE/prisma/prisma_example.mjs"
  elif refuses node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'; then
    skip drivers "prisma, with Node $(node --version)" "prisma generate --schema schema.prisma" "$(grep -m 1 Error "$error")"
  else
    cat "$error"
    check drivers "prisma: its packages can be installed and its client generated" false
  fi
}

driver_of_node() { # NAME PROGRAM
  if need_npm examples/node "$STATE/node"; then
    driver_example "$1" "$DRIVER_REPORT" node "$STATE/node/$2"
  else
    check drivers "$1: its packages can be installed" false
  fi
}

driver_of_rust() { # NAME REPORT
  if need_rust_drivers; then
    driver_example "$1" "$2" "$RUST_DRIVERS/$1_example"
  else
    check drivers "$1: it can be built" false
  fi
}

# Prisma wants to download the engine of its migrations even to generate a client, which needs none:
# it is told that there is one already. Nor do the scripts of its packages run: they would download
# it, too.
need_prisma() {
  need_npm examples/node/prisma "$STATE/prisma" --ignore-scripts || return
  [[ $(cat "$STATE/prisma/generated" 2>/dev/null) != "$(cat examples/node/prisma/schema.prisma "$STATE/prisma/wanted")" ]] || return 0
  cp examples/node/prisma/schema.prisma "$STATE/prisma/"
  (cd "$STATE/prisma" && PRISMA_SCHEMA_ENGINE_BINARY=$(type -P true) CHECKPOINT_DISABLE=1 npx --no-install prisma generate --schema schema.prisma >/dev/null) &&
    cat "$STATE/prisma/schema.prisma" "$STATE/prisma/wanted" >"$STATE/prisma/generated"
}

# Unoptimised: nobody waits for these programs, but for their compiler.
need_rust_drivers() {
  RUST_DRIVERS=${CARGO_TARGET_DIR:-target}/debug
  need_packages libpq-dev && cargo build -p jobs-example-drivers
}

# --- The test of one example ----------------------------------------------------------------------

driver_example() { # NAME REPORT COMMAND..
  local name=$1 report=$2 out=$TMP/driver_$1.out
  driver_sql "create table orders (id bigint generated always as identity primary key, customer text not null, quantity smallint not null)"
  driver_sql "alter database \"$PGDATABASE\" set timezone = 'America/New_York'"
  check drivers "$name: the example runs" env TZ=Asia/Kolkata timeout 60 "${@:3}" >"$out"
  check drivers "$name: it reports what it must" driver_reported "$out" "$report"
  check drivers "$name: control: another report is refused" refuses driver_reported "$out" "${report/9007199254740993/9007199254740992}" >/dev/null
  check drivers "$name: the queue holds what it must" driver_left "$DRIVER_LEAVES"
  check drivers "$name: control: a time that is hours off is refused" refuses driver_left "${DRIVER_LEAVES/12:00:00/17:00:00}" >/dev/null
  check drivers "$name: control: JSON null is not what was left out" refuses driver_left "${DRIVER_LEAVES/25 null/25 \{\}}" >/dev/null
  driver_sql "select jobs.delete(id) from jobs.jobs where kind = 'index' and args->'page' = '5'" >/dev/null
  check drivers "$name: control: a job too few is seen" refuses driver_left "$DRIVER_LEAVES" >/dev/null
}

driver_sql() { "$PG_BIN/psql" -X -q -At -v ON_ERROR_STOP=1 -c "$1"; }

driver_reported() { diff "$1" - <<<"$2"; } # FILE REPORT

driver_left() { # EXPECTED
  diff - <(
    driver_sql "select concat_ws(' ', kind, state, queue, priority, max_attempts, args, meta, tags, timeout,
        coalesce((nullif(scheduled_at, least(scheduled_at, now())) at time zone 'UTC')::text, '-'),
        coalesce((expires_at at time zone 'UTC')::text, '-'), coalesce(output::text, '-'), 'x' || count(*))
      from jobs.jobs group by kind, state, queue, priority, max_attempts, args, meta, tags, timeout,
        nullif(scheduled_at, least(scheduled_at, now())), expires_at, output
      order by kind collate \"C\", args"
    driver_sql "select format('%s: %s, type %s', kind, error, details->>'type') from jobs.errors join jobs.jobs on id = job_id order by id"
    driver_sql "select customer, quantity from orders order by id" | tr '|' ' '
  ) <<<"$1"
}
