#!/usr/bin/env bash
# How much faster are two ranks than one, and does every layout give the bits of one rank? Two ranks with a thread each under every
# kind of parallelism, in turns with one rank: one thread with half the batch (weak scaling), one thread and two threads with the same
# batch (strong scaling). Best step of all rounds.
#   run.sh ISOTRAIN CORPUS        MODELS="v3-256 …" PRECISIONS=fp32 ROUNDS=3 STEPS=4 BATCH=16 to choose
set -euo pipefail
isotrain=$(realpath "$1")
corpus=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
batch=${BATCH:-16}

# the best step's tokens a second and the last fingerprint
measure() {  # MODEL PRECISION RANKS THREADS BATCH [LAYOUT…]
  rm -rf "$work/run"
  mpirun -np "$3" "$isotrain" train --model.config "$here/../configs/$1.json" --model.precision "$2" --data.corpus "$corpus" \
    --run.dir "$work/run" --data.verify quick --train.steps "${STEPS:-4}" --train.global_batch "$5" --train.micro_batch 1 \
    --train.sequence 512 --device.threads "$4" "${@:6}" >"$work/log"
  grep -o '"tokens_per_s":[0-9.e+]*' "$work/run/metrics.jsonl" | cut -d: -f2 | tail -n +2 | sort -g | tail -1
  tail -1 "$work/run/metrics.jsonl" | grep -o '"fingerprint":"[0-9a-f]*"' | cut -d'"' -f4
}

for model in ${MODELS:-llama-256 v3-256}; do
  layouts=('dp 2' 'tp 2' 'pp 2' 'pp 2 zb-h1')
  [[ $model == v3-* ]] && layouts+=('dp 2 ep 2')
  for precision in ${PRECISIONS:-fp32 bf16}; do
    declare -A best=() bits=()
    take() {  # NAME, then as for measure
      local rate fingerprint
      { read -r rate; read -r fingerprint; } < <(measure "$model" "$precision" "${@:2}")
      best[$1]=$(awk -v a="${best[$1]:-0}" -v b="$rate" 'BEGIN { print (b > a) ? b : a }')
      bits[$1]=$fingerprint
    }
    for ((round = 0; round < ${ROUNDS:-3}; ++round)); do
      take half 1 1 $((batch / 2))
      take one 1 1 "$batch"
      take threads 1 2 "$batch"
      for layout in "${layouts[@]}"; do
        options=()
        read -ra words <<<"$layout"
        for ((i = 0; i < ${#words[@]}; ++i)); do
          case ${words[i]} in
            dp | tp | pp | ep) options+=("--${words[i]}" "${words[++i]}") ;;
            *) options+=(--parallel.schedule "${words[i]}") ;;
          esac
        done
        take "$layout" 2 1 "$batch" "${options[@]}"
      done
    done
    printf '%s %s: one rank, one thread: %.0f tokens/s with batch %d, %.0f with batch %d\n' "$model" "$precision" \
      "${best[half]}" $((batch / 2)) "${best[one]}" "$batch"
    printf '  %-22s %9s %7s %7s   %s\n' layout tokens/s weak strong bits
    for layout in threads "${layouts[@]}"; do
      name="$layout"
      [ "$layout" = threads ] && name='1 rank x 2 threads'
      awk -v name="$name" -v rate="${best[$layout]}" -v half="${best[half]}" -v one="${best[one]}" -v same="$([ "${bits[$layout]}" = "${bits[one]}" ] && echo ok || echo DIFFERENT)" \
        'BEGIN { printf "  %-22s %9.0f %7.2f %7.2f   bits %s\n", name, rate, rate / half, rate / one, same }'
      [ "${bits[$layout]}" = "${bits[one]}" ]
    done
  done
done
