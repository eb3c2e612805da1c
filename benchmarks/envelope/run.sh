#!/usr/bin/env bash
# What the envelope costs: step time of one rank with 8 lanes and 4 slices against 1 and 1, in turns, equal batch and micro-batch.
#   run.sh ISOTRAIN CORPUS        MODELS="v3-512 …" THREADS=2 ROUNDS=3 to choose
set -euo pipefail
isotrain=$(realpath "$1")
corpus=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none

# best step time in seconds
measure() {  # MODEL PRECISION LANES SLICES
  rm -rf "$work/run"
  "$isotrain" train --model.config "$here/../configs/$1.json" --model.precision "$2" --data.corpus "$corpus" \
    --run.dir "$work/run" --train.steps "${STEPS:-6}" --train.global_batch 32 --train.micro_batch 4 --train.sequence 512 \
    --repro.lanes "$3" --repro.slices "$4" --device.threads "${THREADS:-2}" >"$work/log"
  grep -o '"step_s":[0-9.e-]*' "$work/run/metrics.jsonl" | cut -d: -f2 | tail -n +2 | sort -g | head -1
}
least() { awk -v a="$1" -v b="$2" 'BEGIN { print (a == "" || b < a) ? b : a }'; }

printf '%-12s %-5s %12s %12s %8s\n' model prec '1x1 s/step' '8x4 s/step' price
for model in ${MODELS:-llama-256 v3-256}; do
  for precision in fp32 bf16; do
    plain= enveloped=
    for ((round = 0; round < ${ROUNDS:-3}; ++round)); do
      plain=$(least "$plain" "$(measure "$model" "$precision" 1 1)")
      enveloped=$(least "$enveloped" "$(measure "$model" "$precision" 8 4)")
    done
    printf '%-12s %-5s %12.3f %12.3f %7.1f %%\n' "$model" "$precision" "$plain" "$enveloped" \
      "$(awk -v a="$plain" -v b="$enveloped" 'BEGIN { print 100 * (b / a - 1) }')"
  done
done
