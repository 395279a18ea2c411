# Worker libraries, ours and those of others; run.py says how they are compared. What they need is
# put into the state directory, pinned.

case_workers() {
  local home=$STATE/workers said language
  rm -rf "$home"/{jobs_rust,sql_alone,go} "$home/npm/postgres-jobs/dist/esm/index.js"
  mkdir -p "$home/npm/postgres-jobs" "$home/go"
  for language in python typescript rust go; do
    said=$("workers_$language" 2>&1) ||
      result "worker libraries: $language" "-" "skipped" "ops/benches/workers/case.sh" "$(tail -n 1 <<<"$said" | tr '|\t' '  ')"
  done
  [[ -x $home/python/bin/python ]] || return 0 # it runs the others as well
  PYTHONPATH=$HERE/../../clients/python/src "$home/python/bin/python" "$HERE/workers/run.py" \
    "$home" "$RUNS" "$(awk -v scale="$SCALE" 'BEGIN { print 1.5 / scale }')" "$(scaled 500)" | keep
}

workers_python() {
  [[ -d $home/python ]] || python3 -m venv "$home/python" || return
  "$home/python/bin/pip" install -q -r "$HERE/workers/requirements.txt" || { rm -rf "$home/python" && return 1; }
}

# With a Node of their own, since the newest of the others run with no older one.
workers_typescript() {
  cp "$HERE"/workers/{package.json,package-lock.json,*.mjs} "$home/npm/" &&
    cp -r "$HERE"/../../clients/typescript/{src,package.json,tsconfig.json} "$home/npm/postgres-jobs/" || return
  cmp -s "$HERE/workers/package-lock.json" "$home/npm/installed" || {
    (cd "$home/npm" && npm ci --loglevel=error --no-audit --no-fund) || return
    cp "$HERE/workers/package-lock.json" "$home/npm/installed"
  }
  (cd "$home/npm/postgres-jobs" && ../node_modules/.bin/tsc)
}

workers_rust() {
  (cd "$HERE/.." && cargo build --quiet --profile quick -p jobs-bench-workers) || return
  cp "${CARGO_TARGET_DIR:-$HERE/../../target}"/quick/{jobs_rust,sql_alone} "$home/"
}

workers_go() {
  cd "$HERE/workers/go" && go build -o "$home/go/" ./jobs ./river ./faktory &&
    go build -o "$home/go/faktory_server" github.com/contribsys/faktory/cmd/faktory
}
