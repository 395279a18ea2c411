# The files of ops/monitoring/, against a database of which every metric has something to tell.
# tests/suites.sh sources this file.
#
# What the files say is compared with jobs.metrics() by tests/monitoring.py; Debian's
# postgres_exporter really runs, and promtool checks expressions and alerts. sql_exporter is in no
# package: its queries run, and what it makes of their rows is done as it does it.

MONITORED= # the directory with the copy of ops/monitoring/ that is looked at

suite_monitoring() {
  local dir=$TMP/monitoring
  need_packages python3-yaml
  need_programs prometheus-postgres-exporter prometheus
  begin_server monitoring tests/monitoring/postgresql.conf
  as_pg "$PG_BIN/psql" -X -q -h "$dir" -U postgres -d postgres -c "create database jobs"
  as_pg "$PG_BIN/psql" -X -q -h "$dir" -U postgres -d jobs -o /dev/null <tests/monitoring/setup.sql
  monitoring_copy files
  check monitoring "every query gives a viewer what jobs.metrics() says" monitored queries "$MONITORED" viewer
  check monitoring "both exporters have every metric, and no other" monitored complete "$MONITORED"
  check monitoring "dashboard and alerts use what there is, and all of it" monitored names "$MONITORED"
  check monitoring "the dashboard's expressions are PromQL" monitoring_dashboard
  check monitoring "the alerts fire when they should" monitoring_alerts
  check monitoring "what the alerts say runs" monitored annotations "$MONITORED"
  check monitoring "postgres_exporter gives what jobs.metrics() says" monitoring_exporter viewer
  check monitoring "control: who was granted nothing sees nothing" finds 'permission denied' monitored queries "$MONITORED" stranger
  check monitoring "control: nor does the exporter" finds 'the page does not have' monitoring_exporter stranger
  monitoring_controls
  end_server monitoring
}

monitored() { PATH=$PG_BIN:$PATH PGHOST=$TMP/monitoring PGPORT=5432 PGDATABASE=jobs /usr/bin/python3 tests/monitoring.py "$@"; }

monitoring_copy() { # NAME
  MONITORED=$TMP/monitoring/$1
  mkdir "$MONITORED"
  cp ops/monitoring/* tests/monitoring/alerts.test.yml "$MONITORED/"
}

monitoring_dashboard() {
  monitored rules "$MONITORED" >"$MONITORED/rules.yml" && promtool check rules "$MONITORED/rules.yml" &>"$MONITORED/out" || { cat "$MONITORED/out"; false; }
}

monitoring_alerts() { (cd "$MONITORED" && promtool test rules alerts.test.yml >out 2>&1) || { cat "$MONITORED/out"; false; }; }

# Beside a copy of the files, so that a control can change them.
monitoring_exporter() { # ROLE
  local port exporter status=0
  port=$(test_port)
  DATA_SOURCE_NAME="host=$TMP/monitoring port=5432 user=$1 dbname=jobs sslmode=disable" \
    timeout 120 prometheus-postgres-exporter --web.listen-address="127.0.0.1:$port" --extend.query-path="$MONITORED/postgres_exporter.yml" \
    --disable-default-metrics --disable-settings-metrics &>"$MONITORED/exporter.log" &
  exporter=$!
  { monitored get "http://127.0.0.1:$port/metrics" "$MONITORED/page" && monitored scraped "$MONITORED/page"; } || status=$?
  kill $exporter && wait $exporter || true
  return $status
}

# Each thing that is checked is made wrong in a copy.
monitoring_controls() {
  monitoring_copy forgotten
  sed -i '/- workers: .* hold jobs/d' "$MONITORED/postgres_exporter.yml"
  check monitoring "control: a metric that an exporter lacks" finds 'yml, jobs_workers: None' monitored complete "$MONITORED"
  check monitoring "control: a column that nobody declared" finds "'workers.* not in both" monitored queries "$MONITORED" viewer
  monitoring_copy wrong
  sed -i "s/metric = 'jobs_fetched_total'/metric = 'jobs_finished_total'/" "$MONITORED/postgres_exporter.yml"
  sed -i 's/jobs_workers{/jobs_worker{/; s/rate(jobs_inserted_total/rte(jobs_inserted_total/' "$MONITORED/grafana.json"
  sed -i 's/jobs_expired_leases > 0/jobs_expired_leases > 3/' "$MONITORED/alerts.yml"
  check monitoring "control: another value" finds 'jobs_fetched_total.* by jobs.metrics' monitored queries "$MONITORED" viewer
  check monitoring "control: another value on the exporter's page" finds 'jobs_fetched_total.* by jobs.metrics' monitoring_exporter viewer
  check monitoring "control: a name that does not exist" finds 'jobs_worker has no label' monitored names "$MONITORED"
  check monitoring "control: what is no PromQL" finds 'unknown function' monitoring_dashboard
  sed -i 's/FROM jobs.queues WHERE/FROM jobs.queue_s WHERE/' "$MONITORED/alerts.test.yml"
  check monitoring "control: an alert that says what does not run" finds 'queue_s" does not exist' monitored annotations "$MONITORED"
  check monitoring "control: an alert that does not fire" finds 'JobsLeasesExpired' monitoring_alerts
}

# It fails, and says why.
finds() { # REGEX COMMAND..
  local said
  if said=$("${@:2}" 2>&1); then echo "it is content"; return 1; fi
  grep -qE -- "$1" <<<"$said" || { echo "$said"; false; }
}

# Programs of Debian packages that would start a service when they are installed: they are only
# taken out of the package.
need_programs() { # PACKAGE..
  local package
  PATH=$CACHE/programs/usr/sbin:$CACHE/programs/usr/bin:$PATH
  for package; do
    command -v "$package" >/dev/null || one_at_a_time unpack_program "$package"
  done
}

unpack_program() { # PACKAGE
  local tmp
  ! command -v "$1" >/dev/null || return 0 # another unit has done so
  say "Unpacking Debian's $1 into $CACHE/programs"
  mkdir -p "$CACHE/programs"
  tmp=$(mktemp -d)
  if ! (cd "$tmp" && apt-get download -q "$1") && is_root; then
    apt-get update -q
    (cd "$tmp" && apt-get download -q "$1") || true
  fi
  dpkg-deb -x "$tmp"/*.deb "$CACHE/programs" || say "$1 is missing"
  rm -rf "$tmp"
}
