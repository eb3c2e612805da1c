#!/usr/bin/env bash
# Step time of data-parallel ranks with the sums over lanes after the backward pass and beside it, with layers in 1 run and more, in turns.
#   run.sh ISOTRAIN CORPUS        MODELS="v3-256 …" PRECISIONS="bf16 …" RUNS="1 2 4" RANKS=2 THREADS=1 BATCH=2 STEPS=12 ROUNDS=5 to choose
set -euo pipefail
isotrain=$(realpath "$1")
corpus=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
ranks=${RANKS:-2}

# step times in ms, without the first two
measure() {  # MODEL PRECISION OVERLAP RUNS
  rm -rf "$work/run"
  mpirun -np "$ranks" "$isotrain" train --model.config "$here/../configs/$1.json" --model.precision "$2" \
    --data.corpus "$corpus" --run.dir "$work/run" --train.steps "${STEPS:-12}" --train.global_batch "${BATCH:-$ranks}" \
    --train.sequence 512 --repro.lanes "$ranks" --device.threads "${THREADS:-1}" --parallel.schedule interleaved \
    --parallel.virtual_stages "$4" --parallel.overlap "$3" </dev/null >"$work/log"
  grep -o '"step_s":[0-9.e-]*' "$work/run/metrics.jsonl" | cut -d: -f2 | tail -n +3 | awk '{ print 1000 * $1 }'
}

printf '%-10s %-5s %4s %11s %8s %8s\n' model prec runs sums best median
for model in ${MODELS:-v3-256}; do
  for precision in ${PRECISIONS:-fp32 bf16}; do
    rm -f "$work"/times-*
    for ((round = 0; round < ${ROUNDS:-5}; ++round)); do
      for runs in ${RUNS:-1 2 4}; do
        for overlap in false true; do measure "$model" "$precision" $overlap "$runs" >>"$work/times-$runs-$overlap"; done
      done
    done
    for runs in ${RUNS:-1 2 4}; do
      for overlap in false true; do
        read -r best median <<<"$(sort -g "$work/times-$runs-$overlap" | awk '{ x[NR] = $1 } END { printf "%.1f %.1f", x[1], x[int((NR + 1) / 2)] }')"
        printf '%-10s %-5s %4s %11s %8s %8s\n' "$model" "$precision" "$runs" "$([ $overlap = true ] && echo beside || echo afterwards)" "$best" "$median"
      done
    done
  done
done
