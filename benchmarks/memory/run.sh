#!/usr/bin/env bash
# Peak resident memory of every rank of a training run against what was foreseen, by model, precision, recomputation and layout.
#   run.sh ISOTRAIN CORPUS        MODELS="v3-512 …" PRECISIONS=fp32 RECOMPUTE=none LAYOUTS="1: 2:--tp,2 4:--tp,2,--pp,2" to choose
set -euo pipefail
isotrain=$(realpath "$1")
corpus=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

printf '%-12s %-5s %-10s %-14s %4s %9s %9s %8s\n' model prec recompute layout rank 'peak MiB' 'foreseen' error
for model in ${MODELS:-llama-256 v3-256 v3-512}; do
  for precision in ${PRECISIONS:-fp32 bf16}; do
    for recompute in ${RECOMPUTE:-none full}; do
      for layout in ${LAYOUTS:-1: 2:--tp,2 2:--pp,2 2:--dp,2 2:--ep,2}; do
        IFS=, read -ra options <<<"${layout#*:}"
        [[ $model == llama-* && $layout == *--ep* ]] && continue
        rm -rf "$work/run"
        mpirun -np "${layout%%:*}" "$isotrain" train --model.config "$here/../configs/$model.json" --model.precision "$precision" \
          --model.recompute "$recompute" --data.corpus "$corpus" --data.verify quick --run.dir "$work/run" --train.steps 2 \
          --train.global_batch 8 --train.micro_batch 4 --train.sequence 512 --repro.lanes 2 ${options[@]+"${options[@]}"} >"$work/log"
        for log in "$work"/run/logs/rank-*.log; do
          read -r peak foreseen <<<"$(grep -h 'peak resident' "$log" | sed 's/.*memory \([0-9]*\) MiB, \([0-9]*\) MiB.*/\1 \2/')"
          rank=$(basename "$log" .log)
          printf '%-12s %-5s %-10s %-14s %4d %9s %9s %7.1f %%\n' "$model" "$precision" "$recompute" "${options[*]:-one rank}" \
            "$((10#${rank#rank-}))" "$peak" "$foreseen" "$(awk -v a="$peak" -v b="$foreseen" 'BEGIN { print 100 * (a / b - 1) }')"
        done
      done
    done
  done
done
