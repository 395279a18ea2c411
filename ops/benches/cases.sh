# The cases of ./dev bench; run.sh has what they use. Each compares, and keeps a result: title, aim,
# figure, spread, of what.

CASES=(unique duplicates batch work100 work10 work1 yardstick_sizes finish_many before instructions life limits neighbour storm notify wake wait_for forward quiet idle_cells cells prune one_key held held_retries backlog explain peers workers peak memory console)

. "$HERE/workers/case.sh"

UNIQUE_CALL="jobs.insert('bench', jsonb_build_object('user_id', :n::bigint, 'template', 'welcome'), '{\"by_args\": true}')"
UNIQUE_OURS="select id from $UNIQUE_CALL;"
# Without FROM, for which Postgres sets up a scan and a store.
UNIQUE_OURS_ID="select ($UNIQUE_CALL).id;"
UNIQUE_R1="insert into r1 (kind, args, unique_key)
select 'bench', args, sha256(convert_to('bench' || args::text, 'UTF8'))
  from (select jsonb_build_object('user_id', :n::bigint, 'template', 'welcome') as args) as new
on conflict (unique_key) do nothing returning id;"
ANY_KEY='\set n random(1, 9000000000000000000)' # new with all but certainty
SOME_KEY='\set n random(1, 1000)'

case_unique() {
  local TURNS=$((4 * TURNS)) SECONDS_EACH=1 # it is near what is wanted
  printf '%s\n' "$ANY_KEY" "$UNIQUE_OURS" | ours
  printf '%s\n' "$ANY_KEY" "$UNIQUE_R1" | yardstick
  compare "unique insert, distinct keys, in FROM, against R1" ">= 0.90"
  printf '%s\n' "$ANY_KEY" "$UNIQUE_OURS_ID" | ours
  compare "the same as SELECT (jobs.insert(..)).id, without FROM" ">= 0.95"
}

case_duplicates() {
  sql -c "select count(*) from jobs.insert_batch('bench', array(select jsonb_build_object('user_id', n, 'template', 'welcome') from generate_series(1, 1000) n), '{\"by_args\": true}')" \
    -c "insert into r1 (kind, args, unique_key) select 'bench', args, sha256(convert_to('bench' || args::text, 'UTF8'))
          from (select jsonb_build_object('user_id', n, 'template', 'welcome') as args from generate_series(1, 1000) n) as new" >/dev/null
  printf '%s\n' "$SOME_KEY" "$UNIQUE_OURS" | ours
  printf '%s\n' "$SOME_KEY" "$UNIQUE_R1" | yardstick
  compare "unique insert, all duplicates, against R1" ">= 1.0"
  result "unique insert, all duplicates: WAL each" "0" "$(awk '{ s += $2 } END { printf "%.1f", s / NR }' "$WORK/rounds")" "R1 $(awk '{ s += $4 } END { printf "%.1f", s / NR }' "$WORK/rounds")" "bytes"
}

case_batch() {
  local SECONDS_EACH=$((2 * SECONDS_EACH)) # else it is but a few transactions
  EACH=10000
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
  compare "insert_batch of 10,000 unique, against R1 as INSERT .. SELECT unnest" ">= 0.9"
}

work() { # BATCH JOBS AIM
  EACH=$1 FILL=$(scaled "$2")
  fetch_and_complete bench "$1" | ours
  for R2 in r2 r2_tuned; do
    yardstick <<SQL
select coalesce(array_agg(id), '{}') as ids from ${R2}_fetch('bench', $1) \gset
select ${R2}_complete(:ids::bigint[]);
SQL
    if [[ $R2 == r2 ]]; then
      compare "fetch + complete, batches of $1, against R2" "$3" "<= 0.5"
    else
      compare "the same, batches of $1, against R2 tuned" - -
    fi
  done
}
case_work100() { work 100 160000 ">= 2.2"; }
case_work10() { work 10 80000 ">= 1.6"; }
case_work1() { work 1 20000 ">= 1.2"; }

# Calls that finish a hundred jobs, without the fetch, which puts together what is said of them. It
# does so for both, whatever they take of it.
case_finish_many() {
  local n
  n=$(scaled 32000)
  finishing() { # ours|yardstick: calls a second of a session
    sql -c "select count(*) from jobs.insert_batch('bench', array_fill('{\"user_id\": 42}'::jsonb, array[$n]), queue => 'finish')" >/dev/null
    load "$WORK/$1.sql" -t $((n / 100 / CLIENTS)) -r >/dev/null
    awk 'END { print 1000 / $1 }' "$WORK/out"
  }
  against() { # TITLE AIM RESULT-OF-A-JOB CALL OTHER-CALL
    local fetch
    fetch="select coalesce(array_agg(id), '{}') as ids, coalesce(array_agg(token), '{}') as tokens,
       coalesce(array_agg(result -> 'output'), '{}') as outputs, coalesce(jsonb_agg(jsonb_build_object('id', id, 'token', token) || result), '[]') as results
       from (select id, token, $3 as result from jobs.fetch('finish', 100)) as fetched \\gset"
    renew
    printf '%s\n' "$fetch" "select count(*) from jobs.$4;" | ours
    printf '%s\n' "$fetch" "select count(*) from jobs.$5;" | yardstick
    finishing ours >/dev/null
    finishing yardstick >/dev/null
    in_turns "$TURNS" finishing | ratio "$1" "$2" "calls/s"
  }
  local finish="finish_many(:results::jsonb)" complete="complete_many(:ids::bigint[], :tokens::bigint[])" outputs="complete_many(:ids::bigint[], :tokens::bigint[], :outputs::jsonb[])"
  local plain="'{\"do\": \"complete\"}'::jsonb" large="jsonb_build_object('do', 'complete', 'output', repeat('x', 1000))"
  # Of twenty jobs 16 are completed, two fail, one is snoozed and one released.
  local mixed="case when id % 20 < 16 then $large when id % 20 < 18 then '{\"do\": \"fail\", \"error\": \"no route to host\"}' when id % 20 < 19 then '{\"do\": \"snooze\", \"delay\": 3600}' else '{\"do\": \"release\"}' end"
  against "finish_many, 100 completed, against complete_many" ">= 0.9" "$plain" "$finish" "$complete"
  against "finish_many, 100 mixed results, outputs of 1 kB, against complete_many with these" ">= 0.9" "$mixed" "$finish" "$outputs"
  against "finish_many, 100 completed with outputs of 1 kB, against complete_many with them" "-" "$large" "$finish" "$outputs"
  against "complete_many with outputs of 1 kB, against without" "-" "$large" "$outputs" "$complete"
}

# What this commit and another one are compared by. FUNCTION is called with a title, the jobs that a
# call is of, and a number of calls. The statement comes in; $1 in that is the number of the call.
calls_compared() { # FUNCTION
  local insert="jobs.insert('bench', '{\"user_id\": 42, \"template\": \"welcome\"}'"
  "$1" "insert" 1 400 <<<"select id from $insert)"
  "$1" "unique insert, distinct keys" 1 400 <<<"select id from jobs.insert('bench', jsonb_build_object('user_id', \$1), '{\"by_args\": true}')"
  "$1" "insert_batch of 100" 100 20 <<<"select count(*) from jobs.insert_batch('bench', array_fill('{\"user_id\": 42, \"template\": \"welcome\"}'::jsonb, array[100]))"
  "$1" "fetch + complete, batches of 100" 100 40 <<<"with f as materialized (select id, token from jobs.fetch('bench', 100)) select count(*) from jobs.complete_many(array(select id from f), array(select token from f))"
  "$1" "fetch + complete, batches of 10" 10 100 <<<"with f as materialized (select id, token from jobs.fetch('bench', 10)) select count(*) from jobs.complete_many(array(select id from f), array(select token from f))"
  "$1" "fetch + complete, batches of 1" 1 400 <<<"select jobs.complete(id, token) from jobs.fetch('bench', 1)"
}

# Calls on two servers, of this commit and of another one: what is new since and not used is to cost
# nothing. What counts is the processor time of a session's backend; turns.py has how it is told.
# Each round has both servers anew, since one start of a server can be some percent faster than the
# next. Without waiting for the disk and without images of pages, which would hide the rest.
case_before() {
  local port round PGOPTIONS="$PGOPTIONS -c synchronous_commit=off"
  for port in "$PGPORT" "$AGAINST_PORT"; do
    PGPORT=$port renew
    PGPORT=$port PGDATABASE=postgres images_of_pages off
  done
  mkdir "$WORK/calls"
  one_round() { # TITLE JOBS-EACH CALLS
    [[ $1 != fetch* ]] || for port in "$PGPORT" "$AGAINST_PORT"; do PGPORT=$port FILL=$(($2 * $3 * 11)) fill_ours; done
    python3 "$HERE/turns.py" "$AGAINST_PORT" "$PGPORT" $(($3 / 4)) >>"$WORK/calls/$1"
  }
  for ((round = 0; round < TURNS; round++)); do
    restart_server "$PGPORT"
    restart_server "$AGAINST_PORT"
    calls_compared one_round
  done
  both() { ratio "$1: commit $AGAINST against this" ">= 0.98" "ns a call" <"$WORK/calls/$1"; }
  calls_compared both
  for port in "$PGPORT" "$AGAINST_PORT"; do PGPORT=$port PGDATABASE=postgres images_of_pages on; done
}

# The calls of `before` by the instructions that they take, which do not depend on the machine's
# mood: in a server of one process, under valgrind. What sessions do to each other is not in it, nor
# what the disk does.
case_instructions() {
  local ours against
  ours=$(one_process "$PGPORT")
  against=$(one_process "$AGAINST_PORT")
  # Of a job, once plans and caches are there. The statement comes in; $1 in it is the number of the
  # call.
  counted() { # HOME JOBS-EACH CALLS
    local statement few many
    statement=$(cat)
    few=$(instructions "$1" 20 <<<"$statement")
    many=$(instructions "$1" $((20 + $3)) <<<"$statement")
    echo $(((many - few) / ($2 * $3)))
  }
  both() {
    local statement
    statement=$(cat)
    echo "$(counted "$against" "$2" "$3" <<<"$statement") $(counted "$ours" "$2" "$3" <<<"$statement")" |
      ratio "$1: commit $AGAINST against this" ">= 0.98" "instructions a job"
  }
  calls_compared both
}

restart_server() { # PORT
  local bin data
  bin=$(PGPORT=$1 PGDATABASE=postgres sql -c "select setting from pg_config where name = 'BINDIR'")
  data=$(PGPORT=$1 PGDATABASE=postgres sql -c "show data_directory")
  as_owner "$bin/pg_ctl" -D "$data" -l "$data/server.log" -m fast -s -w restart
}

# A data directory for that, beside which its server's programs are: the directory of both.
one_process() { # PORT
  local home=$WORK/one.$1
  chmod a+x "$WORK"
  mkdir -m 777 "$home"
  ln -s "$(PGPORT=$1 PGDATABASE=postgres sql -c "select setting from pg_config where name = 'BINDIR'")" "$home/bin"
  {
    as_owner "$home/bin/initdb" -D "$home/data" -E UTF8 --locale=C
    printf '%s\n' "shared_preload_libraries = jobs" "jobs.enabled = off" "fsync = off" "autovacuum = off" "jit = off" |
      as_owner tee -a "$home/data/postgresql.conf"
    for ((i = 0; i < 100; i++)); do echo "select count(*) from jobs.insert_batch('bench', array_fill('{}'::jsonb, array[100]), queue => 'bench')"; done |
      cat <(echo "create extension jobs") - | as_owner "$home/bin/postgres" --single -D "$home/data" postgres
  } >"$home.log" 2>&1 || { cat "$home.log" >&2; exit 1; }
  echo "$home"
}

# A server does not run as root.
as_owner() {
  if [[ $EUID == 0 ]]; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}

# How many it takes to call this so often, on a copy of the jobs.
instructions() { # HOME TIMES
  local n copy=$1/copy count
  as_owner rm -rf "$copy"
  as_owner cp -r "$1/data" "$copy"
  { echo "prepare call(bigint) as $(cat)" && for ((n = 1; n <= $2; n++)); do echo "execute call($n)"; done; } |
    as_owner valgrind --tool=callgrind --callgrind-out-file=/dev/null "$1/bin/postgres" --single -D "$copy" postgres >"$1/out" 2>"$1/err"
  count=$(sed -n 's/.*Collected : *//p' "$1/err")
  if grep -q ERROR "$1/err" || [[ ! $count ]]; then cat "$1/err" >&2; exit 1; fi
  echo "$count"
}

# Jobs from their insertion to their end, in batches of 100, and then all of them pruned, by one
# session each time.
case_life() {
  local n
  n=$(scaled 200000)
  renew
  sql -c "alter system set jobs.enabled = off" -c "alter system set jobs.retention_completed = 0" -c "select pg_reload_conf()" >/dev/null
  printf '%s\n' '\set n random(1, 9000000000000)' \
    "select count(*) from jobs.insert_batch('bench', array(select jsonb_build_object('user_id', :n::bigint * 100 + i) from generate_series(1, 100) i), '{\"by_args\": true}', queue => 'life');" \
    "$(fetch_and_complete life 100)" | ours
  printf '%s\n' '\set n random(1, 9000000000000)' \
    "insert into r2 (kind, queue, args, unique_key) select 'bench', 'life', args, sha256(convert_to('bench' || args::text, 'UTF8')) from unnest(array(select jsonb_build_object('user_id', :n::bigint * 100 + i) from generate_series(1, 100) i)) args on conflict (unique_key) where unique_key is not null do nothing;" \
    "select coalesce(array_agg(id), '{}') as ids from r2_fetch('life', 100) \\gset" \
    "select r2_complete(:ids::bigint[]);" | yardstick
  live() { # ours|yardstick
    local begun now
    begun=$(date +%s.%N)
    load "$WORK/$1.sql" -t $((n / 100 / CLIENTS)) >/dev/null
    # Who fetches a hundred beside others may get fewer, on both sides: what is left is worked off
    # before all is pruned.
    if [[ $1 == ours ]]; then
      sql -c "with f as materialized (select id, token from jobs.fetch('life', 10000)) select count(*) from jobs.complete_many(array(select id from f), array(select token from f))" >/dev/null
      prune_all
    else
      sql -c "select r2_complete(array(select id from r2_fetch('life', 10000)))" -c "delete from r2 where state = 'completed'" >/dev/null
    fi
    now=$(date +%s.%N)
    [[ $1 != ours ]] || are_empty job finished unique_claim
    awk -v n="$n" -v begun="$begun" -v now="$now" 'BEGIN { printf "%.0f\n", n / (now - begun) }'
  }
  live ours >/dev/null
  live yardstick >/dev/null
  in_turns "$TURNS" live | ratio "the whole life: insert unique, fetch, complete, prune, against R2 with DELETE" ">= 1.9" jobs/s
  sql -c "alter system reset jobs.enabled" -c "alter system reset jobs.retention_completed" -c "select pg_reload_conf()" >/dev/null
}

# One call works until nothing is left; whether nothing was is looked at when the clock has stopped.
prune_all() { [[ $(sql -c "select count(error) from jobs.maintain()") == 0 ]]; }
are_empty() { # TABLE..
  local table
  for table; do
    [[ $(sql -c "select exists (select from jobs.$table)") == f ]] || { say "not all was pruned: $table" >&2; exit 1; }
  done
}

# For the page: what it looks like after the cases of inserting and working.
case_yardstick_sizes() {
  {
    plans
    say ""
    say "sizes after the cases of inserting and working:"
    sizes
  } >"$RESULTS/plans"
}

# R3: other queues from their own packages, through the driver that their users use, and so do we.
PEERS=(pg-boss@10.3.2 graphile-worker@0.17.3 pg@8.16.3) # the newest that run with Node 20
PGMQ=pgmq==1.1.4                                        # a Python package that has the SQL
case_peers() {
  local modules=${XDG_CACHE_HOME:-$HOME/.cache}/jobs-dev/peers name
  mkdir -p "$modules"
  [[ -f $modules/package.json ]] || echo '{"private": true}' >"$modules/package.json"
  if ! (cd "$modules" && npm install --no-audit --no-fund "${PEERS[@]}" >"$WORK/out" 2>&1); then
    result "other queues (R3)" "-" "skipped" "npm install ${PEERS[*]}" "$(tail -n 1 "$WORK/out")"
    return
  fi
  if ! python3 -m pip download -q --no-deps --ignore-requires-python -d "$modules" "$PGMQ" >"$WORK/out" 2>&1; then
    result "pgmq (R3)" "-" "skipped" "pip download $PGMQ" "$(tail -n 1 "$WORK/out")"
    return
  fi
  python3 -m zipfile -e "$modules"/pgmq-*.whl "$WORK/pgmq"
  renew
  sql -f "$WORK/pgmq/pgmq/sql/pgmq.sql"
  node "$HERE/peers.mjs" "$modules" "$((2 * SECONDS_EACH))" "$(scaled 50000)" 3 >"$WORK/peers"
  cut -f 1 "$WORK/peers" | awk '!seen[$0]++' | while read -r name; do
    awk -F '\t' -v name="$name" '$1 == name { print $2, $3 }' "$WORK/peers" | ratio "$name" "-" jobs/s
  done
  renew
}

# Insert, fetch and complete where many jobs wait already, against another database where few do.
case_backlog() {
  local many few=10000
  many=$(scaled 10000000)
  renew
  wait_in "$many"
  PGDATABASE=bench_few renew
  PGDATABASE=bench_few wait_in "$few"
  cycle backlog 10 >"$WORK/backlog.sql"
  beside() { # ours|yardstick
    local -x PGDATABASE=$PGDATABASE
    [[ $1 == ours ]] || PGDATABASE=bench_few
    load "$WORK/backlog.sql" -T "$SECONDS_EACH" | awk '{ print $1 * 10 }'
  }
  beside ours >/dev/null
  beside yardstick >/dev/null
  in_turns "$TURNS" beside | ratio "insert, fetch and complete with $many jobs waiting, against $few" ">= 0.9" jobs/s
  PGDATABASE=postgres sql -c "drop database bench_few (force)"
}

# Why a job of many that wait does not run.
case_explain() {
  local many place id run
  many=$(scaled 10000000)
  renew
  wait_in "$many"
  # A session works on them, so that it is for those in front that one waits.
  sql -c "select count(*) from jobs.fetch('backlog')" >/dev/null
  for place in "first 2" "middle $((many / 2))" "last $many"; do
    read -r place id <<<"$place"
    echo "select count(*) from jobs.explain($id);" >"$WORK/explain.sql"
    for ((run = 0; run < RUNS; run++)); do
      CLIENTS=1 THREADS=1 load "$WORK/explain.sql" -T "$SECONDS_EACH" | awk '{ print 1000 / $1 }'
    done | middle "jobs.explain of the $place of $many jobs waiting" "< 5 ms" "ms"
  done
}

# Fills the queue that the cycles work on.
wait_in() { # JOBS
  local left=$1 n
  while ((left > 0)); do
    n=$((left < 100000 ? left : 100000))
    sql -c "select count(*) from jobs.insert_batch('bench', array_fill('{\"user_id\": 42}'::jsonb, array[$n]), queue => 'backlog')" >/dev/null
    left=$((left - n))
  done
  sql -c "vacuum analyze" -c checkpoint
}

# A transaction that inserts, one that fetches and one that completes as many jobs.
cycle() { # QUEUE JOBS
  say "select count(*) from jobs.insert_batch('bench', array_fill('{\"user_id\": 42}'::jsonb, array[$2]), queue => '$1');"
  fetch_and_complete "$1" "$2"
}

# The latter two.
fetch_and_complete() { # QUEUE JOBS [WORKER]
  say "select coalesce(array_agg(id), '{}') as ids, coalesce(array_agg(token), '{}') as tokens from jobs.fetch('$1', $2${3:+, '$3'}) \\gset"
  say "select count(*) from jobs.complete_many(:ids::bigint[], :tokens::bigint[]);"
}

# A queue under limits by key against one that no limit covers, insert, fetch and complete in turn.
case_limits() {
  local queue
  limited() { # KEYS JOBS TITLE [inserts]
    EACH=$2
    for queue in limited bench; do
      {
        echo "\\set t random(1, $1)"
        echo "select count(*) from jobs.insert_batch('bench', array(select jsonb_build_object('t', :t::bigint + i) from generate_series(1, $2) i), queue => '$queue');"
        [[ ${4:-} ]] || fetch_and_complete "$queue" "$2"
      } >"$WORK/$([[ $queue == limited ]] && echo ours || echo yardstick).sql"
    done
    compare "$3, against none" ">= 0.80" -
  }
  leave_none() { until [[ $(sql -c "select jobs.cancel_many('limited') + jobs.cancel_many('bench')") == 0 ]]; do :; done; }
  sql -c "select jobs.define_limit('tenant', '{\"by_args\": [\"t\"]}', '{limited}', concurrency => 2)" >/dev/null
  limited 1000000000 1 "one limit, a job a key, inserts one by one" inserts
  limited 1000000000 100 "one limit, a job a key, inserts in batches of 100" inserts
  leave_none
  limited 10 1 "one limit, 10 keys, one by one"
  limited 10000 1 "one limit, 10,000 keys, one by one"
  limited 1000000000 1 "one limit, a job a key, one by one"
  limited 10000 10 "one limit, 10,000 keys, batches of 10"
  limited 10000 100 "one limit, 10,000 keys, batches of 100"
  sql -c "select jobs.pause_limit('tenant', '\"held\"')" \
    -c "select count(*) from jobs.insert_batch('bench', array_fill('{\"t\": \"held\"}'::jsonb, array[$(scaled 1000000)]), queue => 'limited')" >/dev/null
  limited 10000 1 "one by one, with a million held jobs of a saturated key"
  hold_snapshot
  limited 10000 1 "the same under a held snapshot"
  release_snapshot
  sql -c "select jobs.define_limit('kinds', '{\"by_kind\": true}', '{limited}', concurrency => 100)" \
    -c "select jobs.define_limit('total', queues => '{limited}', concurrency => 200)" >/dev/null
  limited 10000 1 "three limits, 10,000 keys, one by one"
  sql -c "select jobs.drop_limit(name) from jobs.limits" >/dev/null
  leave_none
  local order
  for order in strict fair; do
    sql -c "select jobs.order_queue('limited', '{\"by_args\": [\"t\"]}', $order => true)" >/dev/null
    limited 10 1 "$order order, 10 keys, one by one"
    limited 10000 1 "$order order, 10,000 keys, one by one"
    limited 10000 10 "$order order, 10,000 keys, batches of 10"
    limited 10000 100 "$order order, 10,000 keys, batches of 100"
  done
}

# How long jobs of 100 tenants wait while one more inserts nine tenths of all, against a queue
# without an order that only those 100 use; in a fair queue, and in one without an order. Workers
# have room for the others' jobs, but not for all.
case_neighbour() {
  local queue
  sql -c "select jobs.order_queue('fair', '{\"by_args\": [\"t\"]}', fair => true)" \
    -c "create table if not exists waited (queue text, tenant int, ms double precision)" >/dev/null
  waits() { # QUEUE NOISY-JOBS
    sql -c "truncate waited" \
      -c "select count(*) from jobs.insert_batch('bench', array_fill('{\"t\": 0}'::jsonb, array[$2]), queue => '$1')" >/dev/null
    cat >"$WORK/neighbour.sql" <<SQL
\\set t random(1, 100)
select count(*) from jobs.insert('bench', jsonb_build_object('t', :t::int), queue => '$1');
with f as materialized (select id, token, (args->>'t')::int as t, clock_timestamp() - created_at as took from jobs.fetch('$1', 2)),
     c as (select count(*) from jobs.complete_many(array(select id from f), array(select token from f)))
insert into waited select '$1', t, extract(epoch from took) * 1000 from f, c where t > 0;
SQL
    load "$WORK/neighbour.sql" -T "$SECONDS_EACH" >/dev/null
    sql -c "select round(percentile_cont(0.99) within group (order by ms)::numeric, 2) from waited"
    sql -c "select jobs.cancel_many('$1')" >/dev/null
  }
  local idle fair none
  idle=$(waits bench 1) fair=$(waits fair "$(scaled 1000000)") none=$(waits bench "$(scaled 1000000)")
  result "noisy neighbour in a fair queue: p99 of the others' wait" "<= 2 idle" "$fair" "idle $idle, without an order $none" ms
}

# A session listens, so that what is notified has somewhere to go: idle, since a session that is
# busy is sent nothing.
case_notify() {
  local listener TURNS=$((2 * TURNS)) # it is near what is wanted
  echo "select id from jobs.insert('bench', queue => 'notify');" >"$WORK/insert.sql"
  producing() { # ours|yardstick
    if [[ $1 == ours ]]; then sql -c "alter system reset jobs.notify"; else sql -c "alter system set jobs.notify = off"; fi
    sql -c "select pg_reload_conf()" >/dev/null
    sleep 0.2
    load "$WORK/insert.sql" -T "$SECONDS_EACH"
  }
  exec {listener}> >(sql >/dev/null)
  echo "listen jobs;" >&"$listener"
  sleep 0.5
  producing ours >/dev/null
  in_turns "$TURNS" producing | ratio "producers with notifications on, against off" ">= 0.95" inserts/s
  exec {listener}>&-
  sql -c "alter system reset jobs.notify" -c "select pg_reload_conf()" >/dev/null
}

case_storm() {
  CLIENTS=64
  printf '%s\n' "select id from jobs.insert('storm', '{\"user_id\": 1}', '{\"by_args\": true}');" | ours
  printf '%s\n' "$ANY_KEY" "select id from jobs.insert('storm', jsonb_build_object('user_id', :n::bigint), '{\"by_args\": true}');" | yardstick
  compare "64 clients inserting one hot key, against distinct keys" ">= 1.0"
}

# From the call of jobs.insert to the return of the fetch that a wake-up led to: first without
# waiting for the disk, so that it is the way from a commit to its wake-up, then with both sides'
# commits flushed, of which one that is under way makes the other side wait.
case_wake() {
  echo "select id from jobs.insert('bench', queue => 'wake');" >"$WORK/insert.sql"
  cat >"$WORK/wait.sql" <<'SQL'
call jobs.wait('wake', '1 second');
with f as materialized (select id, token, clock_timestamp() - created_at as took from jobs.fetch('wake', 100)),
     c as (select count(*) from jobs.complete_many(array(select id from f), array(select token from f)))
insert into woken select extract(epoch from took) * 1000 from f, c;
SQL
  waking off "commit to wake-up by jobs.wait and fetch, 1,000 inserts/s" "< 3 ms" "< 20 ms"
  waking on "the same with each commit flushed to the disk" - -
}

waking() { # SYNCHRONOUS-COMMIT TITLE AIM-OF-MEDIAN AIM-OF-P99
  local seconds n p50 p99 waiter PGOPTIONS="$PGOPTIONS -c synchronous_commit=$1"
  seconds=$(scaled 40)
  sql -c "create unlogged table if not exists woken (ms double precision)" -c "truncate woken"
  pgbench -n -M simple -c 1 -j 1 -T $((seconds + 2)) -f "$WORK/wait.sql" >/dev/null 2>&1 &
  waiter=$!
  sleep 1
  CLIENTS=4 load "$WORK/insert.sql" -T "$seconds" -R 1000 >/dev/null
  wait "$waiter"
  IFS='|' read -r n p50 p99 <<<"$(sql -c "select count(*), round(percentile_cont(0.5) within group (order by ms)::numeric, 2), round(percentile_cont(0.99) within group (order by ms)::numeric, 2) from woken")"
  result "$2: median" "$3" "$p50" "$n jobs" "ms"
  result "$2: 99th percentile" "$4" "$p99" "$n jobs" "ms"
}

# Sessions that each wait for a job of their own, from the call that completes it to the return of
# jobs.wait_for. As many as the server has room for.
case_wait_for() {
  local room n p50 p99 waiters=1000 seconds rate=50
  local PGOPTIONS="$PGOPTIONS -c synchronous_commit=off"
  room=$(($(sql -c "show max_connections") - 20))
  ((waiters <= room)) || waiters=$room
  seconds=$(scaled 60)
  renew
  sql -c "create unlogged table woken (ms double precision)"
  cat >"$WORK/waiter.sql" <<'SQL'
select id from jobs.insert('bench', queue => 'waiters') \gset
call jobs.wait_for(array[:id], '60 s');
insert into woken select extract(epoch from clock_timestamp() - finalized_at) * 1000 from jobs.results(array[:id]);
SQL
  echo "select jobs.complete(id, token) from jobs.fetch('waiters');" >"$WORK/worker.sql"
  pgbench -n -M simple -c "$waiters" -j "$THREADS" -T $((seconds + 30)) -f "$WORK/waiter.sql" >/dev/null 2>&1 &
  n=$!
  while (($(sql -c "select count(*) from jobs.ready") < waiters)); do
    kill -0 "$n"
    sleep 0.2
  done
  CLIENTS=1 THREADS=1 load "$WORK/worker.sql" -T "$seconds" -R "$rate" >/dev/null
  # The last ones have no session to complete their jobs.
  kill "$n"
  wait "$n" 2>/dev/null || true
  IFS='|' read -r n p50 p99 <<<"$(sql -c "select count(*), round(percentile_cont(0.5) within group (order by ms)::numeric, 2), round(percentile_cont(0.99) within group (order by ms)::numeric, 2) from woken")"
  result "complete to the return of jobs.wait_for, $waiters waiters, $rate jobs/s: median" "-" "$p50" "$n jobs" "ms"
  result "the same: 99th percentile" "< 20 ms" "$p99" "$n jobs" "ms"
}

# pgjobs forward, from an outbox in another database of this server, with commits flushed to the
# disk: how fast it carries over what waits, and from the call of jobs.insert there to the return of
# the fetch here.
case_forward() {
  local i n program forwarder waiter rate seconds p50 p99
  (cd "$HERE/.." && cargo build --quiet --profile quick -p postgres-jobs-cli)
  program=${CARGO_TARGET_DIR:-$HERE/../../target}/quick/pgjobs
  n=$(scaled 20000) seconds=$(scaled 40)
  ((n >= 1000)) || n=1000
  renew
  PGDATABASE=postgres sql -c "drop database if exists outbox (force)" -c "create database outbox"
  PGDATABASE=outbox sql -f "$HERE/../../outbox/outbox.sql"
  local jobs="array_fill('{\"user_id\": 42, \"template\": \"welcome\"}'::jsonb, array[1000])"
  for ((i = 0; i < n / 1000; i++)); do echo "select count(*) from jobs.insert_batch('bench', $jobs);"; done >"$WORK/insert.sql"
  carrying() { # ours|yardstick: jobs per second and bytes of WAL per job
    local before start
    [[ $1 == yardstick ]] || PGDATABASE=outbox sql -f "$WORK/insert.sql" >/dev/null
    before=$(sql -c "checkpoint" -c "select pg_current_wal_insert_lsn()")
    start=$EPOCHREALTIME
    if [[ $1 == ours ]]; then "$program" forward --from dbname=outbox --to "dbname=$PGDATABASE" --once 2>"$WORK/forward.log"; else sql -f "$WORK/insert.sql" >/dev/null; fi
    awk -v n="$n" -v start="$start" -v end="$EPOCHREALTIME" -v wal="$(sql -c "select pg_current_wal_insert_lsn() - '$before'::pg_lsn")" 'BEGIN { printf "%.0f %.0f\n", n / (end - start), wal / n }'
  }
  carrying ours >/dev/null
  images_of_pages off
  in_turns "$ROUNDS" carrying >"$WORK/rounds"
  images_of_pages on
  awk '{ print $1, $3 }' "$WORK/rounds" | ratio "pgjobs forward of $n jobs, against insert_batch of 1,000 at the queue" - jobs/s
  awk '{ print $2, $4 }' "$WORK/rounds" | ratio "- WAL a job of both databases, without images of pages" - bytes

  echo "select id from jobs.insert('bench', to_jsonb(clock_timestamp()), queue => 'wake');" >"$WORK/insert.sql"
  cat >"$WORK/wait.sql" <<'SQL'
call jobs.wait('wake', '1 second');
with f as materialized (select id, token, clock_timestamp() - (args #>> '{}')::timestamptz as took from jobs.fetch('wake', 100)),
     c as (select count(*) from jobs.complete_many(array(select id from f), array(select token from f)))
insert into woken select extract(epoch from took) * 1000 from f, c;
SQL
  sql -c "create unlogged table woken (ms double precision)"
  "$program" forward --from dbname=outbox --to "dbname=$PGDATABASE" 2>"$WORK/forward.log" &
  forwarder=$!
  for rate in 20 500; do
    sql -c "truncate woken"
    pgbench -n -M simple -c 1 -j 1 -T $((seconds + 2)) -f "$WORK/wait.sql" >/dev/null 2>&1 &
    waiter=$!
    sleep 1
    PGDATABASE=outbox CLIENTS=4 load "$WORK/insert.sql" -T "$seconds" -R "$rate" >/dev/null
    wait "$waiter"
    IFS='|' read -r n p50 p99 <<<"$(sql -c "select count(*), round(percentile_cont(0.5) within group (order by ms)::numeric, 2), round(percentile_cont(0.99) within group (order by ms)::numeric, 2) from woken")"
    result "from jobs.insert in the outbox to the fetch at the queue, $rate inserts/s: median" "< 10 ms" "$p50" "$n jobs" "ms"
    result "the same, $rate inserts/s: 99th percentile" - "$p99" "$n jobs" "ms"
  done
  kill "$forwarder"
  wait "$forwarder"
}

# What it costs who works that workers are known, of whom one is quiet: fetching under a name that
# is known against one that is not, and working while they say that they are there.
case_quiet() {
  local beats known=1000 SECONDS_EACH=1 TURNS=$((2 * TURNS)) # it is near what is wanted
  local PGOPTIONS="$PGOPTIONS -c synchronous_commit=off" beat="'{beats,other}', 10, '{\"version\": \"1.0\", \"host\": \"bench\"}'"
  renew
  sql -c "select count(jobs.worker_beat('worker ' || n, $beat)) from generate_series(1, $known) n" -c "select jobs.quiet_worker('worker $known')" >/dev/null
  R2='' EACH=10 FILL=$(scaled 40000)
  fetch_and_complete bench 10 "worker 1" | ours
  fetch_and_complete bench 10 "nobody" | yardstick
  measure ours >/dev/null
  measure yardstick >/dev/null
  in_turns "$TURNS" measure | awk '{ print $1, $3 }' | ratio "fetch + complete, batches of 10, by one of $known workers that are known, against an unknown one" ">= 0.99" jobs/s

  cycle beats 10 >"$WORK/beats.sql"
  printf '%s\n' "\\set n random(1, $known)" "select jobs.worker_beat('worker ' || :n, $beat);" >"$WORK/beat.sql"
  beside() { # ours|yardstick
    if [[ $1 == ours ]]; then
      pgbench -n -M prepared -c 1 -j 1 -T 100 -R $((known / 10)) -f "$WORK/beat.sql" >/dev/null 2>&1 &
      beats=$!
    fi
    load "$WORK/beats.sql" -T "$SECONDS_EACH" | awk '{ print $1 * 10 }'
    [[ $1 != ours ]] || { kill "$beats" && wait "$beats" 2>/dev/null || true; }
  }
  beside yardstick >/dev/null
  in_turns "$TURNS" beside | ratio "insert, fetch and complete beside $known workers that beat each 10 s, against none" ">= 0.99" jobs/s
}

# Cells that have nothing to do, on one server. Without autovacuum, which visits new databases.
case_idle_cells() {
  local cell cells=64 seconds postmaster off on of="cells without work, on one server"
  seconds=$(scaled 60)
  postmaster=$(sql -c "select split_part(pg_read_file('postmaster.pid'), E'\n', 1)")
  sql -c "alter system set autovacuum = off" -c "select pg_reload_conf()" >/dev/null
  for cell in $(seq 0 $((cells - 1))); do
    sql -c "create database cell$cell"
    PGDATABASE=cell$cell sql -c "create extension jobs" -c "select jobs.set_cell($cell), jobs.place_queue('*', $cell), jobs.insert('k', pending => true)" >/dev/null
  done
  # Some may just have ended.
  processes() { { pgrep -P "$postmaster" -f '^postgres: jobs ' | sed 's|.*|/proc/&/smaps_rollup|' | xargs cat 2>/dev/null || true; } | awk '/^Pss:/ { n++; kb += $2 } END { printf "%d %.0f\n", n, kb / 1024 }'; }
  ticks() { cat "/proc/$postmaster/stat" <(pgrep -P "$postmaster" | sed 's|.*|/proc/&/stat|' | xargs cat 2>/dev/null | cut -d ' ' -f 1-15) | awk '{ n += $14 + $15 + $16 + $17 } END { print n }'; }
  used() { # for how long the server computes in a second, in ms
    local before
    sleep 10 # what has begun settles
    before=$(ticks)
    for _ in $(seq "$seconds"); do sleep 1 && processes; done >"$WORK/processes"
    echo $((($(ticks) - before) * 1000 / $(getconf CLK_TCK) / seconds))
  }
  on=$(used)
  most() { sort -n -k "$1,$1" "$WORK/processes" | tail -n 1 | cut -d ' ' -f "$1"; }
  result "$cells $of: processes of jobs, the most at a time" "-" "$(most 1)" "-" "the launcher, and one for each connection"
  result "$cells $of: memory of these processes, the most" "-" "$(most 2)" "-" "MB"
  sql -c "alter system set jobs.enabled = off" -c "select pg_reload_conf()" >/dev/null
  off=$(used)
  result "$cells $of: processor time a second" "-" "$on" "-" "ms against $off with jobs.enabled = off"
  sql -c "alter system reset jobs.enabled" -c "alter system reset autovacuum" -c "select pg_reload_conf()" >/dev/null
  for cell in $(seq 0 $((cells - 1))); do sql -c "drop database cell$cell (force)"; done
}

# Two cells, each on a server, with clients, on a core of its own, against one of them alone.
# Without waiting for the disk, which they share.
case_cells() {
  local bin second=$((PGPORT + 2)) PGOPTIONS="$PGOPTIONS -c synchronous_commit=off"
  if [[ $(nproc) == 1 ]]; then
    result "two cells on two cores" ">= 1.9" "skipped" "-" "this machine has one core"
    return
  fi
  bin=$(sql -c "select setting from pg_config where name = 'BINDIR'")
  chmod a+x "$WORK"
  mkdir -m 777 "$WORK/cell"
  as_owner "$bin/initdb" -D "$WORK/cell/data" -U "$PGUSER" -E UTF8 --locale=C >/dev/null
  as_owner "$bin/pg_ctl" -D "$WORK/cell/data" -l "$WORK/cell/log" -o "-p $second -k $PGHOST -c shared_preload_libraries=jobs" -s -w start
  cell() { # PORT CORE
    PGPORT=$1 renew
    PGPORT=$1 sql -c "select jobs.set_cell($2), jobs.place_queue('*', $2)" >/dev/null
    pin "$1" "$2"
  }
  pin() { # PORT CORES
    local postmaster process
    postmaster=$(PGPORT=$1 sql -c "select split_part(pg_read_file('postmaster.pid'), E'\n', 1)")
    for process in "$postmaster" $(pgrep -P "$postmaster"); do taskset -cp "$2" "$process" >/dev/null || true; done
  }
  cell "$PGPORT" 0
  cell "$second" 1
  cycle cells 10 >"$WORK/cells.sql"
  mkdir "$WORK/0" "$WORK/1"
  on_core() ( # CORE PORT
    taskset -cp "$1" "$BASHPID" >/dev/null
    PGPORT=$2 WORK=$WORK/$1 CLIENTS=4 THREADS=1 load "$WORK/cells.sql" -T "$SECONDS_EACH" | awk '{ print $1 * 10 }'
  )
  working() { # ours|yardstick
    if [[ $1 == ours ]]; then on_core 1 "$second" >"$WORK/other" & fi
    on_core 0 "$PGPORT" >"$WORK/one"
    if [[ $1 == ours ]]; then wait "$!" && cat "$WORK/other" >>"$WORK/one"; fi
    awk '{ sum += $1 } END { print sum }' "$WORK/one"
  }
  working ours >/dev/null
  in_turns "$TURNS" working | ratio "insert, fetch and complete in two cells on two cores, against one on one" ">= 1.9" jobs/s
  pin "$PGPORT" "0-$(($(nproc) - 1))"
  as_owner "$bin/pg_ctl" -D "$WORK/cell/data" -m fast -s -w stop
}

# One key over and over, all its jobs within their retention. Without waiting for the disk, which
# would hide the rest.
case_one_key() {
  local n i
  n=$(scaled 100000)
  cat >"$WORK/one.sql" <<'SQL'
set synchronous_commit = off;
select id from jobs.insert('one', '{"a": 1}', '{"by_args": true, "by_state": ["available", "pending", "running", "scheduled", "retryable"]}', queue => 'one') \gset
select id as id, token as token from jobs.fetch('one', 1) \gset
select jobs.complete(:id, :token);
SQL
  over_and_over() { # NAME: how many cycles a second the last thousand made, and the first
    CLIENTS=1 THREADS=1 load "$WORK/one.sql" -t "$n" -l --log-prefix="$WORK/one" >/dev/null
    cat "$WORK"/one.[0-9]* | awk -v n="$n" '
      NR > 100 && NR <= 1100 { first += $3 } NR > n - 1000 { last += $3 }
      END { print 1e9 / last, 1e9 / first }'
    cat "$WORK"/one.[0-9]* | awk -v step=$((n / 100)) '{ s += $3 } NR % step == 0 { printf "%d %.0f\n", NR, 1e6 * step / s; s = 0 }' >"$RESULTS/series.$1"
    rm -f "$WORK"/one.[0-9]*
  }
  for ((i = 0; i < RUNS; i++)); do
    renew
    over_and_over one_key
  done | ratio "one key $n times within its retention, the last 1000 against the first" ">= 0.9" "cycles/s"
  for ((i = 0; i < RUNS; i++)); do
    renew
    hold_snapshot
    over_and_over one_key_held
    release_snapshot
  done | ratio "the same under a held snapshot" ">= 0.9" "cycles/s"
  renew
}

# At full speed while another session has a snapshot from before, unless FREE is set: what each 10
# seconds did. The last of them are in turns with the first 10 seconds of other databases, so that
# what the machine does meanwhile hits both.
held() { # NAME TITLE AIM SCRIPT
  local alone turns=${AGED_TURNS:-6} turn first last
  alone=$(scaled 240)
  ((SCALE == 1)) || turns=1
  ((alone >= 20)) || alone=20
  begin_held
  pgbench -n -M prepared -c "$CLIENTS" -j "$THREADS" -T "$alone" -P 10 -f "$4" 2>&1 >/dev/null |
    awk '/^progress:/ { print $2, $4 * 10 }' >"$RESULTS/series.$1"
  for ((turn = 1; turn <= turns; turn++)); do
    ((turn % 2)) || first=$(first_seconds "$4")
    last=$(each_10 "$4")
    ((turn % 2 == 0)) || first=$(first_seconds "$4")
    echo "$((alone + 10 * turn)) $last" >>"$RESULTS/series.$1"
    echo "$last $first"
  done | ratio "$2" "$3" "jobs/s at the end"
  # Without turns: what the machine did five minutes before is in it.
  awk -v turns="$turns" 'NR == 1 { first = $2 } { v[NR] = $2 } END { for (n = NR - turns + 1; n <= NR; n++) print v[n], first }' "$RESULTS/series.$1" |
    ratio "- against the first 10 s of the same database" "-" "jobs/s at the end"
  [[ ${FREE:-} ]] || release_snapshot
}

begin_held() {
  renew
  [[ ${FREE:-} ]] || hold_snapshot
}

# What the script does in 10 seconds, at 10 jobs a transaction.
each_10() { load "$1" -T 10 | awk '{ print $1 * 10 }'; }

# What the script does in its first 10 seconds, in another database.
first_seconds() {
  local -x PGDATABASE=bench_first
  begin_held
  each_10 "$1"
  PGDATABASE=postgres sql -c "drop database $PGDATABASE (force)"
}

case_held() {
  cycle held 10 >"$WORK/held.sql"
  held held "insert, fetch and complete after $(scaled 300) s under a held snapshot, against the first 10 s" ">= 0.85" "$WORK/held.sql"
  # What the disk does to it: checkpoints, and tables that outgrow the buffers.
  FREE=1 held free "the same where nobody holds a snapshot" "-" "$WORK/held.sql"
  cat >"$WORK/held.sql" <<'SQL'
insert into r2 (kind, queue, args) select 'bench', 'held', '{"user_id": 42}' from generate_series(1, 10);
select coalesce(array_agg(id), '{}') as ids from r2_fetch('held', 10) \gset
select r2_complete(:ids::bigint[]);
SQL
  held held_r2 "R2 under the held snapshot" "-" "$WORK/held.sql"
}

case_held_retries() {
  cat >"$WORK/held.sql" <<'SQL'
select count(*) from jobs.insert_batch('bench', array_fill('{"user_id": 42}'::jsonb, array[9]), queue => 'held');
select coalesce(array_agg(id), '{}') as ids, coalesce(array_agg(token), '{}') as tokens from jobs.fetch('held', 10) \gset
select count(jobs.fail(u.id, u.token, 'again', retry_in => '1 second')) from (select id, token, row_number() over () as n from unnest(:ids::bigint[], :tokens::bigint[]) as t(id, token)) u where n = 1;
select count(*) from jobs.complete_many((:ids::bigint[])[2:], (:tokens::bigint[])[2:]);
SQL
  # It is near what is wanted.
  AGED_TURNS=12 held held_retries "the same with one job in ten retried" ">= 0.85" "$WORK/held.sql"
}

case_prune() {
  local n kind options aim run before begun i
  n=$(scaled 1000000)
  pruned() { # how long it took, in seconds, and with a vacuum
    local empty now
    renew
    empty=$(sql -c "select pg_database_size('bench')")
    sql -c "alter system set jobs.enabled = off" -c "select pg_reload_conf()" >/dev/null
    for ((i = 0; i < n; i += 10000)); do
      sql -c "select count(*) from jobs.insert_batch('bench', array(select jsonb_build_object('user_id', i) from generate_series($i, $i + least($n - $i, 10000) - 1) i), $options, queue => 'prune')" >/dev/null
      sql -c "with f as materialized (select id, token from jobs.fetch('prune', 10000)) select count(*) from jobs.complete_many(array(select id from f), array(select token from f))" >/dev/null
    done
    sql -c "vacuum analyze" -c checkpoint
    sql -c "alter system set jobs.retention_completed = 0" -c "select pg_reload_conf()" >/dev/null
    sleep 1
    before=$(sql -c "select pg_database_size('bench')")
    begun=$(date +%s.%N)
    prune_all
    now=$(date +%s.%N)
    sql -c vacuum
    awk -v a="$begun" -v b="$now" -v c="$(date +%s.%N)" 'BEGIN { print b - a, c - a }'
    are_empty job finished unique_claim
    sql -c "select pg_size_pretty($before::bigint - $empty) || ' before, then ' || pg_size_pretty(pg_database_size('bench') - $empty)" >"$WORK/size"
    sql -c "alter system reset jobs.enabled" -c "alter system reset jobs.retention_completed" -c "select pg_reload_conf()" >/dev/null
  }
  for kind in "not unique" unique; do
    if [[ $kind == unique ]]; then options="'{\"by_args\": true}'" aim='< 6 s'; else options=null aim='< 2.5 s'; fi
    for ((run = 0; run < RUNS; run++)); do pruned; done >"$WORK/rounds"
    awk '{ print $1 }' "$WORK/rounds" | middle "pruning $n finished jobs that were $kind" "$aim" "s"
    awk '{ print $2 }' "$WORK/rounds" | middle "- with the VACUUM that gives the space back" "-" "s; $(cat "$WORK/size")"
  done
}

# The most memory that a session has had (VmHWM of its process, with what it has touched of the
# shared buffers) after one call for many jobs.
case_peak() {
  local n call options
  renew
  sql -c "alter system set jobs.enabled = off" -c "select pg_reload_conf()" >/dev/null
  peak() { # STATEMENT; in MB
    sql -f - -c "select substring(pg_read_file('/proc/self/status') from 'VmHWM:\\s+(\\d+)')::bigint / 1024" <<<"$1" | tail -n 1
  }
  for n in 10000 100000 1000000; do
    n=$(scaled $n)
    seq -f '{"kind": "m", "args": %.0f}' 1 "$n" | paste -sd , >"$WORK/plain"
    sed 's/}/, "unique_opts": {"by_args": true}}/g' "$WORK/plain" >"$WORK/unique"
    for options in plain unique; do
      result "most memory, $n elements of JSON that Postgres reads, $options" "-" \
        "$(peak "$(printf "select jsonb_array_length('[%s]')" "$(cat "$WORK/$options")")")" "-" "MB"
      result "- insert_many of them" "1 kB a job more" "$(peak "$(printf "select count(*) from jobs.insert_many('[%s]')" "$(cat "$WORK/$options")")")" "-" "MB"
    done
    for options in null "'{\"by_args\": true}'"; do
      call="jobs.insert_batch('b', array(select to_jsonb(n) from generate_series(1, $n) n), $options)"
      result "- insert_batch of $n jobs, options $options" "0.7 kB a job" "$(peak "select count(*) from $call")" "-" "MB"
    done
  done
  sql -c "alter system reset jobs.enabled" -c "select pg_reload_conf()" >/dev/null
}

# What a session's own memory grows by, from the first hundredth of the calls to the last, and from
# the middle on: what is taken once does not pile up.
case_memory() {
  local n part parts=()
  n=$(scaled 1000000)
  renew
  sql -c "alter system set jobs.enabled = off" -c "select pg_reload_conf()" >/dev/null
  sql -c "drop role if exists memory" -c "create role memory"
  for part in 1 2; do
    sql -v n="$n" -v part="$part" -f "$HERE/memory.sql" >"$WORK/memory.$part" &
    parts+=($!)
  done
  for part in "${parts[@]}"; do wait "$part"; done
  cat "$WORK"/memory.[12] | tee "$RESULTS/memory"
  most() { awk -F '|' -v column="$1" '{ if ($column > most) most = $column } END { printf "%d", most }' "$RESULTS/memory"; }
  result "memory of a session, in the second half of $n calls of a function (of some fewer), the most of $(wc -l <"$RESULTS/memory") kinds of calls" "flat" \
    "$(most 4)" "$(most 3) from the first hundredth on" "kB"
  sql -c "alter system reset jobs.enabled" -c "select pg_reload_conf()" >/dev/null
}

# What the console costs: JOBS of them, since ten million take minutes to fill in.
case_console() {
  (cd "$HERE/.." && cargo build --quiet --release -p postgres-jobs-cli)
  renew
  node "$HERE/console.mjs" "${CARGO_TARGET_DIR:-$HERE/../../target}/release/pgjobs" "$(scaled "$JOBS")" "${BROWSER:-}" | keep
}
