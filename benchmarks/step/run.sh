#!/usr/bin/env bash
# Tokens per second of whole training steps (forward, backward, clipping, AdamW) of one rank, by model and precision, and of a
# peer program in turns with ours where one is given: PEER CONFIG PRECISION THREADS BATCH SEQUENCE must print a line
# "RESULT {… "tokens_per_s_best": X, "tokens_per_s_median": Y …}" (precision fp32 or autocast).
#   run.sh ISOTRAIN CORPUS [PEER]        MODELS="v3-256 …" THREADS=2 STEPS=8 to choose
set -euo pipefail
isotrain=$(realpath "$1")
corpus=$(realpath "$2")
peer=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
threads=${THREADS:-2}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none

# best and median of tokens_per_s over the steps but the first
rates() {
  grep -o '"tokens_per_s":[0-9.e+]*' "$1" | cut -d: -f2 | tail -n +2 | sort -g |
    awk '{ x[NR] = $1 } END { printf "%.0f %.0f", x[NR], x[int((NR + 1) / 2)] }'
}

printf '%-12s %-5s %8s %8s' model prec best median
[ -n "$peer" ] && printf ' %10s %10s %6s' 'peer best' 'median' 'ratio'
printf '   MFU\n'
for model in ${MODELS:-llama-256 v3-256 llama-512 v3-512}; do
  batch=4
  [[ $model == *-1024 ]] && batch=2
  for precision in fp32 bf16; do
    rm -rf "$work/run"
    "$isotrain" train --model.config "$here/../configs/$model.json" --model.precision "$precision" --data.corpus "$corpus" \
      --run.dir "$work/run" --train.steps "${STEPS:-8}" --train.global_batch $batch --train.micro_batch $batch \
      --train.sequence 512 --repro.lanes 1 --repro.slices 1 --device.threads "$threads" >"$work/log"
    read -r best median <<<"$(rates "$work/run/metrics.jsonl")"
    mfu=$(grep -o '"mfu":[0-9.e-]*' "$work/run/metrics.jsonl" | cut -d: -f2 | sort -g | tail -1)
    printf '%-12s %-5s %8s %8s' "$model" "$precision" "$best" "$median"
    if [ -n "$peer" ]; then
      "$peer" "$here/../configs/$model.json" $([ $precision = fp32 ] && echo fp32 || echo autocast) "$threads" $batch 512 >"$work/peer"
      pb=$(grep -o '"tokens_per_s_best": [0-9.]*' "$work/peer" | cut -d' ' -f2)
      pm=$(grep -o '"tokens_per_s_median": [0-9.]*' "$work/peer" | cut -d' ' -f2)
      printf ' %10.0f %10.0f %6.2f' "$pb" "$pm" "$(awk -v a="$best" -v b="$pb" 'BEGIN { print a / b }')"
    fi
    printf '   %.0f %%\n' "$(awk -v m="$mfu" 'BEGIN { print 100 * m }')"
  done
done
