#!/usr/bin/env bash
# Prints the lines of a server log that must not be there, and fails if there is one.
#
#   scan_log.sh LOG [TIMES REGEX]..      lines matching REGEX are expected, up to TIMES of them
#
# A statement may fail, that is what tests are for; but a Rust panic, an internal error (SQLSTATE
# XX...), a crash or a lost session is a bug unless the test says that it causes it. The log needs
# `%e` (the SQLSTATE) in log_line_prefix.
# Three things are expected of every server: sessions and workers that are told to end by its own
# shutdown, clients and standbys that go away without waiting for an answer, and autovacuum workers
# whose database is copied, renamed or dropped.
set -euo pipefail

awk '
  BEGIN {
    for (i = 2; i + 1 < ARGC; i += 2) { rules++; left[rules] = ARGV[i]; rule[rules] = ARGV[i + 1] }
    ARGC = 2
  }
  /received (fast|smart) shutdown request/ { stopping = 1 }
  /database system is ready to accept|starting PostgreSQL/ { stopping = 0 }
  /PANIC: |FATAL: |panicked|\] XX[0-9A-Z][0-9A-Z][0-9A-Z] |was terminated by signal/ {
    if (/\] 08006 (client backend|walsender) .*FATAL: +connection to client lost/) next
    if (/\] (57P01|3D000) autovacuum worker .*FATAL: /) next
    if (stopping && /\] 57P0[13] .*FATAL: /) next
    for (r = 1; r <= rules; r++) if (left[r] > 0 && $0 ~ rule[r]) { left[r]--; next }
    print
    bad = 1
  }
  END { exit bad }
' "$@"
