#!/usr/bin/env bash
# What jobs does, against what the same server does without it (yardsticks.sql): ratios within one run, in turns, so that what
# the machine does meanwhile hits both. It judges nothing: look at the ratios.
#
# Run by ./dev bench [CASE..], which starts a fresh server and sets PGHOST. ROUNDS, SECONDS_EACH, CLIENTS and JOBS change the scale.
set -euo pipefail

CASES=(unique duplicates batch work100 work10 work1)
ROUNDS=${ROUNDS:-5}
SECONDS_EACH=${SECONDS_EACH:-8}
CLIENTS=${CLIENTS:-8}
JOBS=${JOBS:-80000} # that a round of fetching and completing takes, in batches of 100; in smaller ones fewer
THREADS=2
export PGDATABASE=bench PGOPTIONS="-c client_min_messages=warning"

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

sql() { psql -X -q -At -v ON_ERROR_STOP=1 "$@"; }

prepare() {
  PGDATABASE=postgres sql -c "create database bench"
  sql -c "create extension jobs"
  sql -f "$HERE/yardsticks.sql"
}

describe() {
  echo "machine     $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(awk '/^MemTotal/ { printf "%.0f GB", $2 / 1048576 }' /proc/meminfo), $(uname -sr)"
  echo "server      $(sql -c 'select version()')"
  echo "jobs        $(sql -c "select extversion from pg_extension where extname = 'jobs'"), commit $(git -C "$HERE" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)"
  echo "settings    $(sql -c "select string_agg(name || '=' || current_setting(name), ', ' order by name) from pg_settings
    where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'shared_buffers', 'max_wal_size', 'shared_preload_libraries', 'wal_compression')")"
  echo "load        $CLIENTS clients, $THREADS pgbench threads, -M prepared, $ROUNDS rounds in turns: of $SECONDS_EACH s each, or of $JOBS jobs"
  echo
}

# --- cases: what runs in each transaction, ours and the yardstick's; how many jobs that is ----------------------------------

# Every args is new with all but certainty: every insert inserts.
case_unique() {
  TITLE="unique insert of distinct keys / R1" JOBS_EACH=1
  ours <<'SQL'
\set n random(1, 9000000000000000000)
select id from jobs.insert('bench', jsonb_build_object('user_id', :n::bigint, 'template', 'welcome'), '{"by_args": true}');
SQL
  yardstick <<'SQL'
\set n random(1, 9000000000000000000)
insert into r1 (kind, args, unique_key)
select 'bench', args, sha256(convert_to('bench' || args::text, 'UTF8'))
  from (select jsonb_build_object('user_id', :n::bigint, 'template', 'welcome') as args) as new
on conflict (unique_key) do nothing returning id;
SQL
}

# 1000 keys that are all there.
case_duplicates() {
  TITLE="unique insert, all duplicates / R1" JOBS_EACH=1
  sql -c "select count(*) from jobs.insert_batch('dup', array(select jsonb_build_object('user_id', n) from generate_series(1, 1000) n), '{\"by_args\": true}')" \
    -c "insert into r1 (kind, args, unique_key) select 'dup', args, sha256(convert_to('dup' || args::text, 'UTF8'))
          from (select jsonb_build_object('user_id', n) as args from generate_series(1, 1000) n) as new" >/dev/null
  ours <<'SQL'
\set n random(1, 1000)
select id from jobs.insert('dup', jsonb_build_object('user_id', :n::bigint), '{"by_args": true}');
SQL
  yardstick <<'SQL'
\set n random(1, 1000)
insert into r1 (kind, args, unique_key)
select 'dup', args, sha256(convert_to('dup' || args::text, 'UTF8')) from (select jsonb_build_object('user_id', :n::bigint) as args) as new
on conflict (unique_key) do nothing returning id;
SQL
}

case_batch() {
  TITLE="insert_batch of 10,000 unique / R1 as INSERT .. SELECT unnest" JOBS_EACH=10000
  ours <<'SQL'
\set n random(1, 9000000000000)
select count(*) from jobs.insert_batch('bench', array(select jsonb_build_object('user_id', :n::bigint * 10000 + i) from generate_series(1, 10000) i), '{"by_args": true}');
SQL
  yardstick <<'SQL'
\set n random(1, 9000000000000)
insert into r1 (kind, args, unique_key)
select 'bench', args, sha256(convert_to('bench' || args::text, 'UTF8'))
  from unnest(array(select jsonb_build_object('user_id', :n::bigint * 10000 + i) from generate_series(1, 10000) i)) args
on conflict (unique_key) do nothing;
SQL
}

case_work100() { work 100 "$JOBS"; }
case_work10() { work 10 $((JOBS / 2)); }
case_work1() { work 1 $((JOBS / 8)); }

work() { # BATCH JOBS
  TITLE="fetch and complete, batches of $1 / R2" JOBS_EACH=$1 FILL=$2
  ours <<SQL
select array_agg(id) as ids, array_agg(token) as tokens from jobs.fetch('bench', $1) \gset
select count(*) from jobs.complete_many(:ids::bigint[], :tokens::bigint[]);
SQL
  yardstick <<SQL
select array_agg(id) as ids from r2_fetch('bench', $1) \gset
select r2_complete(:ids::bigint[]);
SQL
}

ours() { cat >"$WORK/ours.sql"; }
yardstick() { cat >"$WORK/yardstick.sql"; }

# --- measuring --------------------------------------------------------------------------------------------------------------

# What a round of a case that works needs: as many jobs as it takes.
fill() { # ours|yardstick
  [[ $FILL ]] || return 0
  if [[ $1 == ours ]]; then
    sql -c "select count(*) from jobs.insert_batch('bench', array_fill('{\"user_id\": 42, \"template\": \"welcome\"}'::jsonb, array[$FILL]), queue => 'bench')" >/dev/null
  else
    sql -c "insert into r2 (kind, queue, args) select 'bench', 'bench', '{\"user_id\": 42, \"template\": \"welcome\"}' from generate_series(1, $FILL)"
  fi
}

# Prints jobs per second and bytes of WAL per job.
measure() { # ours|yardstick
  local length=(-T "$SECONDS_EACH") before after
  fill "$1"
  [[ ! $FILL ]] || length=(-t $((FILL / JOBS_EACH / CLIENTS)))
  before=$(sql -c "select pg_current_wal_insert_lsn()")
  pgbench -n -M prepared -c "$CLIENTS" -j "$THREADS" "${length[@]}" -f "$WORK/$1.sql" >"$WORK/out" 2>&1 ||
    { cat "$WORK/out" >&2; exit 1; }
  if grep -q 'ERROR\|aborted' "$WORK/out"; then cat "$WORK/out" >&2; exit 1; fi
  after=$(sql -c "select pg_current_wal_insert_lsn() - '$before'::pg_lsn")
  awk -v each="$JOBS_EACH" -v wal="$after" '
    /^number of transactions actually processed/ { split($6, n, "/"); done = n[1] }
    /^tps =/ { printf "%.0f %.0f\n", $3 * each, wal / (done * each) }' "$WORK/out"
}

run_case() { # NAME
  local round a b
  FILL=
  "case_$1"
  echo "$TITLE"
  measure ours >/dev/null # once without counting: plans, caches, the first WAL files
  measure yardstick >/dev/null
  : >"$WORK/rounds"
  for round in $(seq "$ROUNDS"); do
    # The one that goes first changes, so that neither always runs after the other's checkpoint.
    if ((round % 2)); then a=$(measure ours) b=$(measure yardstick); else b=$(measure yardstick) a=$(measure ours); fi
    echo "$a $b" >>"$WORK/rounds"
  done
  awk '
    { rate[NR] = $1 / $3; wal[NR] = $2 / $4; a += $1; b += $3; wa += $2; wb += $4 }
    function sorted(v, n,   i, j, t) { for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t } }
    function median(v, n) { return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2 }
    END { sorted(rate, NR); sorted(wal, NR)
          printf "  jobs/s  %10.0f against %10.0f   ratio: median %.3f (%.3f to %.3f)\n", a / NR, b / NR, median(rate, NR), rate[1], rate[NR]
          printf "  WAL/job %10.0f against %10.0f   ratio: median %.3f\n\n", wa / NR, wb / NR, median(wal, NR) }' "$WORK/rounds"
}

plans_and_sizes() {
  echo "plans of the yardsticks:"
  sql -c "explain (costs off) insert into r1 (kind, args, unique_key) values ('bench', '{}', '\\x00') on conflict (unique_key) do nothing returning id" \
    -c "explain (costs off) select a.id from r2 a where a.queue = 'bench' and a.state = 'available' order by a.priority, a.id limit 100 for update skip locked"
  echo
  echo "sizes at the end:"
  psql -X -P footer=off -c "
    select c.oid::regclass as table, s.n_live_tup as rows, s.n_dead_tup as dead, pg_size_pretty(pg_table_size(c.oid)) as table_size,
           pg_size_pretty(pg_indexes_size(c.oid)) as index_size
      from pg_class c join pg_stat_user_tables s on s.relid = c.oid
     where s.n_live_tup + s.n_dead_tup > 0 order by 1::text"
}

prepare
describe
for name in "${@:-${CASES[@]}}"; do
  declare -F "case_$name" >/dev/null || { echo "there is no case $name; there are: ${CASES[*]}" >&2; exit 1; }
  run_case "$name"
done
plans_and_sizes
