#!/usr/bin/env bash
# The King James Bible of Debian's package bible-kjv as plain text: one verse a line without its reference, an empty line between
# chapters.
set -euo pipefail
bible -f 'Ge1:1-Re22:21' </dev/null | awk '{
  split($1, at, ":")
  if (at[1] != chapter && NR > 1) print ""
  chapter = at[1]
  sub(/^[^ ]+ /, ""); print
}'
