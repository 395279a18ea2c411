# What programs in Python and JavaScript need, in environments under $STATE, made once for each
# version of their lists. tests/suites.sh sources this file.

need_python() { # ENVIRONMENT LIST.. [-- PIP_OPTION..]
  local home=$STATE/$1 lists=() wanted
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do lists+=("$1") && shift; done
  [[ $# == 0 ]] || shift
  command -v python3 >/dev/null || need_packages python3-venv
  wanted=$(python3 --version && cat "${lists[@]}")
  [[ $(cat "$home/wanted" 2>/dev/null) != "$wanted" ]] || return 0
  say "Installing ${lists[*]}"
  rm -rf "$home"
  python3 -c "import ensurepip" 2>/dev/null || need_packages python3-venv
  python3 -m venv "$home" &&
    "$home/bin/pip" install -q --disable-pip-version-check "$@" "${lists[@]/#/-r}" &&
    echo "$wanted" >"$home/wanted"
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
