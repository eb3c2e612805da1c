#!/usr/bin/env bash
# Peak resident memory of a training run against what was foreseen, per rank 0, by model, precision and recomputation.
#   run.sh ISOTRAIN CORPUS        MODELS="v3-512 …" RANKS=1 to choose
set -euo pipefail
isotrain=$(realpath "$1")
corpus=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

printf '%-12s %-5s %-10s %9s %9s %8s\n' model prec recompute 'peak MiB' 'foreseen' error
for model in ${MODELS:-llama-256 v3-256 v3-512}; do
  for precision in fp32 bf16; do
    for recompute in none full; do
      rm -rf "$work/run"
      mpirun -np "${RANKS:-1}" "$isotrain" train --model.config "$here/../configs/$model.json" --model.precision "$precision" \
        --model.recompute "$recompute" --data.corpus "$corpus" --run.dir "$work/run" --train.steps 2 \
        --train.global_batch 4 --train.micro_batch 4 --train.sequence 512 --repro.lanes 1 >"$work/log"
      read -r peak foreseen <<<"$(grep -h 'peak resident' "$work/run/logs/rank-00000.log" |
        sed 's/.*memory \([0-9]*\) MiB, \([0-9]*\) MiB.*/\1 \2/')"
      printf '%-12s %-5s %-10s %9s %9s %7.1f %%\n' "$model" "$precision" "$recompute" "$peak" "$foreseen" \
        "$(awk -v a="$peak" -v b="$foreseen" 'BEGIN { print 100 * (a / b - 1) }')"
    done
  done
done
