# One test of the example workers, whatever their language. tests/suites.sh sources this file.
#
# Every worker knows these kinds of jobs: `ok`; `fail_once`, whose first attempt fails; `slow`,
# which takes args.seconds; `endless`, which ends only when it is stopped; and some that must fail
# and not end their worker: `bad_error`, whose error the database cannot hold, `bad_output`
# likewise, `broken`, which throws what is no error, exits, panics, and `refused` and `not_found`,
# whose rows a trigger refuses with the SQLSTATEs that a lost job has. A job that is done leaves a
# row in the table `done`, which has no key, so that a row too many is seen. Workers are started
# with short leases, so that only heartbeats keep a slow job.

WORKER_LANGUAGES=(python shell)

example_workers() { # FILTER; needs the server of the suite `examples`
  local language
  for language in "${WORKER_LANGUAGES[@]}"; do
    [[ $language == *"$1"* ]] || continue
    "worker_$language" || { check examples "the $language worker can be built" false; continue; }
    jobs_sql "set client_min_messages = warning; drop table if exists done; create table done (job_id bigint, attempt int, worker text);
      create or replace function refuse() returns trigger language plpgsql as \$\$ begin
        case (select kind from jobs.jobs where id = new.job_id)
          when 'refused' then raise object_not_in_prerequisite_state using detail = 'lease_lost', message = 'this row is refused';
          when 'not_found' then raise no_data_found using message = 'this row is refused';
          else return new;
        end case;
      end \$\$;
      create trigger refuse before insert on done for each row execute function refuse()" >/dev/null
    example_worker "$language"
    end_workers KILL
    cat "$TMP/$language"*.out # what they complained of
  done
}

# --- What starts a worker, as the array COMMAND ---------------------------------------------------

worker_python() { need_python python examples/python/requirements.txt && COMMAND=("$STATE/python/bin/python" examples/python/worker.py); }
worker_shell() { COMMAND=(env "PATH=$PG_BIN:$PATH" examples/shell/worker.sh); }

# --- Starting and ending them ---------------------------------------------------------------------

# Each in a process group of its own. A shell ignores SIGINT in what it starts in the background;
# they must not.
start_workers() { # HOW_MANY QUEUE
  local n
  WORKERS=()
  for ((n = 0; n < $1; n++)); do
    DATABASE_URL="postgresql://postgres@$(sed 's/\//%2F/g' <<<"$TMP/examples")/jobs" LEASE=6 CONCURRENCY=4 GRACE=8 \
      setsid env --default-signal=INT "${COMMAND[@]}" "$2" >>"$TMP/$2.out" 2>&1 &
    WORKERS+=($!)
  done
}

# Sends a signal to each worker, and to all that it started if it is KILL, as when the machine dies.
end_workers() { # SIGNAL
  local pid
  for pid in "${WORKERS[@]}"; do
    if [[ $1 == KILL ]]; then kill -KILL -- "-$pid" 2>/dev/null || true; else kill "-$1" "$pid"; fi
  done
  if [[ $1 == KILL ]]; then wait "${WORKERS[@]}" 2>/dev/null || true; fi
}

# They all end with status 0.
workers_end_well() {
  local pid status
  for pid in "${WORKERS[@]}"; do
    status=0
    wait "$pid" || status=$?
    [[ $status == 0 ]] || { echo "a worker ended with status $status"; return 1; }
  done
}

# Waits up to a minute until a query says so.
until_true() { # BOOLEAN_EXPRESSION
  local n
  for ((n = 0; n < 600; n++)); do
    [[ $(jobs_sql "select $1") == t ]] && return
    sleep 0.1
  done
  echo "after a minute it is still not true that $1"
  jobs_sql "select queue, kind, state, attempt, count(*) from jobs.jobs where finalized_at is null group by 1, 2, 3, 4"
  return 1
}

# --- The test -------------------------------------------------------------------------------------

example_worker() { # LANGUAGE
  local queue=$1 in_queue="from jobs.jobs where queue = '$1'"
  jobs_sql "select jobs.insert(kind, '{\"seconds\": 10}', queue => '$queue', max_attempts => case when n = 6 then 1 end)
    from (values (1, 2, 'endless'), (2, 5, 'slow'), (3, 150, 'ok'), (4, 40, 'fail_once'), (5, 3, 'unheard_of'), (6, 2, 'bad_error'), (6, 2, 'bad_output'),
      (6, 2, 'broken'), (6, 2, 'refused'), (6, 2, 'not_found')) v(n, many, kind), generate_series(1, many)" >/dev/null

  start_workers 2 "$queue"
  check examples "$1: endless jobs run" until_true "count(*) = 2 $in_queue and kind = 'endless' and state = 'running'"
  jobs_sql "select jobs.cancel(min(id)), jobs.cancel(max(id), force => true) $in_queue and kind = 'endless'" >/dev/null
  check examples "$1: all jobs end" until_true "count(*) = 210 $in_queue and finalized_at is not null"
  check examples "$1: each job is in the state that it must be in" worker_left "$1" <<'TEXT'
bad_error discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
bad_output discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
broken discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
endless cancelled 2 jobs, attempts 1..1, errors 0..0, rows 0..0
fail_once completed 40 jobs, attempts 2..2, errors 1..1, rows 1..1
not_found discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
ok completed 150 jobs, attempts 1..1, errors 0..0, rows 1..1
refused discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
slow completed 5 jobs, attempts 1..1, errors 0..0, rows 1..1
unheard_of discarded 3 jobs, attempts 1..1, errors 1..1, rows 0..0
TEXT
  check examples "$1: control: another outcome is refused" refuses worker_left "$1" <<<"ok completed 151 jobs" >/dev/null
  check examples "$1: each error has its text and a type" until_true "count(*) = 53 and bool_and(e.error <> '' and length(e.error) < 11000 and e.details->>'type' <> '')
    from jobs.errors e where e.job_id in (select id $in_queue)"
  check examples "$1: what refused a row is in the error" until_true "count(*) = 4 from jobs.errors e where e.error like '%this row is refused%' and e.job_id in (select id $in_queue)"
  check examples "$1: both workers had jobs" until_true "count(distinct worker) = 2 from done"

  check examples "$1: idle workers wait for work" until_true "count(*) = 2 from pg_stat_activity where query ilike 'call jobs.wait%' and state = 'active'"
  jobs_sql "select jobs.insert('ok', queue => '$queue')" >/dev/null
  check examples "$1: and take it when it comes" until_true "count(*) = 1 $in_queue and id = (select max(id) $in_queue) and state = 'completed'"
  worker_obeys "$1"
  end_workers TERM
  check examples "$1: idle workers stop" workers_end_well

  worker_stops "$1"
  worker_stops_on_command "$1"
  worker_dies "$1"
}

# What the queue and the table `done` hold, one line for each kind and state.
worker_left() { # QUEUE; the expectation is standard input
  diff - <(jobs_sql "select format('%s %s %s jobs, attempts %s..%s, errors %s..%s, rows %s..%s', kind, state, count(*), min(attempt), max(attempt),
      min(errors), max(errors), min(done), max(done))
    from (select kind, state, attempt, (select count(*) from jobs.errors e where e.job_id = j.id) as errors,
      (select count(*) from done d where d.job_id = j.id and d.attempt = j.attempt) + (select count(*) from done d where d.job_id = j.id and d.attempt <> j.attempt) * 1000 as done
      from jobs.jobs j where queue = '$1') s
    group by kind, state order by kind, state")
}

# Idle workers say that they are there; quiet ones fetch nothing, and go on when they may.
worker_obeys() { # LANGUAGE
  local in_queue="from jobs.jobs where queue = '$1'" workers="from jobs.workers where queues = '{$1}'"
  check examples "$1: idle workers are seen" until_true "count(*) = 2 and bool_and(status = 'idle' and concurrency = 4) $workers"
  # A fetch that is under way when its worker is told may yet take what is inserted meanwhile.
  jobs_sql "select jobs.quiet_worker(worker) $workers" >/dev/null
  check examples "$1: quiet workers wait" until_true "count(*) = 2 from pg_stat_activity
    where query ilike 'call jobs.wait_any%' and state = 'active' and query_start > (select max(commanded_at) from jobs.worker_command)"
  jobs_sql "select jobs.insert('ok', queue => '$1')" >/dev/null
  check examples "$1: and leave the job" until_true "state = 'available' $in_queue and id = (select max(id) $in_queue)"
  jobs_sql "select jobs.resume_worker(worker) $workers" >/dev/null
  check examples "$1: until they are resumed" until_true "state = 'completed' $in_queue and id = (select max(id) $in_queue)"
}

# With the command stop they end what runs, however long that takes, and begin nothing.
worker_stops_on_command() { # LANGUAGE
  local queue=$1_commands in_queue="from jobs.jobs where queue = '$1_commands'"
  jobs_sql "select jobs.insert('slow', '{\"seconds\": 12}', queue => '$queue') from generate_series(1, 5)" >/dev/null
  start_workers 2 "$queue"
  check examples "$1: its slow jobs run" until_true "count(*) = 5 $in_queue and state = 'running'"
  jobs_sql "select jobs.stop_worker(worker) from jobs.workers where queues = '{$queue}'" >/dev/null
  # As above.
  check examples "$1: no fetch is under way" until_true "not exists (select from pg_stat_activity
    where state = 'active' and query ilike '%jobs.fetch%' and pid <> pg_backend_pid())"
  jobs_sql "select jobs.insert('ok', queue => '$queue')" >/dev/null
  check examples "$1: workers that are told to stop end" workers_end_well
  check examples "$1: once what ran is done" worker_left "$queue" <<'TEXT'
ok available 1 jobs, attempts 0..0, errors 0..0, rows 0..0
slow completed 5 jobs, attempts 1..1, errors 0..0, rows 1..1
TEXT
  jobs_sql "select jobs.resume_worker(worker) from jobs.workers where queues = '{$queue}'" >/dev/null
}

# SIGTERM while jobs run: what ends within the grace period is completed, the rest is given back,
# nothing new is begun.
worker_stops() { # LANGUAGE
  local queue=$1_stops in_queue="from jobs.jobs where queue = '$1_stops'"
  jobs_sql "select jobs.insert('endless', queue => '$queue') from generate_series(1, 7)" >/dev/null
  start_workers 2 "$queue"
  check examples "$1: seven endless jobs run" until_true "count(*) = 7 $in_queue and state = 'running'"
  jobs_sql "select jobs.insert('slow', '{\"seconds\": 1.5}', queue => '$queue')" >/dev/null
  check examples "$1: and one that ends soon" until_true "state in ('running', 'completed') $in_queue and kind = 'slow'"
  end_workers TERM
  sleep 0.3
  jobs_sql "select jobs.insert('ok', queue => '$queue')" >/dev/null
  check examples "$1: workers with jobs stop" workers_end_well
  check examples "$1: what ran when they were stopped is done or given back" worker_left "$queue" <<'TEXT'
endless available 7 jobs, attempts 0..0, errors 0..0, rows 0..0
ok available 1 jobs, attempts 0..0, errors 0..0, rows 0..0
slow completed 1 jobs, attempts 1..1, errors 0..0, rows 1..1
TEXT
}

# SIGKILL: the leases of its jobs run out, and another worker does them.
worker_dies() { # LANGUAGE
  local queue=$1_dies in_queue="from jobs.jobs where queue = '$1_dies'"
  jobs_sql "select jobs.insert('slow', '{\"seconds\": 3}', queue => '$queue') from generate_series(1, 4)" >/dev/null
  start_workers 1 "$queue"
  check examples "$1: its jobs run" until_true "count(*) = 4 $in_queue and state = 'running'"
  end_workers KILL
  start_workers 1 "$queue"
  check examples "$1: the jobs of a dead worker are done by another one" until_true "count(*) = 4 $in_queue and state = 'completed'"
  check examples "$1: by its second attempt, once" worker_left "$queue" <<'TEXT'
slow completed 4 jobs, attempts 2..2, errors 1..1, rows 1..1
TEXT
  end_workers INT
  check examples "$1: it stops" workers_end_well
}
