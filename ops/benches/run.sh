#!/usr/bin/env bash
# What jobs does, against what the same server does without it (yardsticks.sql) and against itself
# under worse conditions: ratios within one run, in turns, so that what the machine does meanwhile
# hits both. It judges nothing.
#
# Run by ./dev bench, which starts a fresh server, sets PGHOST and PGPORT, and says by PAGE whether
# the results go into docs/performance.md and .tsv. SCALE=20 is a twentieth of the time and the
# jobs, for looking whether it works. AGAINST is another commit, whose server has the port
# AGAINST_PORT. JOBS is how many the console is looked at with, BROWSER the directory of the driver
# of one. The cases are in cases.sh.
set -euo pipefail
shopt -s inherit_errexit

SCALE=${SCALE:-1}
[[ ! ${PAGE:-} || $SCALE == 1 ]] || { echo "the page has results of full scale only: SCALE=1" >&2; exit 1; }
ROUNDS=5
# Of what runs for a time: the shorter the turns, the more alike is what the machine does meanwhile.
TURNS=$((ROUNDS * 3))
# Of what is compared with itself, or with the clock.
RUNS=3
SECONDS_EACH=2
CLIENTS=8
THREADS=2
((SCALE == 1)) || { ROUNDS=3 TURNS=3 RUNS=1; }
export PGDATABASE=bench PGOPTIONS="-c client_min_messages=warning"

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$HERE/../scripts/machine.sh"
WORK=$(mktemp -d)
RESULTS=$WORK/results
mkdir "$RESULTS"
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$WORK"' EXIT

sql() { psql -X -q -At -v ON_ERROR_STOP=1 "$@"; }
say() { printf '%s\n' "$*"; }

# An empty database with the extension and the yardsticks: those that are frozen, and R2 tuned.
renew() {
  PGDATABASE=postgres sql -c "drop database if exists $PGDATABASE (force)" -c "create database $PGDATABASE"
  sql -c "create extension jobs" -f "$HERE/yardsticks.sql" -f "$HERE/r2_tuned.sql"
}

describe() {
  say "jobs: $(sql -c "select extversion from pg_extension where extname = 'jobs'"), commit $(commit_of "$HERE")"
  machine_line
  say "server: $(sql -c "select version() || case current_setting('debug_assertions') when 'on' then ', with assertions' else '' end")"
  say "settings: $(sql -c "select string_agg(name || '=' || current_setting(name), ', ' order by name) from pg_settings
    where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'shared_buffers', 'max_wal_size', 'shared_preload_libraries', 'wal_compression')")"
  say "load: $CLIENTS clients, $THREADS pgbench threads, -M prepared, in turns: $TURNS rounds, mostly of $SECONDS_EACH s each, $ROUNDS of fetching and completing, $RUNS runs of what is compared with itself or with the clock; scale 1/$SCALE"
}

# --- running --------------------------------------------------------------------------------------

# Runs a script of pgbench; transactions per second. CLIENTS and THREADS count.
load() { # SCRIPT PGBENCH-OPTION..
  local script=$1
  shift
  pgbench -n -M "${PROTOCOL:-prepared}" -c "$CLIENTS" -j "$THREADS" "$@" -f "$script" >"$WORK/out" 2>"$WORK/err" || { cat "$WORK/out" "$WORK/err" >&2; exit 1; }
  if grep -q 'ERROR\|aborted' "$WORK/out" "$WORK/err"; then cat "$WORK/out" "$WORK/err" >&2; exit 1; fi
  awk '/^tps =/ { print $3 }' "$WORK/out"
}

# Jobs per second and bytes of WAL per job of what runs: EACH is how many jobs a transaction has.
measure() { # ours|yardstick
  local length=(-T "$SECONDS_EACH") before tps after
  "fill_$1"
  [[ ! $FILL ]] || length=(-t $((FILL / EACH / CLIENTS)))
  before=$(sql -c "select pg_current_wal_insert_lsn()")
  tps=$(load "$WORK/$1.sql" "${length[@]}")
  after=$(sql -c "select pg_current_wal_insert_lsn() - '$before'::pg_lsn")
  awk -v each="$EACH" -v wal="$after" -v tps="$tps" '
    /^number of transactions actually processed/ { split($6, n, "/"); printf "%.0f %.0f\n", tps * each, wal / (n[1] * each) }' "$WORK/out"
}

fill_ours() { [[ ! $FILL ]] || sql -c "select count(*) from jobs.insert_batch('bench', array_fill('{\"user_id\": 42, \"template\": \"welcome\"}'::jsonb, array[$FILL]), queue => 'bench')" >/dev/null; }
fill_yardstick() { # without R2 the other side is of jobs, too
  if [[ ! $R2 ]]; then
    fill_ours
  elif [[ $FILL ]]; then
    sql -c "insert into $R2 (kind, queue, args) select 'bench', 'bench', '{\"user_id\": 42, \"template\": \"welcome\"}' from generate_series(1, $FILL)"
  fi
}

# What runs in each transaction, ours and the other.
ours() { cat >"$WORK/ours.sql"; }
yardstick() { cat >"$WORK/yardstick.sql"; }

# Rounds of both in turns, the one that goes first changing; lines "a b" of what `$2 ours` and
# `$2 yardstick` print.
in_turns() { # ROUNDS FUNCTION
  local round a b
  for round in $(seq "$1"); do
    if ((round % 2)); then a=$("$2" ours); fi
    b=$("$2" yardstick)
    if ((round % 2 == 0)); then a=$("$2" ours); fi
    say "$a $b"
  done
}

# Compares both by jobs per second, and by WAL if it has an aim: all of it, and without the images
# of pages, of which there are more or fewer as checkpoints fall.
compare() { # TITLE AIM [WAL-AIM]
  measure ours >/dev/null # once without counting: plans, caches, the first WAL files
  measure yardstick >/dev/null
  in_turns "$([[ $FILL ]] && echo "$ROUNDS" || echo "$TURNS")" measure >"$WORK/rounds"
  awk '{ print $1, $3 }' "$WORK/rounds" | ratio "$1" "$2" jobs/s
  [[ ${3:-} ]] || return 0
  awk '{ print $2, $4 }' "$WORK/rounds" | ratio "- WAL a job" "$3" bytes
  images_of_pages off
  in_turns "$RUNS" measure | awk '{ print $2, $4 }' | ratio "- WAL a job, without images of pages" "-" bytes
  images_of_pages on
}

images_of_pages() { # on|off
  sql -c "alter system set full_page_writes = $1" -c "select pg_reload_conf()" -c checkpoint >/dev/null
}

SORTING='function sorted(v, n,   i, j, t) { for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t } }
  function median(v, n) { return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2 }'

# Reads rounds "ours other"; prints and keeps the ratio.
ratio() { # TITLE AIM UNIT
  awk -v title="$1" -v aim="$2" -v unit="$3" -v OFS='\t' "$SORTING"'
    { r[NR] = $1 / $2; a[NR] = $1; b[NR] = $2 }
    END { sorted(r, NR); sorted(a, NR); sorted(b, NR)
          print title, aim, sprintf("%.3f", median(r, NR)), sprintf("%.3f to %.3f", r[1], r[NR]), sprintf("%.0f %s against %.0f", median(a, NR), unit, median(b, NR)) }' | keep
}

# Reads a figure a round; prints and keeps the median.
middle() { # TITLE AIM OF-WHAT
  awk -v title="$1" -v aim="$2" -v of="$3" -v OFS='\t' "$SORTING"'
    { v[NR] = $1 }
    END { sorted(v, NR); print title, aim, sprintf("%.1f", median(v, NR)), sprintf("%.1f to %.1f", v[1], v[NR]), of }' | keep
}

# A result: title, aim, figure, spread, what it is of; separated by tabs. It is kept with its case.
keep() { sed "s/^/$NAME\t/" | tee -a "$RESULTS/table" | awk -F '\t' '{ printf "%-60s %8s (%s)   at least/most %s   %s\n", $2, $4, $5, $3, $6 }'; }
result() { local IFS=$'\t'; say "$*" | keep; }

scaled() { echo $(($1 / SCALE > 0 ? $1 / SCALE : 1)); }

# Another session with an old snapshot, until release.
hold_snapshot() {
  sql >/dev/null 2>&1 <<'SQL' &
begin isolation level repeatable read;
select 1;
select pg_sleep(100000);
SQL
  HOLDER=$!
  sleep 1
}
release_snapshot() {
  sql -c "select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep(100000)%' and pid <> pg_backend_pid()" >/dev/null
  wait "$HOLDER" 2>/dev/null || true
}

# Of what R1 is in a case, and of R2's functions.
plans() {
  say "plans of the yardsticks:"
  sql -c "explain (costs off) insert into r1 (kind, args, unique_key) values ('bench', '{}', '\\x00') on conflict (unique_key) do nothing returning id"
  sql <<'SQL'
select 'explain (costs off) ' || replace(replace(replace(prosrc, 'in_queue', '''bench'''), 'most', '100'), '(ids)', '(''{1,2}'')')
  from pg_proc where proname in ('r2_fetch', 'r2_complete') order by proname desc \gexec
SQL
}

sizes() {
  psql -X -P footer=off -c "
    select c.oid::regclass as table, s.n_live_tup as rows, s.n_dead_tup as dead, pg_size_pretty(pg_table_size(c.oid)) as table_size,
           pg_size_pretty(pg_indexes_size(c.oid)) as index_size
      from pg_class c join pg_stat_user_tables s on s.relid = c.oid
     where s.n_live_tup + s.n_dead_tup > 0 order by 1::text"
}

. "$HERE/cases.sh"

renew
describe | tee "$RESULTS/machine"
say ""
echo "${CASES[*]}" >"$RESULTS/cases"
cases=("$@")
[[ $# -gt 0 ]] || cases=("${CASES[@]}")
for NAME in "${cases[@]}"; do
  declare -F "case_$NAME" >/dev/null || { say "there is no case $NAME; there are: ${CASES[*]}" >&2; exit 1; }
  [[ ! $NAME =~ ^(before|instructions)$ || ${AGAINST:-} ]] || { say "$NAME: not without --against COMMIT"; continue; }
  FILL='' EACH=1 CLIENTS=8 R2=r2
  "case_$NAME"
  say "" && sizes
  echo "$NAME" >>"$RESULTS/measured"
  # After each case, so that what was measured is not lost with what comes after it.
  [[ ! ${PAGE:-} ]] || python3 "$HERE/report.py" "$RESULTS" "$HERE/../../docs"
done
plans
