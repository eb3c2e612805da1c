#!/usr/bin/env bash
# Every benchmark that needs no peer, one after the other, on this machine.   run.sh BUILD
set -euo pipefail
build=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/../jobscripts/bible.sh" >"$work/bible.txt"
"$build/isotrain" prepare "$work/bible.txt" --documents paragraphs --tokenizer sentencepiece:4096 --out "$work/corpus"
for script in step envelope memory; do
  echo "== $script"
  "$here/$script/run.sh" "$build/isotrain" "$work/corpus"
done
for program in "$build"/benchmarks/*/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  echo "== $(basename "$program")"
  "$program"
done
