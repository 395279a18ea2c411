#!/usr/bin/env bash
# Unique inserts per second: jobs.insert against R1, a bare INSERT .. ON CONFLICT DO NOTHING into one table with the same
# columns and the two indexes without which it could be neither fetched from nor unique. Both on the same server with the
# same durability, in turns, so that what the machine does meanwhile hits both. It judges nothing: look at the ratio.
#
# Run by ./dev bench, which starts a fresh server and sets PGHOST. ROUNDS, SECONDS_EACH and CLIENTS change the defaults.
set -euo pipefail

ROUNDS=${ROUNDS:-5}
SECONDS_EACH=${SECONDS_EACH:-8}
CLIENTS=${CLIENTS:-8}
THREADS=2
export PGDATABASE=bench PGOPTIONS="-c client_min_messages=warning"

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

sql() { psql -X -q -At -v ON_ERROR_STOP=1 "$@"; }

prepare() {
  PGDATABASE=postgres sql -c "create database bench"
  sql <<'SQL'
create extension jobs;
create table r1 (
  id bigint generated always as identity primary key,
  kind text not null,
  args jsonb not null,
  meta jsonb not null default '{}',
  queue text not null default 'default',
  priority smallint not null default 1,
  tags text[] not null default '{}',
  max_attempts int not null default 25,
  created_at timestamptz not null default clock_timestamp(),
  scheduled_at timestamptz not null default clock_timestamp(),
  timeout interval,
  retry jsonb,
  expires_at timestamptz,
  state jobs.state not null default 'available',
  unique_key bytea not null
);
create index r1_fetch on r1 (queue, priority, id) where state = 'available';
create unique index r1_unique on r1 (unique_key);
SQL
  # The args are new with all but certainty: every insert inserts, none is a duplicate.
  cat >"$WORK/jobs.sql" <<'SQL'
\set n random(1, 9000000000000000000)
select id from jobs.insert('bench', jsonb_build_object('user_id', :n::bigint, 'template', 'welcome'), '{"by_args": true}');
SQL
  cat >"$WORK/r1.sql" <<'SQL'
\set n random(1, 9000000000000000000)
insert into r1 (kind, args, unique_key)
select 'bench', args, sha256(convert_to('bench' || args::text, 'UTF8'))
  from (select jsonb_build_object('user_id', :n::bigint, 'template', 'welcome') as args) as new
on conflict (unique_key) do nothing returning id;
SQL
}

describe() {
  echo "machine     $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(awk '/^MemTotal/ { printf "%.0f GB", $2 / 1048576 }' /proc/meminfo), $(uname -sr)"
  echo "server      $(sql -c 'select version()')"
  echo "jobs        $(sql -c "select extversion from pg_extension where extname = 'jobs'"), commit $(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)"
  echo "settings    $(sql -c "select string_agg(name || '=' || current_setting(name), ', ' order by name) from pg_settings
    where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'shared_buffers', 'max_wal_size', 'shared_preload_libraries', 'wal_compression')")"
  echo "load        $CLIENTS clients, $THREADS pgbench threads, -M prepared, $ROUNDS rounds of $SECONDS_EACH s each, in turns; tables are not emptied between"
  echo
}

# Prints transactions per second.
measure() { # jobs|r1
  pgbench -n -M prepared -c "$CLIENTS" -j "$THREADS" -T "$SECONDS_EACH" -f "$WORK/$1.sql" >"$WORK/out" 2>&1 ||
    { cat "$WORK/out" >&2; exit 1; }
  if grep -q 'ERROR\|aborted' "$WORK/out"; then cat "$WORK/out" >&2; exit 1; fi
  awk '/^tps =/ { printf "%.0f\n", $3 }' "$WORK/out"
}

rounds() {
  local round jobs r1
  measure jobs >/dev/null # once without counting: plans, caches, the first WAL files
  measure r1 >/dev/null
  printf '%-7s %12s %12s %9s\n' round "jobs.insert" "R1" "jobs/R1"
  for round in $(seq "$ROUNDS"); do
    # The one that goes first changes, so that neither always runs after the other's checkpoint.
    if ((round % 2)); then jobs=$(measure jobs) r1=$(measure r1); else r1=$(measure r1) jobs=$(measure jobs); fi
    awk -v n="$round" -v a="$jobs" -v b="$r1" 'BEGIN { printf "%-7d %10d/s %10d/s %9.3f\n", n, a, b, a / b }' | tee -a "$WORK/rounds"
  done
  awk '{ print $4 }' "$WORK/rounds" | sort -n | awk '
    { r[NR] = $1 }
    END { m = NR % 2 ? r[(NR + 1) / 2] : (r[NR / 2] + r[NR / 2 + 1]) / 2
          printf "\nratio jobs.insert / R1: median %.3f (%.3f to %.3f)\n\n", m, r[1], r[NR] }'
}

sizes() {
  echo "R1's plan:"
  sql -c "explain insert into r1 (kind, args, unique_key) values ('bench', '{}', '\\x00') on conflict (unique_key) do nothing returning id"
  echo
  echo "sizes at the end (jobs.insert is one function call to the planner; what it writes to is here):"
  psql -X -P footer=off -c "
    select c.oid::regclass as table, s.n_live_tup as rows, pg_size_pretty(pg_table_size(c.oid)) as table_size,
           pg_size_pretty(pg_indexes_size(c.oid)) as index_size,
           round(pg_total_relation_size(c.oid)::numeric / nullif(s.n_live_tup, 0)) as bytes_per_row
      from pg_class c join pg_stat_user_tables s on s.relid = c.oid
     where s.n_live_tup > 0 order by 1::text"
  psql -X -P footer=off -c "
    select (select count(*) from jobs.jobs) as jobs, (select count(*) from r1) as r1"
}

prepare
describe
rounds
sizes
