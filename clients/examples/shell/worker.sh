#!/usr/bin/env bash
# A complete worker in shell with psql: fetches in batches, keeps its leases, and stops gracefully.
#
#   DATABASE_URL=postgresql://postgres@localhost/jobs ./worker.sh [QUEUE]
#
# LEASE, CONCURRENCY and GRACE (seconds) set it up. Its handlers write a row into a table of ours:
#
#   create table done (job_id bigint, attempt int, worker text);
#
# docs/worker-in-sql.md says why it does what it does. Each call is a session of its own, which is
# slow but simple: this is for jobs that are programs to run. A worker that loses its database ends
# with an error; its supervisor starts it again.
set -uo pipefail

URL=${DATABASE_URL:-postgresql://postgres@localhost/jobs} QUEUE=${1:-default}
LEASE=${LEASE:-30} CONCURRENCY=${CONCURRENCY:-4} GRACE=${GRACE:-10}
NAME="shell worker $$"
HEARTBEAT=$(awk "BEGIN { print $LEASE / 3 }") # often enough that two may go missing

# Statements come from standard input, because psql replaces :'variables' only there: never put
# values into SQL yourself.
PSQL=(psql "$URL" -X -q -A -t -F $'\t' -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -v queue="$QUEUE" -v name="$NAME")
export PGAPPNAME=$NAME
sql() { "${PSQL[@]}" "$@"; }

# What the jobs do: a function for each kind. What it prints to standard error is the error of the
# job.
handle_ok() { :; }
handle_fail_once() { ((attempt > 1)) || { echo "the first attempt always fails" >&2; return 1; }; }
handle_slow() { exec sleep "$seconds"; }
handle_endless() { exec sleep infinity; } # until the job is cancelled, or the worker stops
# Such as a bug would do it: none of it may end the worker.
handle_bad_error() { printf 'no text of the database: \0 \xff \xed\xa0\x80' >&2; return 1; }
handle_bad_output() { return 2; } # and says nothing
handle_broken() { kill -KILL "$BASHPID"; }
# Whose rows the database refuses.
handle_refused() { :; }
handle_not_found() { :; }

# A finishing call. That the job is no longer ours (the lease ran out, or it was cancelled by force,
# or deleted) is no error of the worker: the job's new worker is unaffected.
tell() {
  local answer
  answer=$(about_job "$@" 2>&1 >/dev/null) && return
  is_lost "$answer" || { echo "$answer" >&2; kill -USR1 $$; }
}
about_job() { sql -v id="$id" -v token="$token" -v attempt="$attempt" -v kind="$kind" "$@"; }
is_lost() { [[ $1 == *55000*lease_lost* || $1 == *55000*already_finished* || $1 == *P0002* ]]; }

# The row and the end of the job are one transaction: if the job is no longer ours, there is no row
# either. What refuses the row, before the finishing call is reached, is an error of the job,
# whatever its SQLSTATE.
complete() {
  local reached
  reached=$(about_job --single-transaction 2>"$output" <<<"insert into done values (:'id', :'attempt', :'name');
\\echo finishing
select jobs.complete(:'id', :'token', jsonb_build_object('by', :'name'));") && return
  if [[ $reached != finishing* ]] || ! is_lost "$(<"$output")"; then fail; fi
}

fail() {
  tell -v error="$(storable "$output")" -v status="$status" <<<"select jobs.fail(:'id', :'token', coalesce(nullif(:'error', ''), 'exit status ' || :'status'), details => '{\"type\": \"handler\"}')"
}

# A text as the database can hold it: without NUL, of whole characters, and not endless.
storable() { tail -c 10000 "$1" | tr -d '\0' | iconv -c -f UTF-8 -t UTF-8; }

# Runs the handler of one job, with heartbeats, and tells the queue what came of it. A process of
# its own for each job, which stops the handler when it gets a SIGTERM.
work() { # ID TOKEN ATTEMPT KIND SECONDS
  local id=$1 token=$2 attempt=$3 kind=$4 seconds=$5 me=$BASHPID stop='' handler='' beats status output
  if ! declare -F "handle_$kind" >/dev/null; then # another attempt would not change that
    tell <<<"select jobs.fail(:'id', :'token', 'there is no handler for ' || :'kind', retryable => false, details => '{\"type\": \"unknown_kind\"}')"
    return
  fi
  trap 'stop=yes; kill $handler 2>/dev/null' TERM
  output=$(mktemp)
  "handle_$kind" 2>"$output" &
  handler=$!
  heartbeats $me &
  beats=$!
  [[ ! $stop ]] || kill $handler
  # A signal ends a wait early.
  until wait $handler; status=$?; ! kill -0 $handler 2>/dev/null; do :; done
  kill $beats 2>/dev/null
  if [[ $stop ]]; then
    # The attempt does not count; the job becomes available for others, or cancelled if that was the
    # reason.
    tell <<<"select jobs.release(:'id', :'token')"
  elif ((status == 0)); then
    complete
  else
    fail
  fi
  rm -f "$output"
}

# Stops the handler when the job is to be cancelled or is lost: cancel_requested is true or null.
heartbeats() { # PID
  while sleep "$HEARTBEAT"; do
    [[ $(sql -v id="$id" -v token="$token" <<<"select cancel_requested from jobs.heartbeat_many(array[:id::bigint], array[:token::bigint])") == f ]] ||
      { kill "$1"; return; }
  done
}

stopping='' broken=''
trap 'stopping=yes' TERM INT
trap 'stopping=yes broken=yes' USR1
pids=() waiting=''
running() { # forgets the jobs that have ended
  local pid kept=()
  for pid in "${pids[@]}"; do ! kill -0 "$pid" 2>/dev/null || kept+=("$pid"); done
  pids=("${kept[@]}")
}

# Says that we are there, every 10 seconds, and hears the command of operators. quiet: fetch
# no more; stop: end as well, once what runs is done.
command='' next_beat=0
beat() {
  ((SECONDS >= next_beat)) || return 0
  command=$(sql -v concurrency="$CONCURRENCY" <<<"select jobs.worker_beat(:'name', array[:'queue'], :concurrency)") || broken=yes
  next_beat=$((SECONDS + 10))
}

while running; beat; [[ ! $stopping && ! $broken && $command != stop ]]; do
  free=$((CONCURRENCY - ${#pids[@]})) fetched=''
  if [[ $command == run ]] && ((free > 0)); then
    # One statement, one transaction: the jobs are ours when it returns.
    fetched=$(sql -v free=$free -v lease="$LEASE s" <<<"select id, token, attempt, kind, coalesce(args->>'seconds', '1') from jobs.fetch(:'queue', :free, :'name', :'lease')") ||
      { broken=yes; break; }
  fi
  if [[ $fetched ]]; then
    while read -r id token attempt kind seconds; do
      work "$id" "$token" "$attempt" "$kind" "$seconds" </dev/null &
      pids+=($!)
    done <<<"$fetched"
  elif ((free == 0)); then
    sleep 0.1 # no room
  else
    # No job: until there may be one, or until we get another command. The beat says what it is.
    "${PSQL[@]}" <<<"call jobs.wait_any(array[:'queue'], '10 s', :'name')" &
    waiting=$! next_beat=0
    [[ $stopping ]] || wait $waiting || [[ $stopping ]] || { broken=yes; break; }
    kill -INT $waiting 2>/dev/null # if we are to stop, psql cancels the CALL
  fi
done

# Told to stop, we end once what runs is done. After a signal it may end within the grace period,
# and the rest is released.
while running; [[ ! $stopping && ! $broken ]] && ((${#pids[@]} > 0)); do beat; sleep 0.1; done
end=$((SECONDS + GRACE))
while running; ((${#pids[@]} > 0 && SECONDS < end)); do sleep 0.1; done
((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null
wait
sql <<<"select jobs.worker_leave(:'name')" >/dev/null || broken=yes
[[ ! $broken ]]
