# What packagers and their users get: versions, META.json, Makefile, Debian package, release,
# Dockerfile, scripts. tests/suites.sh sources this file.
#
# Nothing is built here: packages are made of what ./dev has installed. The Debian package is really
# installed, into Debian's own Postgres and a cluster made for it, and removed at the end, also when
# the suite stops half-way.

PACKAGING_PARTS=(versions meta make deb tools release docker systemd scripts)
PGXN_META_VERSION=0.7.0 # PGXN's own validator

suite_packaging() { # FILTER: a part's name
  local part
  # What is looked at here is inside of packages, and nobody keeps them.
  local -x DPKG_DEB_COMPRESSOR_LEVEL=0
  if [[ $PG_MAJOR != "$DEBIAN_MAJOR" ]]; then
    skip packaging "the package for Postgres $PG_MAJOR" "apt-get install postgresql-$PG_MAJOR" "this Debian has $DEBIAN_MAJOR only"
    return
  fi
  PACKAGING=$TMP/packaging
  STAGED=$PACKAGING/staged
  rm -rf "$PACKAGING"
  own_directory "$PACKAGING" # a socket will be in it
  need_packages git make
  need_extension
  packaging_stage "$STAGED"
  for part in "${PACKAGING_PARTS[@]}"; do
    [[ $part != *"$1"* ]] || "packaging_$part"
  done
}

# The tree that `make` leaves for Debian's pg_config, of the files that ./dev has installed.
packaging_stage() { # DIRECTORY
  local lib=$1/usr/lib/postgresql/$PG_MAJOR/lib extension=$1/usr/share/postgresql/$PG_MAJOR/extension
  mkdir -p "$lib" "$extension"
  cp "$PG/lib/postgresql/$PG_MAJOR/lib/jobs.so" "$lib/"
  cp "$PG/share/postgresql/$PG_MAJOR/extension/"jobs{.control,--*.sql} "$extension/"
}

# The program `jobs` beside it.
packaging_program() { ops/packaging/program "$STAGED/usr/bin/jobs" dev; }

# A copy of the checkout, to be changed by a control. Not by git: what is not committed yet is
# tested, too.
packaging_copy() { # NAME; the copy is $COPY
  COPY=$PACKAGING/$1
  rm -rf "$COPY"
  mkdir "$COPY"
  tar -c --exclude=node_modules --exclude=./.git --exclude=./.dev --exclude=./target --exclude=./dist . | tar -x --no-same-owner -C "$COPY"
}

# --- versions -------------------------------------------------------------------------------------

packaging_versions() {
  check packaging "all files name the same version" ops/packaging/check
  versions_wrong 'Cargo.lock, jobs-core' sed -i '/^name = "jobs-core"/{n;s/".*"/"9.9.9"/}' Cargo.lock
  versions_wrong 'jobs.control' sed -i "s/@CARGO_VERSION@/9.9.9/" jobs.control
  versions_wrong 'META.json' sed -i '0,/"version": /s/"version": .*/"version": "9.9.9",/' META.json
  versions_wrong 'META.json, provides' sed -i '/"docfile"/{n;s/"version": .*/"version": "9.9.9"/}' META.json
  versions_wrong 'META.json, the oldest Postgres' sed -i 's/"PostgreSQL": .*/"PostgreSQL": "9.6.0"/' META.json
  versions_wrong 'README.md' sed -i 's/This is version [0-9.]*[0-9]/This is version 9.9.9/' README.md
  versions_wrong 'CHANGELOG.md, the newest' sed -i '0,/^## \[/s/^## \[.*/## [9.9.9] - unreleased/' CHANGELOG.md
  versions_wrong 'CHANGELOG.md, headings of another form' sed -i '0,/^## \[/s/^## .*/&, soon/' CHANGELOG.md
  packaging_copy versions
  (cd "$COPY" && packaging_released)
  check packaging "an earlier version can be upgraded" ops/packaging/check "$COPY"
  versions_wrong 'sql, where upgrade scripts lead' packaging_released rm "sql/jobs--$EARLIER--$(ops/packaging/version).sql"
  versions_wrong 'sql/install, the versions before' packaging_released rm "sql/install/jobs--$EARLIER.sql"
  versions_wrong 'what was released as' packaging_released cp "sql/install/jobs--$EARLIER.sql" "sql/install/jobs--$(ops/packaging/version).sql"
  versions_wrong 'clients/typescript/src/version.ts' sed -i 's/"0.*"/"9.9.9"/' clients/typescript/src/version.ts
  versions_wrong 'rust-toolchain.toml' sed -i 's/1\.95/1.94/' rust-toolchain.toml
  versions_wrong 'ops/Dockerfile, rust' sed -i 's/rust:1\.95/rust:1.94/' ops/Dockerfile
  versions_wrong 'Cargo.toml, pgrx-tests' sed -i 's/^pgrx-tests = .*/pgrx-tests = "=0.1.0"/' Cargo.toml
  versions_wrong 'META.json: .*must be .9\.9\.9' sed -i '/^\[workspace.package\]/,/^\[/s/^version = .*/version = "9.9.9"/' Cargo.toml
}

versions_wrong() { # REGEX COMMAND..; the command is run in a copy
  packaging_copy versions
  (cd "$COPY" && "${@:2}")
  check packaging "control: a version is wrong: $1" finds "$1" ops/packaging/check "$COPY"
}

EARLIER=0.0.1 # was never released

# Makes the current directory, a copy of the checkout, what it would be like if that version had
# been.
packaging_released() { # [COMMAND]..; what is to be done then
  mkdir -p sql/install
  echo "-- $EARLIER" >"sql/install/jobs--$EARLIER.sql"
  echo "-- from $EARLIER" >"sql/jobs--$EARLIER--$(ops/packaging/version).sql"
  printf '\n## [%s] - 2020-01-01\n' "$EARLIER" >>CHANGELOG.md
  "$@"
}

# The versions before this one whose install scripts are kept.
released_before() { ls sql/install 2>/dev/null | sed -n 's/^jobs--\(.*\)\.sql$/\1/p' | grep -vFx "$(ops/packaging/version)"; }

# --- META.json ------------------------------------------------------------------------------------

packaging_meta() {
  local said meta=$PACKAGING/META.json field
  if ! said=$(need_pgxn_meta 2>&1); then
    cannot packaging "META.json by PGXN's validator" "cargo install --debug pgxn_meta --version =$PGXN_META_VERSION --locked" "$said"
    return
  fi
  check packaging "META.json is valid" pgxn_meta META.json
  for field in name version abstract maintainer license provides meta-spec; do
    python3 -c "import json, sys; meta = json.load(sys.stdin); del meta['$field']; print(json.dumps(meta))" <META.json >"$meta"
    check packaging "control: META.json without $field is refused" finds "$field" pgxn_meta "$meta"
  done
  sed 's/"version": "0/"version": "v0/' META.json >"$meta"
  check packaging "control: META.json with a version that is none is refused" finds version pgxn_meta "$meta"
}

pgxn_meta() { "$CACHE/bin/pgxn_meta" "$1"; }

need_pgxn_meta() {
  [[ $("$CACHE/bin/pgxn_meta" --version 2>/dev/null) != *"$PGXN_META_VERSION"* ]] || return 0
  say "Installing pgxn_meta $PGXN_META_VERSION into $CACHE (once)"
  install_program pgxn_meta "$PGXN_META_VERSION" -q
}

# --- Makefile -------------------------------------------------------------------------------------

# cargo is played by a script that writes down how it was called: the build itself is what ./dev
# does.
packaging_make() {
  local to=$PACKAGING/destdir stub=$PACKAGING/stub major
  packaging_copy make
  (cd "$COPY" && packaging_released)
  check packaging "make install takes PG_CONFIG and DESTDIR" make_installs "$DEBIAN_PG/bin/pg_config" "$to" "$STAGED"
  check packaging "and installs all files" make_installed "$to" "$(packaging_expected)"
  check packaging "control: another list of files is refused" finds '< /etc/jobs.conf' make_installed "$to" "/etc/jobs.conf"
  check packaging "make uninstall removes them" make -s -C "$COPY" uninstall PG_CONFIG="$DEBIAN_PG/bin/pg_config" DESTDIR="$to"
  check packaging "all of them" make_installed "$to" ""
  check packaging "control: without a server there is nothing to do" finds 'set PG_CONFIG' make -C "$COPY" install PG_CONFIG=/nowhere/pg_config

  mkdir -p "$stub"
  printf '%s\n' '#!/bin/bash' 'echo "$PGRX_PG_CONFIG_PATH: cargo $*" >>"$STUB/calls"' \
    'mkdir -p "$CARGO_TARGET_DIR/release" && echo built >"$CARGO_TARGET_DIR/release/libjobs.so"' >"$stub/cargo"
  chmod +x "$stub/cargo"
  for major in "$PG_MAJOR" 99; do make_config "$stub" "$major"; done
  check packaging "make builds by cargo" make_stubbed "$stub" all "$stub/pg_config$PG_MAJOR"
  check packaging "for the major of PG_CONFIG, with its feature alone" grep -qE \
    "^$stub/pg_config$PG_MAJOR: cargo build --lib --profile release --no-default-features --features pg$PG_MAJOR \$" "$stub/calls"
  check packaging "make install then builds nothing" make_stubbed "$stub" install "$stub/pg_config$PG_MAJOR" "$to"
  check packaging "as one call says" test "$(wc -l <"$stub/calls")" = 1
  check packaging "all files are there, earlier versions too" make_installed "$to" "$(packaging_expected "$COPY")"
  check packaging "the library is what cargo built" grep -qx built "$to/usr/lib/postgresql/$PG_MAJOR/lib/jobs.so"
  check packaging "the control file names the version" grep -q "^default_version = '$(ops/packaging/version)'" "$to/usr/share/postgresql/$PG_MAJOR/extension/jobs.control"
  touch "$COPY/src/lib.rs"
  check packaging "make builds again when a source is newer" make_stubbed "$stub" all "$stub/pg_config$PG_MAJOR"
  check packaging "as two calls say" test "$(wc -l <"$stub/calls")" = 2
  make_stubbed "$stub" all "$stub/pg_config99"
  check packaging "another major has another feature" grep -qE -- '--features pg99 $' "$stub/calls"
  check packaging "and a tree of its own" test -f "$stub/target/package/_usr_lib_postgresql_99_lib/built"
}

# Files below usr/ that must be installed of a checkout.
packaging_expected() { # [CHECKOUT]
  local script
  {
    echo "/usr/lib/postgresql/$PG_MAJOR/lib/jobs.so"
    for script in jobs.control "jobs--$(ops/packaging/version).sql" $(cd "${1:-.}" && find sql -name 'jobs--*.sql' -printf '%f\n'); do
      echo "/usr/share/postgresql/$PG_MAJOR/extension/$script"
    done
  } | sort -u
}

make_installs() { # PG_CONFIG DESTDIR STAGED
  make -s -C "$COPY" install PG_CONFIG="$1" DESTDIR="$2" STAGED="$3"
}

make_installed() { # DIRECTORY EXPECTED
  diff <(printf '%s' "${2:+$2$'\n'}") <(cd "$1" && find . -type f | sed 's/^\.//' | sort)
}

make_config() { # DIRECTORY MAJOR; a pg_config of that major
  printf '%s\n' '#!/bin/sh' "case \$1 in --version) echo 'PostgreSQL $2.1 (Debian)' ;; *) '$DEBIAN_PG/bin/pg_config' \$1 | sed 's:/$PG_MAJOR:/$2:' ;; esac" >"$1/pg_config$2"
  chmod +x "$1/pg_config$2"
}

make_stubbed() { # STUB TARGET PG_CONFIG [DESTDIR]
  env -u PGRX_PG_CONFIG_PATH STUB="$1" PATH=$1:$PATH CARGO_TARGET_DIR=$1/target make -s -C "$COPY" "$2" PG_CONFIG="$3" DESTDIR="${4:-}" >"$1/out"
}

# --- Debian package -------------------------------------------------------------------------------

packaging_deb() {
  need_packages debhelper lintian
  local dist=$PACKAGING/dist deb
  local -x SOURCE_DATE_EPOCH # a checkout without git has no date
  SOURCE_DATE_EPOCH=$(date +%s)
  check packaging "the Debian package is made" ops/packaging/deb "$STAGED" "$PG_MAJOR" "$dist"
  deb=$(echo "$dist/postgresql-$PG_MAJOR-jobs_$(ops/packaging/version)-1_"*.deb)
  [[ -f $deb ]] || return 0 # that was counted
  deb_controls "$dist" "$deb"
  check packaging "it has the name and version that it should" test "$(dpkg-deb -f "$deb" Package Version Section)" = \
    "$(printf '%s\n' "Package: postgresql-$PG_MAJOR-jobs" "Version: $(ops/packaging/version)-1" "Section: database")"
  check packaging "it depends on its server" grep -qE "^postgresql-$PG_MAJOR, .*libc6" <(dpkg-deb -f "$deb" Depends)
  check packaging "it installs all files of the extension" deb_has "$deb" "$(packaging_expected)"
  check packaging "the same files make the same package" deb_again "$deb"
  check packaging "lintian is content" deb_lintian "$dist"/*.deb
  deb_works "$deb"
}

deb_has() { # DEB EXPECTED; beside documents
  diff <(echo "$2") <(dpkg-deb --fsys-tarfile "$1" | tar -t | sed -n 's/^\.//; /\/$/d; /^\/usr\/share\/doc\//d; p' | sort)
}

deb_again() { # DEB
  ops/packaging/deb "$STAGED" "$PG_MAJOR" "$PACKAGING/again" >/dev/null && cmp "$1" "$PACKAGING/again/$(basename "$1")"
}

# Warnings count, too. It is not for Debian's archive, so it closes none of Debian's bugs.
deb_lintian() { # DEB..
  lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$@"
}

deb_controls() { # DIRECTORY DEB
  local tree=$PACKAGING/unpacked staged=$PACKAGING/incomplete
  dpkg-deb -R "$2" "$tree"
  rm "$tree/usr/share/doc/postgresql-$PG_MAJOR-jobs/copyright" "$tree/usr/share/postgresql/$PG_MAJOR/extension/"jobs--*.sql
  dpkg-deb --root-owner-group -b "$tree" "$tree.deb" >/dev/null
  check packaging "control: lintian finds a package without a copyright" finds 'no-copyright-file' deb_lintian "$tree.deb"
  check packaging "control: a package without scripts is found" finds 'jobs--.*\.sql' deb_has "$tree.deb" "$(packaging_expected)"
  packaging_stage "$staged"
  rm "$staged/usr/lib/postgresql/$PG_MAJOR/lib/jobs.so"
  check packaging "control: there is no package without the library" finds 'has no .*jobs\.so' ops/packaging/deb "$staged" "$PG_MAJOR" "$1"
}

# --- the Debian package of the program ------------------------------------------------------------

packaging_tools() {
  need_packages debhelper help2man lintian
  local dist=$PACKAGING/tools deb version
  local -x SOURCE_DATE_EPOCH
  SOURCE_DATE_EPOCH=$(date +%s)
  version=$(sed -n 's/^version = "\(.*\)"$/\1/p' cli/Cargo.toml)
  check packaging "control: there is no package without the program" finds 'has no usr/bin/jobs' ops/packaging/deb "$STAGED" tools "$dist"
  packaging_program || { check packaging "the program is built" false; return 0; }
  check packaging "the Debian package of the program is made" ops/packaging/deb "$STAGED" tools "$dist"
  deb=$(echo "$dist/jobs-tools_$version-1_"*.deb)
  [[ -f $deb ]] || return 0 # that was counted
  check packaging "it has the program, its units and its manual page" deb_has "$deb" "$(printf '%s\n' \
    /lib/systemd/system/jobs-console.service /lib/systemd/system/jobs-work@.service /usr/bin/jobs \
    /usr/share/bash-completion/completions/jobs /usr/share/lintian/overrides/jobs-tools /usr/share/man/man1/jobs.1.gz)"
  check packaging "it needs no files of Postgres" refuses grep -q postgresql <(dpkg-deb -f "$deb" Depends)
  check packaging "lintian is content with it" deb_lintian "$deb"
  dpkg-deb -x "$deb" "$PACKAGING/program"
  check packaging "the program runs" grep -q "^jobs $version" <("$PACKAGING/program/usr/bin/jobs" --version)
  check packaging "its manual page has every command" man_has_commands "$PACKAGING/program"
  program_connects "$PACKAGING/program/usr/bin/jobs"
}

# Whatever system it is on, it needs nothing of it, also where it looks up a name.
program_connects() { # PROGRAM
  local port place
  check packaging "it needs no library" is_static "$1"
  check packaging "control: another one does" refuses is_static "$PG_BIN/psql"
  port=$(test_port)
  begin_server program "" "$port"
  DATABASE_URL=postgresql://postgres@127.0.0.1:$port/postgres clients_sql "create extension jobs"
  for place in "localhost port=$port" "127.0.0.1 port=$port" "$TMP/program port=$port"; do
    check packaging "it connects to $place" "$1" top --once -d "host=$place user=postgres"
  done
  check packaging "it has TLS" finds 'TLS handshake' "$1" top --once -d "host=127.0.0.1 port=$port user=postgres sslmode=require"
  stop_cluster "$TMP/program/data"
  check packaging "the server's log is clean" tests/scan_log.sh "$TMP/program/data/server.log"
}

is_static() { ldd "$1" 2>&1 | grep -qE 'not a dynamic executable|statically linked'; }

man_has_commands() { # TREE
  local command
  for command in $("$1/usr/bin/jobs" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    zcat "$1/usr/share/man/man1/jobs.1.gz" | grep -qw "$command" || { echo "no $command"; return 1; }
  done
}

# --- Debian's own cluster -------------------------------------------------------------------------

PACKAGED=jobs_packaging # the cluster's name

deb_works() { # DEB
  local package=postgresql-$PG_MAJOR-jobs said old new
  if ! is_root; then
    skip packaging "the package is installed" "dpkg -i $(basename "$1")" "$(id -un) is not root"
    return
  fi
  if said=$(deb_in_the_way "$package"); then
    skip packaging "the package is installed" "dpkg -i $(basename "$1")" "$said"
    return
  fi
  new=$(ops/packaging/version)
  AT_END+=("deb_removed $package")
  deb_cluster || { check packaging "a cluster is created" false; return 0; }
  check packaging "control: without the package there is no extension" finds 'is not available' deb_sql postgres "create extension jobs"

  check packaging "the package is installed" deb_quietly dpkg -i "$1"
  check packaging "all its files are as they were packed" dpkg -V "$package"
  check packaging "what is installed already would be noticed" deb_quietly deb_in_the_way "$package"
  check packaging "the library is preloaded by pg_conftool and a restart" deb_preload
  deb_sql postgres "create database fresh" && deb_sql postgres "create database old"
  check packaging "CREATE EXTENSION installs the newest version" deb_says fresh "$new" "create extension jobs; select extversion from pg_extension where extname = 'jobs'"
  check packaging "a job is inserted, once" deb_says fresh "false true" "select string_agg(i::text, ' ') from (
    select (jobs.insert('mail', '{\"to\": 1}', '{\"by_args\": true}')).unique_skipped_as_duplicate as i from generate_series(1, 2)) s"
  check packaging "fetched and completed" deb_says fresh completed "select jobs.complete(id, token) from jobs.fetch()"
  deb_sql fresh "select jobs.insert('later', scheduled_at => now() + interval '1 s')" >/dev/null
  check packaging "the background worker makes a job available when it is due" deb_soon fresh "state = 'available' from jobs.jobs where kind = 'later'"
  check packaging "and writes down its maintenance" deb_soon fresh "bool_or(last_run_at is not null) from jobs.maintenance"
  if [[ ! $(released_before) ]]; then
    echo "nothing was released yet: there is no earlier version to upgrade from"
    check packaging "and none is installed" deb_says old 1 "select count(*) from pg_available_extension_versions where name = 'jobs'"
  fi
  for old in $(released_before); do
    deb_sql old "drop extension if exists jobs; create extension jobs version '$old'" 2>/dev/null
    deb_sql old "select jobs.insert('mail')" >/dev/null
    check packaging "ALTER EXTENSION UPDATE from $old" deb_says old "$new" "alter extension jobs update; select extversion from pg_extension where extname = 'jobs'"
    check packaging "and its job is kept" deb_says old "mail completed" "select kind || ' ' || jobs.complete(id, token) from jobs.fetch()"
  done
  check packaging "control: another answer is refused" finds "instead of '0.0.0'" deb_says old "0.0.0" "select extversion from pg_extension where extname = 'jobs'"
  packaging_installcheck

  pg_ctlcluster --skip-systemctl-redirect "$PG_MAJOR" "$PACKAGED" stop
  check packaging "the cluster's log is clean" tests/scan_log.sh "/var/log/postgresql/postgresql-$PG_MAJOR-$PACKAGED.log"
  check packaging "cluster and package are removed" deb_removed "$package"
  check packaging "and nothing of it is left" refuses deb_in_the_way "$package"
}

# `make installcheck` against the packaged extension: a test that passes, and the same one against a
# wrong expectation.
packaging_installcheck() {
  packaging_copy installcheck
  deb_sql postgres "alter system set jobs.enabled = off" && deb_sql postgres "select pg_reload_conf()" >/dev/null
  check packaging "make installcheck runs tests against it" deb_installcheck REGRESS="insert fetch"
  echo "this must not be there" >>"$COPY/tests/pg_regress/expected/fetch.out"
  check packaging "control: make installcheck with a wrong expectation fails" finds 'FAILED +fetch' deb_installcheck REGRESS="insert fetch"
}

deb_installcheck() { # VARIABLE=VALUE
  PGHOST=$PACKAGING PGPORT=5432 PGUSER=postgres CARGO_TARGET_DIR=$PACKAGING/target make -s -C "$COPY" installcheck PG_CONFIG="$DEBIAN_PG/bin/pg_config" "$1"
}

# Says what is there that this suite has not put there, or forgot.
deb_in_the_way() { # PACKAGE
  local file
  for file in "$DEBIAN_PG/lib/jobs.so" "/usr/share/postgresql/$PG_MAJOR/extension/jobs.control" "/etc/postgresql/$PG_MAJOR/$PACKAGED"; do
    [[ ! -e $file ]] || { echo "$file exists, and is not this suite's to overwrite (dpkg -P $1, pg_dropcluster)"; return; }
  done
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]] && echo "$1 is installed (dpkg -P $1)"
}

deb_cluster() {
  pg_createcluster "$PG_MAJOR" "$PACKAGED" --start-conf manual --socketdir "$PACKAGING" --locale C.UTF-8 -e UTF8 -- -A trust >/dev/null || return
  deb_set port 5432 # nobody else's: there is only its socket
  deb_set listen_addresses ''
  deb_set log_line_prefix '%m [%p] %e %b %d: '
  deb_set max_prepared_transactions 10
  deb_set fsync off
  deb_start start
}

deb_quietly() { "$@" >/dev/null; }
deb_set() { pg_conftool "$PG_MAJOR" "$PACKAGED" set "$1" "$2"; }
deb_start() { (cd / && env -u RUST_BACKTRACE pg_ctlcluster --skip-systemctl-redirect "$PG_MAJOR" "$PACKAGED" "$1"); }
deb_preload() { deb_set shared_preload_libraries jobs && deb_start restart; }

# Debian's psql, as a user of the package has it.
deb_sql() { # DATABASE SQL
  (cd / && "$DEBIAN_PG/bin/psql" -X -q -At -v ON_ERROR_STOP=1 -h "$PACKAGING" -p 5432 -U postgres -d "$1" -c "$2")
}

deb_says() { # DATABASE EXPECTED SQL
  local said
  said=$(deb_sql "$1" "$3") && [[ $said == "$2" ]] || { echo "'$said' instead of '$2'"; return 1; }
}

deb_soon() { # DATABASE BOOLEAN_EXPRESSION
  local n
  for ((n = 0; n < 300; n++)); do
    [[ $(deb_sql "$1" "select $2") == t ]] && return
    sleep 0.1
  done
  echo "after half a minute it is still not true that $2"
  return 1
}

deb_removed() { # PACKAGE; also what is there only in part
  local status=0
  if [[ -e /etc/postgresql/$PG_MAJOR/$PACKAGED ]]; then pg_dropcluster --stop "$PG_MAJOR" "$PACKAGED" || status=1; fi
  if dpkg-query -W "$1" &>/dev/null; then dpkg -r "$1" >/dev/null || status=1; fi
  return $status
}

# --- release --------------------------------------------------------------------------------------

packaging_release() {
  need_packages debhelper help2man zip unzip
  packaging_program || { check packaging "the program is built" false; return 0; }
  local version pg_config=$DEBIAN_PG/bin/pg_config name
  version=$(ops/packaging/version)
  name=jobs-$version
  packaging_copy release
  sed -i "0,/^## \[/s/^## \[.*/## [$version] - 2030-12-31/" "$COPY/CHANGELOG.md"
  sed -i 's/"maintainer": .*/"maintainer": "Some Body <somebody@postgresql.org>",/' "$COPY/META.json"
  release_commit init -q -b main
  release_commit add -A
  release_commit commit -q -m "a release"
  check packaging "a release is made" release_made "$pg_config"
  check packaging "it has the source, the packages and checksums" release_has "$name.zip" "postgresql-$PG_MAJOR-jobs_$version-1_" jobs-tools_ SHA256SUMS
  check packaging "the checksums are right" release_sums
  check packaging "the source is what git has, in a directory of its own" release_source "$name"
  check packaging "the package's maintainer is META.json's" test "$(dpkg-deb -f "$COPY/dist/postgresql-$PG_MAJOR-jobs_$version"-1_*.deb Maintainer)" = "Some Body <somebody@postgresql.org>"
  check packaging "nothing was tagged or changed, but the install script is kept" \
    test "$(release_commit tag)$(release_commit status --porcelain -uall)" = "?? sql/install/jobs--$version.sql"
  check packaging "as it is in the package" release_keeps "$version"
  release_commit add sql/install
  release_commit commit -q -m "its install script"
  check packaging "then it is still that version" ops/packaging/check "$COPY"
  packaging_pgxn "$COPY/dist/$name.zip"
  echo >>"$COPY/dist/$name.zip"
  check packaging "control: a changed file has another checksum" finds 'did NOT match' release_sums

  release_refused 'not committed' touch new_file
  release_refused 'has no date' sed -i '0,/^## \[/s/ - 2030-12-31/ - unreleased/' CHANGELOG.md
  release_refused 'what was released as' sed -i '1i -- changed' sql/10_schema.sql
  release_refused "no maintainer's address" sed -i 's/@postgresql\.org/@example.org/' META.json
  release_refused 'versions differ' sed -i 's/This is version [0-9.]*[0-9]/This is version 9.9.9/' README.md
  release_refused 'is tagged already' git tag "v$version"
  git -C "$COPY" tag -d "v$version" >/dev/null
  make_config "$PACKAGING" 99
  check packaging "control: no release: no feature for" finds 'no feature for' release_made "$PACKAGING/pg_config99"
}

release_commit() { git -C "$COPY" -c user.name=tests -c user.email=tests@localhost -c commit.gpgsign=false "$@"; }
release_made() { STAGED=$STAGED "$COPY/ops/packaging/release" "$@" &>"$PACKAGING/release.out" || { cat "$PACKAGING/release.out"; return 1; }; }
release_sums() { (cd "$COPY/dist" && sha256sum --quiet -c SHA256SUMS); }

release_has() { # NAME_BEGINS_WITH..; and nothing else
  local file begin
  [[ $(ls "$COPY/dist" | wc -l) == "$#" ]] || { ls "$COPY/dist"; return 1; }
  for begin; do
    file=$(echo "$COPY/dist/$begin"*)
    [[ -s $file ]] || { echo "no $begin"; return 1; }
  done
}

release_source() { # NAME
  diff <(unzip -Z1 "$COPY/dist/$1.zip" | grep -v '/$' | sort) <(git -C "$COPY" ls-files | sed "s:^:$1/:" | sort)
}

release_keeps() { # VERSION
  dpkg-deb --fsys-tarfile "$COPY/dist/postgresql-$PG_MAJOR-jobs_$1"-1_*.deb |
    tar -xO "./usr/share/postgresql/$PG_MAJOR/extension/jobs--$1.sql" | cmp - "$COPY/sql/install/jobs--$1.sql"
}

# The change is committed, but where that is what is tried; afterwards it is taken back.
release_refused() { # REGEX COMMAND..
  local head
  head=$(release_commit rev-parse HEAD)
  (cd "$COPY" && "${@:2}")
  [[ $1 == 'not committed' ]] || release_commit commit -q -a --allow-empty -m control
  check packaging "control: no release: $1" finds "$1" release_made "$DEBIAN_PG/bin/pg_config"
  release_commit reset -q --hard "$head"
  release_commit clean -q -f
}

# PGXN's client reads META.json of the archive, and calls make with its own variables.
packaging_pgxn() { # ZIP
  local said to=$PACKAGING/pgxn
  if ! said=$(need_python packaging tests/packaging/requirements.txt 2>&1); then
    cannot packaging "PGXN's client installs from the source" "pip install -r tests/packaging/requirements.txt" "$said"
    return
  fi
  mkdir "$to"
  check packaging "PGXN's client installs from the source" pgxn_installs "$1" "$to"
  check packaging "all files" make_installed "$to" "$(packaging_expected)"
  cp "$1" "$PACKAGING/incomplete.zip"
  zip -q -d "$PACKAGING/incomplete.zip" '*/Makefile'
  check packaging "control: not without a Makefile" finds 'Makefile' pgxn_installs "$PACKAGING/incomplete.zip" "$to"
}

pgxn_installs() { # ZIP DESTDIR
  env -u DESTDIR STAGED="$STAGED" DESTDIR="$2" "$STATE/packaging/bin/pgxnclient" install --yes --nosudo --pg_config "$DEBIAN_PG/bin/pg_config" "$1" \
    &>"$PACKAGING/pgxn.out" || { cat "$PACKAGING/pgxn.out"; return 1; }
}

# --- Dockerfile and scripts -----------------------------------------------------------------------

# There may be no engine to build it with, so it is only read.
packaging_docker() {
  local said
  if ! said=$(need_python packaging tests/packaging/requirements.txt 2>&1); then
    cannot packaging "the Dockerfile" "pip install -r tests/packaging/requirements.txt" "$said"
    return
  fi
  check packaging "hadolint is content with the Dockerfile" "$STATE/packaging/bin/hadolint" ops/Dockerfile
  check packaging "process 1 of the worker's image is an init" has_init ops/Dockerfile
  sed 's/"tini", "--", //' ops/Dockerfile >"$PACKAGING/Dockerfile"
  check packaging "control: an image without one is found" refuses has_init "$PACKAGING/Dockerfile"
  check packaging "compose.yaml is as the Compose specification has it" compose_is_valid examples/compose/compose.yaml
  sed 's/^    restart:/    restarts:/' examples/compose/compose.yaml >"$PACKAGING/compose.yaml"
  check packaging "control: a wrong compose.yaml is found" refuses compose_is_valid "$PACKAGING/compose.yaml" >/dev/null
  # shellcheck disable=SC2046
  check packaging "its worker is told its database" program_reads \
    $(awk '/^  worker:/ { is_worker = 1 } /^[a-z]/ { is_worker = 0 } is_worker && /^      [A-Z]+: / { print $1 }' examples/compose/compose.yaml)
  sed 's/^COPY \. \./ADD . ./; s/^WORKDIR .*/RUN cd source/' ops/Dockerfile >"$PACKAGING/Dockerfile"
  check packaging "control: hadolint finds what is bad" finds 'DL3020' "$STATE/packaging/bin/hadolint" "$PACKAGING/Dockerfile"
}

# The units that start a worker and the console.
packaging_systemd() {
  local unit
  need_packages systemd
  unit_verified() { # UNIT [NAME]; the program and its settings are not installed
    local copy=$PACKAGING/${2:-$(basename "$1")}
    sed 's/^ExecStart=[^ ]*/ExecStart=\/bin\/true/' "$1" >"$copy" &&
      systemd-analyze verify --man=no "$copy" 2>&1 | tee /dev/stderr | wc -l | grep -qx 0
  }
  for unit in ops/packaging/systemd/*.service; do
    check packaging "systemd is content with $unit" unit_verified "$unit"
    # shellcheck disable=SC2046
    check packaging "$unit: it is told its database" program_reads $(sed -n 's/^#   \(PG.*\)=.*/\1/p' "$unit")
    sed 's/^Restart=always/Restart=now and then/' "$unit" >"$PACKAGING/bad.service"
    check packaging "control: $unit made wrong is found" refuses unit_verified "$PACKAGING/bad.service" "$(basename "$unit")" &>/dev/null
  done
  check packaging "control: a setting that the program does not read is found" refuses program_reads PGHOST DATABASE_URL
}

# The program `jobs` knows its database by these variables.
program_reads() { # NAME..
  local name
  for name; do grep -q "\"${name%:}\"" cli/src/database.rs || return 1; done
  [[ $# -gt 0 ]]
}

# What is installed in the stage of the worker, and what that starts.
has_init() { # DOCKERFILE
  local stage
  stage=$(awk '/^FROM / { is_worker = / AS worker$/ } is_worker' "$1")
  grep -q 'apt-get install .* tini ' <<<"$stage" && grep -qx 'ENTRYPOINT \["tini", "--", "jobs"\]' <<<"$stage"
}

compose_is_valid() { "$STATE/packaging/bin/check-jsonschema" --builtin-schema vendor.compose-spec "$1"; }

packaging_scripts() {
  need_packages shellcheck
  local script scripts
  mapfile -t scripts < <(grep -rlE '^#!.*(bash|bin/sh)' dev .ci benches examples ops tests)
  for script in "${scripts[@]}" tests/*.sh; do
    check packaging "shellcheck finds no error in $script" shellcheck -S error -s bash "$script"
  done
  printf '%s\n' '#!/bin/bash' 'if [ $# = 1 ]; then echo one' >"$PACKAGING/bad.sh"
  check packaging "control: shellcheck finds an error" finds 'SC1' shellcheck -S error "$PACKAGING/bad.sh"
}
