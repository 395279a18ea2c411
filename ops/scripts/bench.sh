# ./dev bench: servers for ops/benches/run.sh. Sourced.

bench() { # [--page] [--against COMMIT] [--jobs N] [CASE..]
  local data=$STATE/bench socket against='' commit='' page='' jobs=100000 BROWSER=''
  while [[ ${1:-} == --* ]]; do
    case $1 in
      --page) page=1 ;;
      --against) against=${2:?dev: --against needs a commit} && shift ;;
      --jobs) jobs=${2:?dev: --jobs needs a number} && shift ;;
      *) die "bench does not know $1" ;;
    esac
    shift
  done
  [[ ! $against ]] || commit=$(git rev-parse -q --verify --short=12 "$against^{commit}") || die "there is no commit $against"
  setup
  install_extension release
  [[ ! $commit ]] || { need_packages valgrind && install_commit "$commit"; }
  # Without a browser the case says nothing of one.
  [[ $# -gt 0 && " $* " != *" console "* ]] || need_browser >&2 || BROWSER=''
  [[ $# -gt 0 && " $* " != *" workers "* ]] || need_packages redis-server # of Faktory
  rm -rf "$data" "$data-against"
  socket=$(short_directory)
  trap "end_bench '$data' '$socket'" EXIT
  bench_server "$data" "$socket" 5432
  [[ ! $commit ]] || PG_BIN=${PG_BIN/#$PG/$PG_AGAINST} bench_server "$data-against" "$socket" 5433
  PATH=$PG_BIN:$PATH PGHOST=$socket PGPORT=5432 PGUSER=postgres PAGE=$page AGAINST=$commit AGAINST_PORT=5433 STATE=$STATE JOBS=$jobs BROWSER=$BROWSER \
    bash ops/benches/run.sh "$@"
}

# On the disk of the checkout and with Postgres' own settings: without fsync it would compare
# something else. With as many connections as wait in one of the cases.
bench_server() { # DATA SOCKET_DIRECTORY PORT
  new_cluster "$1" max_connections=1050
  start_cluster "$1" "$2" "$3" ""
}

end_bench() { # DATA SOCKET_DIRECTORY
  local data
  for data in "$1" "$1-against"; do
    [[ ! -d $data ]] || stop_cluster "$data" || true
  done
  rm -rf "$1" "$1-against" "$2"
}

# The extension of another commit, in a tree of its own. Its files are as new as this call: what is
# older than the last build cargo takes for built.
install_commit() { # COMMIT
  local checkout=$STATE/against
  private_postgres "$PG_AGAINST"
  rm -rf "$checkout"
  mkdir -p "$checkout"
  git archive "$1" | tar -x -m -C "$checkout"
  say "Building and installing the extension of commit $1 (profile release)"
  (cd "$checkout" && CARGO_TARGET_DIR=$STATE/against-target build_into "$PG_AGAINST" release)
  rm -rf "$checkout"
}
