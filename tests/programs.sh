# What programs in Python and JavaScript need. Sourced.

# $STATE/ENVIRONMENT is a link to an environment outside the checkout: one for each version of its
# lists, which all checkouts use.
need_python() { # ENVIRONMENT LIST.. [-- PIP_OPTION..]
  local name=$1 lists=() home
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do lists+=("$1") && shift; done
  [[ $# == 0 ]] || shift
  command -v python3 >/dev/null || need_packages python3-venv
  python3 -c "import ensurepip" 2>/dev/null || need_packages python3-venv
  home=$CACHE/python/$name-$( (python3 --version && cat "${lists[@]}") | sha256sum | cut -c1-12)
  mkdir -p "$CACHE/python" "$STATE"
  (
    flock 9
    if [[ ! -e $home/is_whole ]]; then
      say "Installing ${lists[*]}"
      python3 -m venv --clear "$home" &&
        "$home/bin/pip" install -q --disable-pip-version-check "$@" "${lists[@]/#/-r}" &&
        touch "$home/is_whole" || exit
    fi
    # Left alone where it is right: programs of another suite start through it.
    [[ $(readlink "$STATE/$name") == "$home" ]] ||
      { rm -rf "${STATE:?}/$name" && ln -s "$home" "$STATE/$name"; }
  ) 9>"$home.lock"
}

# What a directory's package-lock.json names. Modules are looked for beside the program, so it is
# copied to them.
need_npm() { # DIRECTORY COPY [OPTION..]
  local wanted
  # A newer Node than Debian's brings its own npm, and Debian's would not go with it.
  command -v npm >/dev/null || need_packages nodejs npm
  mkdir -p "$2"
  wanted=$(node --version && cat "$1/package-lock.json")
  if [[ $(cat "$2/wanted" 2>/dev/null) != "$wanted" ]]; then
    say "Installing what $1 needs"
    cp "$1/package.json" "$1/package-lock.json" "$2/"
    (cd "$2" && npm ci --loglevel=error --no-audit --no-fund "${@:3}") || return
    echo "$wanted" >"$2/wanted"
  fi
  cp "$1"/*.mjs "$2/"
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
