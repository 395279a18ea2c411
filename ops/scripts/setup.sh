# What ./dev needs of the machine, and the extension's builds. Sourced.

PACKAGES=(build-essential pkg-config procps clang libclang-dev postgresql-common python3-venv)
# Finds names in the extension's scripts that another search_path could turn; PGLAST is its
# parser.
PGSPOT_VERSION=0.9.4
PGLAST_VERSION=7.21
MDBOOK_VERSION=0.5.4 # makes docs/ a site

setup() {
  need_rust
  need_packages "${PACKAGES[@]}"
  need_postgres "$PG_MAJOR"
  set_paths # again: user postgres may exist only now
  mkdir -p "$STATE"
  private_postgres "$PG"
  build_config
}

need_rust() {
  command -v cargo >/dev/null || die "cargo is missing: install Rust 1.95 or newer (for example with rustup), then run this again"
}

need_packages() { # PACKAGE..
  command -v dpkg-query >/dev/null || die "this needs Debian's packages $*"
  local missing=() package
  for package; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  is_root || die "missing packages; as root: apt-get install -y --no-install-recommends ${missing[*]}"
  say "Installing Debian packages: ${missing[*]}"
  # Debian then makes a cluster of its own and starts it; it is never used here.
  apt_get update
  apt_get install -y --no-install-recommends "${missing[@]}"
}

apt_get() { # ARG..
  one_at_a_time env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

# Units of tests want packages at once, and apt-get waits for no other one. What it starts, such as
# a server, does not keep the lock.
one_at_a_time() { # COMMAND..
  mkdir -p "$CACHE"
  (
    flock 9
    "$@" 9>&-
  ) 9>"$CACHE/packages.lock"
}

# cargo builds pgrx anew where this path is another one, so it is the same for all checkouts and
# trees.
build_config() {
  local script
  script=$(printf '%s\n' '#!/bin/sh' "exec \"\${JOBS_PG_TREE:-$(postgres_prefix "$PG_MAJOR")}/lib/postgresql/$PG_MAJOR/bin/pg_config\" \"\$@\"")
  [[ $(cat "$PGRX_PG_CONFIG_PATH" 2>/dev/null) != "$script" ]] || return 0
  mkdir -p "$CACHE"
  echo "$script" >"$PGRX_PG_CONFIG_PATH"
  chmod +x "$PGRX_PG_CONFIG_PATH"
}

is_pgspot() { [[ $("$PGSPOT" --version 2>/dev/null) == *" $PGSPOT_VERSION" ]]; }

# Only its suite needs it, so only that fails without it.
need_pgspot() {
  is_pgspot && return
  say "Installing pgspot $PGSPOT_VERSION into $CACHE (once)"
  python3 -m venv --clear "$CACHE/pgspot" &&
    "$CACHE/pgspot/bin/pip" install -q --disable-pip-version-check "pgspot==$PGSPOT_VERSION" "pglast==$PGLAST_VERSION"
}

# Optimising a program, or keeping what a debugger wants, takes longer than all that it does here.
# It is not built in the target directory, where what else is built would wait for it.
install_program() { # CRATE VERSION [OPTION..]
  env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=false cargo install --debug "$1" --version "=$2" --locked --root "$CACHE" "${@:3}"
}

is_mdbook() { [[ -x $1 && $("$1" --version) == "mdbook v$MDBOOK_VERSION" ]]; }

# Only the documentation needs it. Without its server, which would be most of it.
need_mdbook() {
  is_mdbook "$MDBOOK" && return
  need_packages build-essential
  say "Installing mdbook $MDBOOK_VERSION into $CACHE (once, a few minutes)"
  install_program mdbook "$MDBOOK_VERSION" --no-default-features --features search
}

# Postgres finds its own files relative to its binaries, so a copy of the three directories is a
# whole installation with its own extension directory. A new minor version makes a new copy.
private_postgres() { # TREE
  local tree=$1 from version part
  from=$(postgres_prefix "$PG_MAJOR")
  version=$("$from/lib/postgresql/$PG_MAJOR/bin/pg_config" --version)
  if [[ $(cat "$tree/copied" 2>/dev/null) != "$version" ]]; then
    say "Copying $version to $tree"
    if [[ $tree == "$PG" ]]; then stop; fi
    rm -rf "$tree" "$STATE/template$PG_MAJOR"
    for part in lib share include; do
      mkdir -p "$tree/$part/postgresql"
      cp -a "$from/$part/postgresql/$PG_MAJOR" "$tree/$part/postgresql/"
    done
    forget_library "$tree"
    rm -f "$tree"/share/postgresql/*/extension/jobs[.-]*
    echo "$version" >"$tree/copied"
  fi
}

# Before it is written anew: a server that was left behind keeps the old file instead of crashing.
forget_library() { # TREE
  rm -f "$("$1/lib/postgresql/$PG_MAJOR/bin/pg_config" --pkglibdir)/jobs.so"
}

install_extension() { # [PROFILE]
  stop # its backends have the old library mapped
  local profile=${1:-quick}
  # With a server that checks itself goes a library that does.
  if [[ $PG_MAJOR == "$ASSERTED_MAJOR" ]]; then profile=dev; fi
  say "Building and installing the extension (profile $profile)"
  build_into "$PG" "$profile"
}

# A build of its own with what only tests use: faults for their controls, and tests that run inside
# the server.
install_faults() {
  private_postgres "$PG_FAULTS"
  say "Building the extension once more, with faults and the tests inside the server"
  build_into "$PG_FAULTS" dev FEATURES='faults pg_test'
}

# cargo knows better than make what has to be built again.
build_into() { # TREE PROFILE [VARIABLE=VALUE]..
  rm -f "$1"/share/postgresql/*/extension/jobs--*.sql # of versions that are no more
  make -s -B install PG_CONFIG="$1/lib/postgresql/$PG_MAJOR/bin/pg_config" PROFILE="$2" "${@:3}"
}
