#!/usr/bin/env bash
# The main job, small: a DeepSeek-V3-shaped model (MLA, mixture of experts) learns English from the King James Bible
# on 4 MPI ranks (tensor 2 x pipeline 2), then continues a sentence.   demo.sh ISOTRAIN [FOLDER]
set -euo pipefail
isotrain=$(realpath "$1")
work=$(realpath -m "${2:-$(dirname "$1")/demo}")
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$work"
mkdir -p "$work"

"$here/bible.sh" >"$work/bible.txt"

# Each chapter is a document.
"$isotrain" prepare "$work/bible.txt" --documents paragraphs --tokenizer sentencepiece:2048 --validation 0.05 \
  --out "$work/corpus"

# More ranks than cores, and perhaps root in a container: say so to Open MPI, and keep off other networks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
mpirun -np 4 "$isotrain" train --config "$here/demo.cfg" --model.config "$here/demo.json" \
  --data.corpus "$work/corpus" --run.dir "$work/run"

echo
for prompt in "And God said" "The king of"; do
  "$isotrain" generate "$work/run" --prompt "$prompt" --tokens 60 --temperature 0.7 --top-k 40
  echo
done
echo "One rank would have given the same bits. To see it, for half a minute:"
echo "  $1 train --config $work/run/run.cfg --run.dir $work/one --tp 1 --pp 1 --run.max_seconds 30"
echo "  $1 diff $work/run $work/one"
