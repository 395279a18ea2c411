# The scripts of migrate/ against the systems that they move from. tests/suites.sh sources this
# file.
#
# Each system has a database with its own schema, as its own package brings it, and jobs in every
# state that matters, made by its own API. The very scripts that users run move them. `n` in the
# arguments says which job is which. A transaction has one of the waiting jobs locked meanwhile, as
# a fetch of the old system has it, and a worker of it has another one.

MIGRATIONS=(river oban like_oban_for_elixir pg_boss pg_boss_10 graphile_worker pgmq faktory race)

suite_migration() { # FILTER is a part of a name in MIGRATIONS
  local dir=$TMP/migration system
  begin_server migration
  mkdir -p "$dir/work"
  for system in "${MIGRATIONS[@]}"; do
    [[ $system == *"$1"* ]] || continue
    migration_psql postgres -c "create database $system"
    migration_psql "$system" -c "create extension jobs"
    "migration_$system"
  done
  end_server migration
}

# --- What all of them use -------------------------------------------------------------------------

migration_psql() { # DATABASE PSQL_ARGUMENT..; as root itself, who may read the checkout
  "$PG_BIN/psql" -X -q -At -v ON_ERROR_STOP=1 -h "$TMP/migration" -U postgres -d "$1" "${@:2}"
}

migration_url() { echo "postgresql://postgres@/$1?host=$TMP/migration"; }
migration_node_url() { echo "postgresql://postgres@$(sed 's/\//%2F/g' <<<"$TMP/migration")/$1"; }

# Runs a script, which must say that it moved so many jobs and found so many duplicates.
moves() { # DATABASE SCRIPT "MOVED|DUPLICATES" PSQL_ARGUMENT..
  migration_psql "$1" -f "ops/migrate/$2.sql" "${@:4}" >"$TMP/migration/work/moved" || return
  grep -qFx "$3" "$TMP/migration/work/moved" || { echo "it said:" && cat "$TMP/migration/work/moved" && return 1; }
}

is_answer() { # DATABASE QUERY; the expectation is standard input
  diff - <(migration_psql "$1" -c "$2")
}

# A transaction that has rows locked, until it is let go.
hold_lock() { # DATABASE QUERY
  exec {HOLDER}> >("$PG_BIN/psql" -X -q -At -h "$TMP/migration" -U postgres -d "$1" >/dev/null)
  echo "set application_name = 'holder'; begin; $2;" >&"$HOLDER"
  migration_until "$1" "select count(*) = 1 from pg_stat_activity where application_name = 'holder' and state = 'idle in transaction'"
}

let_lock_go() { # DATABASE
  exec {HOLDER}>&-
  migration_until "$1" "select count(*) = 0 from pg_stat_activity where application_name = 'holder'"
}

migration_until() { # DATABASE QUERY
  local n
  for ((n = 0; n < 300; n++)); do
    [[ $(migration_psql "$1" -c "$2") != t ]] || return 0
    sleep 0.1
  done
  echo "after half a minute this is still not true: $2"
  return 1
}

# A query for every job that was moved: n, and what became of its options; `when` is a year, soon or
# now.
moved_jobs() { # [CONDITION [EXPRESSION_FOR_N]]
  local n=${2:-"j.args->>'n'"}
  echo "select coalesce($n, '-') as n, j.kind, j.state, j.queue, j.priority, j.max_attempts,
      case when j.scheduled_at >= '2900-01-01' then '2900' when j.scheduled_at > now() then 'soon' else 'now' end as when, array_to_string(j.tags, '+'), j.timeout
    from jobs.jobs j join public.jobs_moved m on m.job_id = j.id where not m.duplicate and ${1:-true} order by ($n)::int nulls last, j.id"
}

# Those that could be fetched now, in the order in which they would be.
FETCH_ORDER="begin; select string_agg(coalesce(args->>'n', '-'), ' ') from jobs.fetch(%s, 100); rollback"

# Of packages only what they bring themselves is needed, and Oban's wants a newer Python than Debian
# has.
need_migration_python() { # WHAT_FOR
  need_python migration tests/migration/requirements.txt -- --no-deps --ignore-requires-python >"$TMP/migration/work/out" 2>&1 && return
  cannot migration "$1" "pip install --no-deps --ignore-requires-python -r tests/migration/requirements.txt" "$(cat "$TMP/migration/work/out")"
  return 1
}

need_migration_node() { # WHAT_FOR
  need_npm tests/migration "$STATE/migration-node" >"$TMP/migration/work/out" 2>&1 && return
  cannot migration "$1" "npm ci # tests/migration/package-lock.json" \
    "$(cat "$TMP/migration/work/out")"
  return 1
}

# What holds of every move, whatever the system.
moved_well() { # DATABASE SOURCE
  check migration "$1: each moved job says where it comes from" is_answer "$1" "select count(*) > 0, bool_and(j.meta->'moved_from'->>'source' = '$2' and j.meta->'moved_from'->>'id' = m.old_id)
    from public.jobs_moved m join jobs.jobs j on j.id = m.job_id where not m.duplicate" <<<"t|t"
}

# Moves back what waits, and compares the table with what it was before.
moved_back() { # DATABASE SOURCE HOW_MANY
  local work=$TMP/migration/work
  check migration "$1: what waits can be moved back" moves "$1" undo "$3" -v source="$2"
  whole_table "$1" "$2" >"$work/$1.after"
  check migration "$1: and is as it was" diff "$work/$1.before" "$work/$1.after"
  check migration "$1: nothing of it waits here" is_answer "$1" "select count(*) from jobs.jobs where meta ? 'moved_from' and finalized_at is null" <<<0
  check migration "$1: the audit says what deleted it" is_answer "$1" "select count(*), min(reason), max(reason) from jobs.audit where action = 'delete'" <<<"$3|ops/migrate/undo.sql|ops/migrate/undo.sql"
  echo "something else" >>"$work/$1.before"
  check migration "$1: control: another table is not as it was" refuses diff "$work/$1.before" "$work/$1.after" >/dev/null
}

remember() { # DATABASE SOURCE
  whole_table "$1" "$2" >"$TMP/migration/work/$1.before"
}

whole_table() { # DATABASE SOURCE; as jsonb, since the spaces of json do not matter
  migration_psql "$1" -c "select to_jsonb(t) from $2 t order by 1"
}

# --- River: its migrations are in its crate, its client for Python inserts ------------------------

RIVER_VERSION=0.5.0

river_schema() {
  local work=$TMP/migration/work/river file
  mkdir -p "$work"
  printf '%s\n' '[package]' 'name = "fetch"' 'version = "0.0.0"' 'edition = "2021"' '[lib]' 'path = "lib.rs"' '[workspace]' '[dependencies]' \
    "riverqueue-migrate = { version = \"=$RIVER_VERSION\", default-features = false }" >"$work/Cargo.toml"
  touch "$work/lib.rs"
  (cd "$work" && cargo fetch -q) || return
  # Its own migrator replaces this comment by the schema's name, here none.
  for file in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/riverqueue-migrate-"$RIVER_VERSION"/migrations/main/*.up.sql; do
    sed 's#/\* TEMPLATE: schema \*/##g' "$file" | migration_psql river >/dev/null || return
  done
}

migration_river() {
  if ! river_schema >"$TMP/migration/work/out" 2>&1; then
    cannot migration "River, and its schema" \
      "cargo fetch # of riverqueue-migrate =$RIVER_VERSION" "$(cat "$TMP/migration/work/out")"
    return
  fi
  need_migration_python "River's client" || return 0
  check migration "river: its client inserts" env DATABASE_URL="postgresql+psycopg://postgres@/river?host=$TMP/migration" "$STATE/migration/bin/python" tests/migration/river_jobs.py
  # What its workers and the unique inserts of its other clients write; the client for Python does
  # not.
  migration_psql river <<'SQL'
update river_job set state = 'retryable', attempt = 2, scheduled_at = now() + interval '1 hour', errors = array['{"attempt": 1}', '{"attempt": 2}']::jsonb[] where args->>'n' = '5';
update river_job set state = 'running', attempt = 25, attempted_at = now(), attempted_by = '{client}' where args->>'n' = '6';
update river_job set state = 'completed', finalized_at = now() where args->>'n' = '7';
update river_job set state = 'pending' where args->>'n' = '8';
update river_job set unique_key = sha256('charge'), unique_states = B'11110101' where args->>'n' = '10';
SQL
  remember river public.river_job
  hold_lock river "select 1 from river_job where args->>'n' = '9' for update"

  check migration "river: a unique kind of which nothing is known is refused" refuses moves river river "7|0" 2>/dev/null
  check migration "river: and all stays as it was" is_answer river "select count(*), (select count(*) from jobs.jobs), to_regclass('public.jobs_moved') is null from river_job" <<<"10|0|t"
  migration_psql river -c "select jobs.define_kind('charge', unique_opts => '{\"by_args\": [\"account\"]}')" >/dev/null
  check migration "river: what waits is moved" moves river river "6|0"
  check migration "river: with all its options" is_answer river "$(moved_jobs)" <<'TEXT'
1|mail|available|default|1|25|now||00:01:00
2|mail|available|default|4|25|now||00:01:00
3|mail|available|slow|2|5|now|urgent+monthly|00:01:00
4|mail|scheduled|default|1|25|2900||00:01:00
5|mail|scheduled|default|1|23|soon||00:01:00
10|charge|available|default|1|25|now||00:01:00
TEXT
  check migration "river: control: another outcome is refused" refuses is_answer river "$(moved_jobs)" <<<"1|mail|available|default|2|25|now||00:01:00" >/dev/null
  check migration "river: in its order" is_answer river "$(printf "$FETCH_ORDER" "'default'")" <<<"1 10 2"
  check migration "river: a duplicate inserted now is skipped" is_answer river \
    "select unique_skipped_as_duplicate from jobs.insert('charge', '{\"account\": 7, \"n\": 11}') union all select unique_skipped_as_duplicate from jobs.insert('charge', '{\"account\": 8}')" <<<$'t\nf'
  moved_well river public.river_job
  check migration "river: what runs, is locked or is over stays" is_answer river "select args->>'n', state from river_job order by id" <<<$'6|running\n7|completed\n8|pending\n9|available'
  let_lock_go river
  check migration "river: another run moves what was locked" moves river river "1|0"
  check migration "river: a third one nothing" moves river river "0|0"
  moved_back river public.river_job 7
  check migration "river: when its workers have stopped, what ran is moved too" moves river river "8|0" -v running=on
  check migration "river: with one attempt left at least" is_answer river "select max_attempts from jobs.jobs where args->>'n' = '6'" <<<1
  check migration "river: limit and queue" migration_river_parts
}

migration_river_parts() {
  moves river undo 8 -v source=public.river_job && moves river river "1|0" -v queue=slow && moves river river "2|0" -v limit=2 &&
    is_answer river "select string_agg(args->>'n', ' ' order by id) from jobs.jobs where meta ? 'moved_from'" <<<"3 1 9"
}

# --- Oban: its package for Python brings the schema and the statements ----------------------------

migration_oban() {
  need_migration_python "Oban, and its schema" || return 0
  check migration "oban: its statements insert" env DATABASE_URL="$(migration_url oban)" "$STATE/migration/bin/python" tests/migration/oban_jobs.py
  remember oban public.oban_jobs
  hold_lock oban "select 1 from oban_jobs where args->>'n' = '7' for update"
  # A kind is unique as its worker was, and producers have begun to insert here: one that the job n
  # = 11 would duplicate.
  migration_psql oban -c "select jobs.define_kind('App.Charge', unique_opts => '{\"oban\": {\"period\": 60}}')" -c "select jobs.insert('App.Charge', '{\"n\": 11}')" >/dev/null
  check migration "oban: what waits is moved, but what a producer has inserted here" moves oban oban "7|1"
  check migration "oban: with all its options; two of one key wait side by side as before" is_answer oban "$(moved_jobs)" <<'TEXT'
1|App.Mail|available|default|1|20|now||00:01:00
2|App.Mail|available|default|10|20|now||00:01:00
3|App.Mail|available|slow|3|5|now|urgent+monthly|00:01:00
4|App.Mail|scheduled|default|1|20|2900||00:01:00
5|App.Mail|scheduled|failing|1|5|soon||00:01:00
10|App.Charge|available|default|1|20|now||00:01:00
10|App.Charge|available|default|1|20|now||00:01:00
TEXT
  check migration "oban: control: another outcome is refused" refuses is_answer oban "$(moved_jobs)" <<<"1|App.Mail|available|default|0|20|now||00:01:00" >/dev/null
  check migration "oban: its times are those of UTC, its meta is kept" is_answer oban "select bool_and(j.scheduled_at = ((m.old->>'scheduled_at') || 'Z')::timestamptz), max(j.meta->>'tenant')
    from jobs.jobs j join jobs_moved m on m.job_id = j.id where not m.duplicate" <<<"t|acme"
  check migration "oban: in its order" is_answer oban "$(printf "$FETCH_ORDER" "'default'")" <<<"11 1 10 10 2"
  check migration "oban: a duplicate inserted now is skipped" is_answer oban "select unique_skipped_as_duplicate from jobs.insert('App.Charge', '{\"n\": 10}')" <<<t
  check migration "oban: the duplicate is kept in the table of what was moved" is_answer oban "select old->'args'->>'n', j.meta ? 'moved_from' from jobs_moved m join jobs.jobs j on j.id = m.job_id where duplicate" <<<"11|f"
  moved_well oban public.oban_jobs
  check migration "oban: what runs, is locked or is over stays" is_answer oban "select args->>'n', state from oban_jobs order by id" <<<$'6|executing\n7|available\n8|cancelled\n9|suspended'
  let_lock_go oban
  check migration "oban: another run moves what was locked" moves oban oban "1|0"
  check migration "oban: a third one nothing" moves oban oban "0|0"
  sed -i '/{"n": 11}/d' "$TMP/migration/work/oban.before"
  moved_back oban public.oban_jobs 8
  check migration "oban: when its workers have stopped, what ran is moved too" moves oban oban "9|0" -v running=on -v timeout='10 minutes'
  check migration "oban: with the attempts that are left, and the timeout that was said" is_answer oban "select max_attempts, timeout from jobs.jobs where args->>'n' = '6'" <<<"2|00:10:00"
}

# Its migrations for Elixir cannot be had here. This table is made from what its documentation says;
# it stands for them in what differs: errors are an array of jsonb, tags and meta can be null,
# numbers are wider.
migration_like_oban_for_elixir() {
  local what="like_oban_for_elixir (a table made from the documentation)"
  skip migration "the schema of Oban for Elixir" "apt-get install elixir-oban" "$(apt-get install -s elixir-oban 2>&1 | tail -n 1)"
  migration_psql like_oban_for_elixir <<'SQL'
create type oban_job_state as enum ('available', 'suspended', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');
create table oban_jobs (
  id bigserial primary key, state oban_job_state not null default 'available', queue text not null default 'default', worker text not null,
  args jsonb not null default '{}', errors jsonb[] not null default '{}', attempt int not null default 0, max_attempts int not null default 20,
  inserted_at timestamp not null default timezone('UTC', now()), scheduled_at timestamp not null default timezone('UTC', now()),
  attempted_at timestamp, completed_at timestamp, attempted_by text[], discarded_at timestamp, priority int not null default 0,
  tags text[] default '{}', meta jsonb default '{}', cancelled_at timestamp);
insert into oban_jobs (worker, args, state, attempt, errors, tags, meta, priority) values
  ('App.Mail', '{"n": 1}', 'available', 0, '{}', null, null, 9),
  ('App.Mail', '{"n": 2}', 'retryable', 3, array['{"error": "it broke"}', '{"error": "again"}']::jsonb[], '{urgent}', '{}', 0),
  ('App.Mail', '{"n": 3}', 'executing', 1, '{}', '{}', '{}', 0);
SQL
  remember like_oban_for_elixir public.oban_jobs
  check migration "$what: what waits is moved" moves like_oban_for_elixir oban "2|0"
  check migration "$what: with all its options" is_answer like_oban_for_elixir "$(moved_jobs)" <<'TEXT'
1|App.Mail|available|default|10|20|now||00:01:00
2|App.Mail|available|default|1|17|now|urgent|00:01:00
TEXT
  moved_back like_oban_for_elixir public.oban_jobs 2
  migration_psql like_oban_for_elixir -c "insert into oban_jobs (worker, args, priority) values (repeat('x', 128), '{\"n\": 4}', 9)"
  check migration "$what: one job that cannot be moved, the last one" refuses moves like_oban_for_elixir oban "3|0" 2>/dev/null
  check migration "$what: and none is" is_answer like_oban_for_elixir "select count(*), (select count(*) from jobs.jobs), (select count(*) from jobs_moved) from oban_jobs" <<<"4|0|0"
}

# --- pg-boss, in two major versions ---------------------------------------------------------------

migration_pg_boss() { migration_of_pg_boss pg_boss pg-boss; }
migration_pg_boss_10() { migration_of_pg_boss pg_boss_10 pg-boss-10; }

migration_of_pg_boss() { # DATABASE PACKAGE
  local db=$1 program=(env "DATABASE_URL=$(migration_node_url "$1")" timeout 60 node "$STATE/migration-node/pg_boss_jobs.mjs" "$2")
  need_migration_node "$2, and its schema" || return 0
  check migration "$db: its API inserts" "${program[@]}" fill
  remember "$db" pgboss.job
  hold_lock "$db" "select 1 from pgboss.job where data->>'n' = '4' for update"
  check migration "$db: a queue that is throttled, of which nothing is known, is refused" refuses moves "$db" pg-boss "7|0" 2>/dev/null
  migration_psql "$db" -c "select jobs.define_kind('crawl', unique_opts => '{\"by_args\": [\"site\"], \"by_period\": \"5000 weeks\"}')" >/dev/null
  check migration "$db: what waits is moved" moves "$db" pg-boss "7|0"
  check migration "$db: with all its options" is_answer "$db" "$(moved_jobs)" <<'TEXT'
1|mail|available|mail|1|3|now||00:15:00
2|mail|available|mail|-4|3|now||00:15:00
3|mail|scheduled|mail|1|3|2900||00:02:00
5|failing|scheduled|failing|1|4|soon||00:15:00
9|digest|available|digest|1|3|now||00:15:00
10|crawl|available|crawl|1|3|now||00:15:00
-|mail|available|mail|1|1|now||00:15:00
TEXT
  check migration "$db: control: another outcome is refused" refuses is_answer "$db" "$(moved_jobs)" <<<"1|mail|available|mail|0|3|now||00:15:00" >/dev/null
  check migration "$db: the higher priority first" is_answer "$db" "$(printf "$FETCH_ORDER" "'mail'")" <<<"2 1 -"
  check migration "$db: it fails as there, and expires as there" is_answer "$db" "select j.retry->>'strategy', j.retry->>'initial', j.expires_at = (m.old->>'keep_until')::timestamptz
    from jobs.job j join jobs_moved m on m.job_id = j.id where j.args->>'n' in ('1', '5') order by j.args->>'n'" <<<$'constant|0.001|t\nexponential|90.0|t'
  check migration "$db: duplicates inserted now are skipped" is_answer "$db" "select unique_skipped_as_duplicate
    from jobs.insert('digest', queue => 'digest', unique_opts => '{\"key\": \"daily\", \"by_state\": [\"available\", \"scheduled\", \"pending\", \"retryable\"]}')
    union all select unique_skipped_as_duplicate from jobs.insert('crawl', '{\"site\": 1}') union all select unique_skipped_as_duplicate from jobs.insert('crawl', '{\"site\": 2}')" <<<$'t\nt\nf'
  moved_well "$db" pgboss.job
  check migration "$db: what runs, is locked or is over stays" is_answer "$db" "select data->>'n', state from pgboss.job order by 1" <<<$'4|created\n6|active\n7|completed\n8|cancelled'
  let_lock_go "$db"
  check migration "$db: another run moves what was locked" moves "$db" pg-boss "1|0"
  check migration "$db: a third one nothing" moves "$db" pg-boss "0|0"
  moved_back "$db" pgboss.job 8
  if [[ $db == pg_boss ]]; then
    migration_psql pg_boss -c "update pgboss.job set blocked = true where data->>'n' = '1'" -c "update pgboss.job set blocking = true where data->>'n' = '2'"
    check migration "pg_boss: what belongs to a flow stays" moves pg_boss pg-boss "6|0"
  fi
  check migration "$db: its worker completes what it had" "${program[@]}" finish
  check migration "$db: then it is not moved" moves "$db" pg-boss "$([[ $db == pg_boss ]] && echo "0|0" || echo "8|0")" -v running=on
}

# --- Graphile Worker: a worker of it runs meanwhile -----------------------------------------------

migration_graphile_worker() {
  need_migration_node "Graphile Worker, and its schema" || return 0
  exec {TELL}> >(DATABASE_URL=$(migration_node_url graphile_worker) timeout 120 node "$STATE/migration-node/graphile_worker_jobs.mjs")
  check migration "graphile_worker: it has made its schema" migration_until graphile_worker "select to_regclass('graphile_worker._private_jobs') is not null"
  check migration "graphile_worker: its worker has a job" migration_until graphile_worker \
    "select count(*) = 1 from graphile_worker._private_jobs where payload->>'n' = '10' and locked_at is not null"
  remember graphile_worker graphile_worker._private_jobs
  hold_lock graphile_worker "select 1 from graphile_worker._private_jobs where payload->>'n' = '4' for update"
  check migration "graphile_worker: what waits is moved" moves graphile_worker graphile-worker "7|0"
  check migration "graphile_worker: with all its options" is_answer graphile_worker "$(moved_jobs "j.kind <> 'failing'")" <<'TEXT'
1|mail|available|default|1|25|now||00:01:00
2|mail|available|default|-4|25|now||00:01:00
3|mail|scheduled|default|1|3|2900|slow+remote|00:01:00
7|import|available|serial|1|25|now||00:01:00
8|import|available|serial|1|25|now||00:01:00
9|report|available|default|1|25|now||00:01:00
TEXT
  check migration "graphile_worker: control: another outcome is refused" refuses is_answer graphile_worker "$(moved_jobs)" <<<"1|mail|available|default|0|25|now||00:01:00" >/dev/null
  check migration "graphile_worker: what failed waits as long as it would have, and has the attempts that are left" is_answer graphile_worker "select j.max_attempts, j.scheduled_at = (m.old->>'run_at')::timestamptz
    from jobs.jobs j join jobs_moved m on m.job_id = j.id where j.kind = 'failing'" <<<"4|t"
  check migration "graphile_worker: of a named queue one job at a time" is_answer graphile_worker "$(printf "$FETCH_ORDER" "'serial'")" <<<7
  check migration "graphile_worker: the audit says who made the queue serial" is_answer graphile_worker "select action, target, reason from jobs.audit" <<<"configure_queue|serial|ops/migrate/graphile-worker.sql"
  check migration "graphile_worker: a duplicate inserted now is skipped" is_answer graphile_worker "select unique_skipped_as_duplicate
    from jobs.insert('another', unique_opts => '{\"key\": \"report-1\", \"exclude_kind\": true, \"by_state\": [\"available\", \"scheduled\", \"pending\", \"retryable\"]}')" <<<t
  moved_well graphile_worker graphile_worker._private_jobs
  check migration "graphile_worker: what runs, is locked or has failed for good stays" is_answer graphile_worker "select payload->>'n', locked_at is not null from graphile_worker._private_jobs order by id" <<<$'4|f\n6|f\n10|t'
  let_lock_go graphile_worker
  check migration "graphile_worker: another run moves what was locked" moves graphile_worker graphile-worker "1|0"
  check migration "graphile_worker: a third one nothing" moves graphile_worker graphile-worker "0|0"
  moved_back graphile_worker graphile_worker._private_jobs 8
  exec {TELL}>&-
  check migration "graphile_worker: its worker finishes what it had" migration_until graphile_worker "select count(*) = 0 from graphile_worker._private_jobs where payload->>'n' = '10'"
  migration_psql graphile_worker -c "select jobs.reset_queue('serial')" -c "select jobs.configure_queue('serial', max_waiting => 100)" >/dev/null
  check migration "graphile_worker: then it is not moved" moves graphile_worker graphile-worker "8|0" -v running=on
  check migration "graphile_worker: what is set of a queue stays, whatever it is" is_answer graphile_worker "select concurrency, max_waiting from jobs.queues where queue = 'serial'" <<<"|100"
}

# --- pgmq: its functions are its API --------------------------------------------------------------

pgmq_schema() { # DATABASE
  migration_psql "$1" -f "$STATE"/migration/lib/python3*/site-packages/pgmq/sql/pgmq.sql >/dev/null
}

migration_pgmq() {
  need_migration_python "pgmq, and its schema" || return 0
  pgmq_schema pgmq
  migration_psql pgmq >/dev/null <<'SQL'
select pgmq.create('mail');
select pgmq.send('mail', '{"n": 1}');
select pgmq.read('mail', 600, 1);                                   -- in flight
select pgmq.send('mail', '{"n": 2}');
select pgmq.read('mail', 0, 1);                                     -- was read once, and came back
select pgmq.send('mail', '{"n": 3}', 600);                          -- delayed
select pgmq.send('mail', '{"n": 4}', '{"x-pgmq-group": "g"}'::jsonb);
select pgmq.send('mail', '{"n": 5}');                               -- a transaction has it locked
select pgmq.archive('mail', pgmq.send('mail', '{"n": 6}'));
SQL
  remember pgmq pgmq.q_mail
  hold_lock pgmq "select 1 from pgmq.q_mail where message->>'n' = '5' for update"
  check migration "pgmq: a queue has to be named" refuses moves pgmq pgmq "3|0" 2>/dev/null
  check migration "pgmq: what waits is moved" moves pgmq pgmq "3|0" -v queue=mail -v kind=send
  check migration "pgmq: with all its options" is_answer pgmq "$(moved_jobs)" <<'TEXT'
2|send|available|mail|1|24|now||00:01:00
3|send|scheduled|mail|1|25|soon||00:01:00
4|send|available|mail|1|25|now||00:01:00
TEXT
  check migration "pgmq: control: another outcome is refused" refuses is_answer pgmq "$(moved_jobs)" <<<"2|send|available|mail|1|25|now||00:01:00" >/dev/null
  check migration "pgmq: with its headers" is_answer pgmq "select meta->'headers' from jobs.jobs where args->>'n' = '4'" <<<'{"x-pgmq-group": "g"}'
  moved_well pgmq pgmq.q_mail
  check migration "pgmq: what is in flight or locked stays" is_answer pgmq "select message->>'n' from pgmq.q_mail order by 1" <<<$'1\n5'
  let_lock_go pgmq
  check migration "pgmq: another run moves what was locked" moves pgmq pgmq "1|0" -v queue=mail -v kind=send
  check migration "pgmq: a third one nothing" moves pgmq pgmq "0|0" -v queue=mail -v kind=send
  moved_back pgmq pgmq.q_mail 4
  check migration "pgmq: the kind is the queue's name if none is given" migration_pgmq_kind
  check migration "pgmq: nor what a worker does just then" migration_undo_beside_done
  check migration "pgmq: what has begun here is not moved back" migration_undo_beside_worker
}

migration_pgmq_kind() {
  moves pgmq pgmq "5|0" -v queue=mail -v running=on &&
    is_answer pgmq "select distinct kind, queue from jobs.jobs where meta ? 'moved_from'" <<<"mail|mail"
}

# A job that is taken and done while undo waits for it.
migration_undo_beside_done() {
  local worker
  migration_psql pgmq -c "begin; select jobs.complete(id, token) from jobs.fetch('mail'); select pg_sleep(2); commit" >/dev/null &
  worker=$!
  migration_until pgmq "select count(*) > 0 from pg_stat_activity where query like '%pg_sleep(2)%' and pid <> pg_backend_pid() and wait_event = 'PgSleep'"
  refuses moves pgmq undo 5 -v source=pgmq.q_mail 2>/dev/null && wait "$worker" &&
    is_answer pgmq "select count(*) from jobs.jobs where state = 'completed'" <<<1 &&
    is_answer pgmq "select count(*) from pgmq.q_mail" <<<0 &&
    # It waits again for the next test, behind the others.
    migration_psql pgmq -c "select jobs.retry(id) from jobs.jobs where state = 'completed'" >/dev/null
}

# What a new worker has taken is its own.
migration_undo_beside_worker() {
  is_answer pgmq "select args->>'n' from jobs.fetch('mail')" <<<2 && moves pgmq undo 4 -v source=pgmq.q_mail &&
    is_answer pgmq "select args->>'n', state from jobs.jobs where meta ? 'moved_from'" <<<"2|running" &&
    is_answer pgmq "select count(*), count(*) filter (where message->>'n' = '2') from pgmq.q_mail" <<<"4|0"
}

# --- Faktory: no server can be had, its jobs are JSON ---------------------------------------------

migration_faktory() {
  local lines=$TMP/migration/work/faktory.jsonl
  skip migration "a server of Faktory" "apt-get install faktory" "$(apt-get install -s faktory 2>&1 | tail -n 1)"
  sed "s/\"NOW\"/\"$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)\"/" tests/migration/faktory.jsonl >"$lines"
  check migration "faktory: jobs are moved, each once" moves faktory faktory "9|0" <"$lines"
  check migration "faktory: with all their options" is_answer faktory "$(moved_jobs true 'j.args->>0')" <<'TEXT'
1|Mail|available|default|1|26|now||00:30:00
2|Mail|scheduled|critical|1|4|2900||00:10:00
3|Mail|scheduled|default|1|4|2900||00:30:00
4|Mail|available|default|1|1|now||00:30:00
5|Mail|available|default|-3|1|now||00:30:00
6|Sync|available|default|1|26|now||00:30:00
7|Sync|available|default|1|26|now||00:30:00
8|Sync|scheduled|default|1|26|2900||00:30:00
9|Mail|available|default|1|26|now||00:30:00
TEXT
  check migration "faktory: control: another outcome is refused" refuses is_answer faktory "$(moved_jobs true 'j.args->>0')" <<<"1|Mail|available|default|1|25|now||00:30:00" >/dev/null
  check migration "faktory: args, custom and expires_at" is_answer faktory "select args, meta->>'locale', expires_at = '2900-01-01Z' from jobs.jobs where args->>0 in ('1', '2', '9') order by args->>0" <<'TEXT'
[1, "a \"quoted\" \\ one"]||
[2]|de|
[9]||t
TEXT
  check migration "faktory: keys are held as long as they would have been" is_answer faktory "select string_agg(unique_skipped_as_duplicate::text, ' ')
    from generate_series(6, 8) n, jobs.insert('Sync', jsonb_build_array(n), '{\"faktory\": {\"unique_for\": 600}}')" <<<"true false true"
  check migration "faktory: and given back when they would have been" is_answer faktory "select hold_until from jobs.job where args->>0 in ('6', '8') and meta ? 'moved_from' order by args->>0" <<<$'start\nsuccess'
  moved_well faktory faktory
  check migration "faktory: the same lines again move nothing" moves faktory faktory "0|0" <"$lines"
  echo '{"jid":"another","queue":"default","jobtype":"Mail","args":[10],"retry":25}' >>"$lines"
  check migration "faktory: and a new one is moved" moves faktory faktory "1|0" <"$lines"
}

# --- An old worker takes jobs while they are moved ------------------------------------------------

# Each message is either popped by pgmq's own function or moved, never both, never neither.
migration_race() {
  local n worker=$TMP/migration/work/pop.sql workers=()
  need_migration_python "an old worker beside a move" || return 0
  pgmq_schema race
  migration_psql race -c "create table popped (n int)" -c "select pgmq.create('race')" -c "select pgmq.send('race', jsonb_build_object('n', n)) from generate_series(1, 3000) n" >/dev/null
  for ((n = 0; n < 500; n++)); do echo "insert into popped select (message->>'n')::int from pgmq.pop('race');"; done >"$worker"
  for n in 1 2; do
    migration_psql race -f "$worker" &
    workers+=($!)
  done
  for ((n = 0; n < 15; n++)); do migration_psql race -f ops/migrate/pgmq.sql -v queue=race -v limit=100 >/dev/null; done
  wait "${workers[@]}"
  migration_psql race -f ops/migrate/pgmq.sql -v queue=race >/dev/null
  check migration "race: both had jobs, and each job one of them" is_answer race "select count(*), count(distinct n), bool_or(old), bool_or(not old)
    from (select n, true as old from popped union all select (args->>'n')::int, false from jobs.jobs) s" <<<"3000|3000|t|t"
  check migration "race: control: another number is refused" refuses is_answer race "select count(*) from popped" <<<3000 >/dev/null
}
