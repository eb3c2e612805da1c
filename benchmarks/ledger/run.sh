#!/usr/bin/env bash
# What the fingerprint of the weights and the ledger cost, as shares of a step of one rank: the fingerprint timed alone, steps with and
# without --repro.ledger in turns, the best of all rounds.
#   run.sh BUILD CORPUS        MODELS="v3-512 …" THREADS=2 ROUNDS=3 STEPS=4 BATCH=16 to choose
set -euo pipefail
build=$(realpath "$1")
corpus=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none
threads=${THREADS:-2}

# best step time in seconds
measure() {  # MODEL PRECISION LEDGER
  rm -rf "$work/run"
  "$build/isotrain" train --model.config "$here/../configs/$1.json" --model.precision "$2" --data.corpus "$corpus" \
    --data.verify quick --run.dir "$work/run" --train.steps "${STEPS:-4}" --train.global_batch "${BATCH:-16}" --train.sequence 512 \
    --repro.ledger "$3" --device.threads "$threads" >"$work/log"
  grep -o '"step_s":[0-9.e-]*' "$work/run/metrics.jsonl" | cut -d: -f2 | tail -n +2 | sort -g | head -1
}
least() { awk -v a="$1" -v b="$2" 'BEGIN { print (a == "" || b < a) ? b : a }'; }

printf '%-12s %-5s %8s %15s %8s %16s %8s\n' model prec s/step 'fingerprint ms' share 'with ledger s' price
for model in ${MODELS:-llama-256 v3-256}; do
  hash_ms=$("$build/benchmarks/ledger/fingerprint_speed" "$here/../configs/$model.json" "$threads")
  for precision in fp32 bf16; do
    plain= noted=
    for ((round = 0; round < ${ROUNDS:-3}; ++round)); do
      plain=$(least "$plain" "$(measure "$model" "$precision" false)")
      noted=$(least "$noted" "$(measure "$model" "$precision" true)")
    done
    awk -v model="$model" -v precision="$precision" -v plain="$plain" -v hash="$hash_ms" -v noted="$noted" 'BEGIN {
      printf "%-12s %-5s %8.3f %15.2f %6.2f %% %16.3f %6.1f %%\n", model, precision, plain, hash, 100 * hash / 1e3 / plain, noted,
        100 * (noted / plain - 1)
    }'
  done
done
