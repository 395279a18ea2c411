# Python, Java and Ruby. tests/drivers.sh sources this file.
#
# These programs all do the same and print the same, each in the way of its library. So there is one
# expectation for them. They run as the role app, which needs no more than it has.

driver_psycopg() { same_program psycopg; }
driver_sqlalchemy() { same_program sqlalchemy; }
driver_jdbc() { same_program jdbc; }
driver_activerecord() { same_program activerecord; }

# Django has two ways to bind values; in the other one it sends them within the statement.
driver_django() {
  same_program django
  drivers_database django_client
  PGDATABASE=django_client DATABASE_URL=${DATABASE_URL%/*}/django_client POOLED=1 same_program django
}

# --- How a program is started: the array PROGRAM. POOLED: as it must be behind a pooler that gives
# each transaction another connection. Each fails if what it needs cannot be installed, and says
# what was tried.

program_psycopg() {
  # It reads a job's output.
  drivers_sql "$PGDATABASE" "select jobs.grant_application('app')" >/dev/null
  python_program psycopg
}
program_sqlalchemy() { python_program sqlalchemy requirements-sqlalchemy.txt; }
program_django() { python_program django requirements-django.txt; }

python_program() { # NAME REQUIREMENTS..
  local lists=(requirements.txt "${@:2}")
  lists=("${lists[@]/#/examples/python/}")
  drivers_need "$1" "pip install ${lists[*]/#/-r }" need_python "python_$1" "${lists[@]}" || return
  PROGRAM=("$STATE/python_$1/bin/python" "examples/python/$1_example.py")
}

program_jdbc() {
  drivers_need jdbc "apt-get install default-jdk-headless libpostgresql-jdbc-java" need_jdbc || return
  PROGRAM=(env "JDBC_URL=jdbc:postgresql://$PGHOST:$PGPORT/$PGDATABASE?user=$PGUSER${POOLED:+&prepareThreshold=0}"
    java -XX:TieredStopAtLevel=1 -cp /usr/share/java/postgresql.jar examples/java/Example.java)
}

need_jdbc() { { command -v javac >/dev/null || need_packages default-jdk-headless; } && need_packages libpostgresql-jdbc-java; }

# Debian's Ruby, because it has Debian's gems.
program_activerecord() {
  drivers_need activerecord "apt-get install ruby-activerecord ruby-pg" need_packages ruby-activerecord ruby-pg || return
  PROGRAM=(env "DATABASE_URL=$DATABASE_URL${POOLED:+?prepared_statements=false}" /usr/bin/ruby examples/ruby/example.rb)
}

drivers_need() { # NAME TRIED COMMAND..
  local said
  said=$("${@:3}" 2>&1) || { cannot drivers "$1" "$2" "$said"; return 1; }
}

# --- The test of them -----------------------------------------------------------------------------

# Prepared statements get a generic plan after some executions, and with it the types of parameters
# that are null once and something else then: it must have been used. Where nothing may be prepared
# it must not. Neither the program nor its session has UTC, so a time that loses its zone is seen.
same_program() { # NAME
  local what=$1${POOLED:+, nothing prepared} generic=true report=$TMP/drivers/$PGDATABASE.out
  local -x PGUSER=app DATABASE_URL=${DATABASE_URL/postgres@/app@}
  [[ ! ${POOLED:-} ]] || generic=false
  "program_$1" || return 0
  drivers_sql "$PGDATABASE" "alter role app in database \"$PGDATABASE\" set timezone = 'Asia/Tokyo'"
  check drivers "$what: it runs" same_run "$report"
  check drivers "$what: it reports what it must" same_report "$report" $generic
  check drivers "$what: the queue holds what it must" same_left
  if [[ ! ${POOLED:-} ]]; then
    check drivers "control: $what: another report is refused" refuses same_report "$report" false >/dev/null
    drivers_sql "$PGDATABASE" "select jobs.update(id, priority => -6) from jobs.jobs where kind = 'types'" >/dev/null
    check drivers "control: $what: another job is refused" refuses same_left >/dev/null
  fi
}

same_run() { # REPORT
  TZ=America/New_York timeout 120 "${PROGRAM[@]}" >"$1" 2>"$1.err" || { cat "$1" "$1.err"; false; }
}

# Whether a language writes true or True does not matter. The first order was rolled back, so the
# one that stays is number 2.
same_report() { # REPORT GENERIC
  local result= # psycopg's example is the one that waits for it
  [[ ${PROGRAM[*]} != *psycopg_example* ]] || result=$'\nresult: completed, ok: true'
  diff - <(tr '[:upper:]' '[:lower:]' <"$1") <<TEXT
inserted: available in shipping
duplicate: true, same job: true
rejected: 23505, names the job: true
rolled back: 0 orders
committed: 1 orders
types: scheduled at 2030-01-02 01:04:05
null args: 22004
repeated: 20 jobs, generic plan: $2
insert_many: 3 rows, 1 skipped
insert_batch: 2 rows
worker: order 0 retryable
worker: order 2 completed
not ours: 55000$result
TEXT
}

same_left() {
  diff - <(drivers_sql "$PGDATABASE" "
    select format('%s %s in %s, priority %s, attempt %s of %s, %s, %s %s %s %s', kind, state, queue, priority, attempt, max_attempts, timeout, args, meta, tags, output)
      from jobs.jobs where kind <> 'counted' order by kind, args::text collate \"C\";
    select format('%s %s counted, %s to %s', count(*), state, min((args->'n')::int), max((args->'n')::int)) from jobs.jobs where kind = 'counted' group by state;
    select format('types: from %s to %s', scheduled_at, expires_at) from jobs.jobs where kind = 'types';
    select format('error: attempt %s, %s %s, again in %s', e.attempt, e.error, e.details, date_trunc('minute', j.scheduled_at - e.at + '1 second'))
      from jobs.errors e join jobs.jobs j on j.id = e.job_id;
    select format('order %s of %s, shipped %s', id, customer, shipped) from orders") <<'TEXT'
line available in default, priority 1, attempt 0 of 25, 00:01:00, null {} {} 
line available in default, priority 1, attempt 0 of 25, 00:01:00, {"n": 1} {} {} 
null_args available in default, priority 1, attempt 0 of 25, 00:01:00, null {} {} 
page available in default, priority 1, attempt 0 of 25, 00:01:00, {"n": 1} {} {} 
page available in default, priority 1, attempt 0 of 25, 00:01:00, {"n": 2} {} {} 
report available in default, priority 1, attempt 0 of 25, 00:01:00, {"month": "2030-01"} {} {} 
ship retryable in shipping, priority 1, attempt 1 of 25, 00:01:00, {"order": 0} {} {} 
ship completed in shipping, priority 1, attempt 1 of 25, 00:01:00, {"order": 2} {} {} {"ok": true}
types scheduled in default, priority -5, attempt 0 of 3, 00:01:30, {"none": null, "text": "ü ' \\ \"", "numbers": [1, 2.5, 9007199254740993]} {"note": null} {"a b","c,d","say \"hi\"",""} 
20 available counted, 0 to 19
types: from 2030-01-02 01:04:05+00 to 2031-01-01 00:00:00+00
error: attempt 1, there is no order 0 {"type": "unknown_order"}, again in 01:00:00
order 2 of Bob, shipped t
TEXT
}
