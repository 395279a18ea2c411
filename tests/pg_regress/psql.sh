#!/bin/bash
# Runs psql for pg_regress: setup.psql, then a test, which is written again with the answers that
# came. A test is right if that leaves it as it is.
#
# An answer stands behind its statement after "-->", or below it if it is long: "none" for no rows,
# nothing for void, a single column without its name, few rows of one or two columns in a list.
set -o pipefail
test=$(mktemp) && trap 'rm -f "$test"' EXIT
cat >"$test"
{ cat "${0%/*}/setup.psql"; echo '\set ECHO all'; cat "$test"; } | "${@/#-a/-q}" 2>&1 | LC_ALL=C awk '
  FNR == NR { test[++last] = $0; next }
  # A result: setup.psql has \036 between its records, the last of which is "(n rows)".
  result != "" || /\036/ {
    result = result == "" ? $0 : result "\n" $0
    if (result ~ /\036\([0-9]+ rows?\)$/) { said(result); result = "" }
    next
  }
  # A line of the test, repeated before what it says. Empty ones are not, nor those under ECHO none.
  {
    for (n = at + 1; n < at + 8 && $0 != "" && $0 != test[n]; n++);
    if (n > last || $0 != test[n]) { answers[++count] = $0; next }
    while (++at <= n) if (test[at] !~ /^-->/) line(test[at])
    at = n
  }
  END { line("") }

  function said(result, record, rows, bars, listed, i) {
    rows = split(result, record, "\036") - 2
    bars = record[1]
    bars = gsub(/[|]/, "", bars)
    for (i = 2; i <= rows + 1; i++) listed = listed (i > 2 ? ", " : "") record[i]
    if (!rows) answers[++count] = "none"
    else if (rows == 1 && listed ~ /^[|]*$/) return
    else if (rows == 1 && !bars) answers[++count] = listed
    else if (length(record[1] listed) < 100 && (rows == 1 || bars < 2 && listed !~ /\n/)) answers[++count] = (bars ? record[1] ": " : "") listed
    else for (i = bars ? 1 : 2; i <= rows + 1; i++) answers[++count] = record[i]
  }

  # Writes the line before with its answers, and begins another one.
  function line(new, i) {
    sub(/ --> .*/, "", current)
    if (count == 1 && answers[1] !~ /\n/ && current !~ /^(\\|--|$)/ && length(current answers[1]) < 200) {
      current = current " --> " answers[1]
      count = 0
    }
    if (begun++) print current
    for (i = 1; i <= count; i++) {
      gsub(/\n/, "\n--> ", answers[i])
      print "--> " answers[i]
    }
    count = 0
    current = new
  }' "$test" -
