# cargo-pgrx, as CONTRIBUTING.md shows it: it runs tests inside a server of its own, and it has a
# server in which the extension can be created. tests/suites.sh sources this file.
#
# Nothing else needs cargo-pgrx, and it takes minutes to build. So `./dev test` does not run this
# suite, but `./dev reliability` does.

PGRX_VERSION=0.18.1

# FILTER is a part of the names of the tests to run.
suite_cargo_pgrx() {
  local data=$TMP/cargo_pgrx tree=$STATE/pg$PG_MAJOR-cargo_pgrx runas=() somebody=() error
  need_cargo_pgrx
  own_directory "$data"
  if is_root; then runas=(--runas postgres); fi
  private_postgres "$tree"
  forget_library "$tree"
  # The linker flag that cargo-pgrx would add to the library is for schemas that it generates, and
  # there is none.
  local -x JOBS_PG_TREE=$tree PATH=$STATE/bin:$PATH CARGO_PGRX_DISABLE_GC_SECTIONS_WORKAROUND=1
  libtest cargo_pgrx "$CARGO_PGRX" pgrx test "pg$PG_MAJOR" "${runas[@]}" --pgdata "$data" "${1:-on_purpose}"
  check cargo_pgrx "cargo pgrx test runs tests" test "${PASSED[cargo_pgrx]}" -gt 0
  # It starts its server as whoever calls it, which root may not do. So root calls it as somebody to
  # whom what is root's belongs.
  if is_root; then somebody=(unshare --user --map-user="$(id -u postgres)" --map-group="$(id -g postgres)"); fi
  if error=$("${somebody[@]}" true 2>&1); then
    check cargo_pgrx "cargo pgrx run has a server in which the extension can be created" cargo_pgrx_runs "${somebody[@]}"
  else
    skip cargo_pgrx "cargo pgrx run" "${somebody[*]}" "$error"
  fi
}

need_cargo_pgrx() {
  export PGRX_HOME=$CACHE/pgrx$PG_MAJOR CARGO_PGRX USER=${USER:-$(id -un)} # for pgrx-tests
  CARGO_PGRX=$(command -v cargo-pgrx) || CARGO_PGRX=
  mkdir -p "$PGRX_HOME" "$STATE/bin"
  # Without this file cargo builds pgrx anew each time. What it could say is in PGRX_PG_CONFIG_PATH.
  [[ -f $PGRX_HOME/config.toml ]] || touch "$PGRX_HOME/config.toml"
  sudo_shim
  is_pgrx "$CARGO_PGRX" || CARGO_PGRX=$CACHE/bin/cargo-pgrx
  is_pgrx "$CARGO_PGRX" && return
  say "Installing cargo-pgrx $PGRX_VERSION into $CACHE (once, a few minutes)"
  install_program cargo-pgrx "$PGRX_VERSION"
}

is_pgrx() { [[ -x $1 && $("$1" pgrx --version) == *" $PGRX_VERSION" ]]; }

# `cargo pgrx test --runas` wants sudo; root can do what it asks for without.
sudo_shim() {
  if ! is_root || [[ -x $STATE/bin/sudo ]]; then return; fi
  cat >"$STATE/bin/sudo" <<'SHIM'
#!/bin/sh
if [ "$1" = -u ]; then user=$2; shift 2; exec runuser -u "$user" -- env -u RUST_BACKTRACE "$@"; fi
exec "$@"
SHIM
  chmod +x "$STATE/bin/sudo"
}

cargo_pgrx_runs() { # AS-SOMEBODY..
  local log=$TMP/pgrx.log home
  home=$(mktemp -d) # $TMP is of user postgres
  echo "base_port = $(($(free_port $((20000 + RANDOM % 8000))) - PG_MAJOR))" >"$home/config.toml"
  PGRX_HOME=$home "$@" "$CARGO_PGRX" pgrx run "pg$PG_MAJOR" --profile quick >"$log" 2>&1 <<<"create extension jobs; select 'with ' || extname from pg_extension;"
  PGRX_HOME=$home "$@" "$CARGO_PGRX" pgrx stop "pg$PG_MAJOR" >/dev/null 2>&1 && rm -rf "$home"
  grep -q "^ with jobs$" "$log" || { cat "$log"; return 1; }
}
