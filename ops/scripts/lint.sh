# ./dev lint and ./dev check. Sourced.

# Before each commit: what lint and the tests find soonest.
inner_loop() {
  setup
  style
  cargo clippy --no-default-features --features "pg$PG_MAJOR faults pg_test" -- -D warnings
  cargo clippy -p jobs-tests -p postgres-jobs-cli --all-targets -- -D warnings
  run_tests core regress
}

style() {
  python3 ops/scripts/layers.py
  python3 ops/scripts/prose.py
  cargo fmt --all --check
}

lint() {
  local targets features
  setup
  style
  # The extension by itself, as it is built: beside others its dependencies would have other
  # features, and would be compiled once more. `test = false` keeps a target out of all.
  for targets in --all-targets '--test reliability --test packaging --test program --test console'; do
    # shellcheck disable=SC2086
    cargo clippy --workspace --exclude jobs $targets -- -D warnings
  done
  cargo clippy -p postgres-jobs --all-features --all-targets -- -D warnings
  for features in '' 'faults pg_test'; do
    cargo clippy --no-default-features --features "pg$PG_MAJOR $features" -- -D warnings
  done
  say "lint: clean"
}
