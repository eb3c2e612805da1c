#!/usr/bin/env bash
# The CPU recipe of nanoGPT's README on tiny Shakespeare: 4 layers, 4 heads, width 128, context 64, batch 12, 2000 steps,
# the last tenth of the text as validation. Published validation loss: 1.88. Ends with exit code 1 above it.
#   run.sh ISOTRAIN TEXT [FOLDER]
set -euo pipefail
isotrain=$(realpath "$1")
text=$(realpath "$2")
work=$(realpath -m "${3:-nanogpt_cpu}")
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$work"
mkdir -p "$work"

bytes=$(stat -c %s "$text")
head -c $((bytes * 9 / 10)) "$text" >"$work/train.txt"
tail -c +$((bytes * 9 / 10 + 1)) "$text" >"$work/validation.txt"
"$isotrain" prepare "$work/train.txt" --validation-input "$work/validation.txt" --tokenizer bytes --out "$work/corpus"

# 12 sequences a step are not cut into 8 lanes, so there are 4.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun -np 1 "$isotrain" train --model.config "$here/llama.json" --data.corpus "$work/corpus" --run.dir "$work/run" \
  --train.steps 2000 --train.global_batch 12 --train.sequence 64 --repro.lanes 4 \
  --optim.lr 2e-3 --optim.floor 0.1 --optim.warmup 100 --optim.beta2 0.99 --eval.every 500 --log.every 100 | tee "$work/log"

loss=$("$isotrain" eval "$work/run" | grep -o 'loss=[0-9.]*' | cut -d= -f2)
awk -v loss="$loss" 'BEGIN {
  printf "validation loss %.4f, published 1.88: %s\n", loss, loss <= 1.88 ? "reached" : "NOT reached"
  exit !(loss <= 1.88)
}'
