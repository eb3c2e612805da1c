#!/usr/bin/env bash
# Every benchmark that needs no peer, one after the other, on this machine.   run.sh BUILD
set -euo pipefail
build=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/../jobscripts/bible.sh" >"$work/bible.txt"
"$build/isotrain" prepare "$work/bible.txt" --documents paragraphs --tokenizer sentencepiece:4096 --out "$work/corpus"
for script in step envelope memory layouts; do
  echo "== $script"
  "$here/$script/run.sh" "$build/isotrain" "$work/corpus"
done
echo "== fingerprint and ledger"
"$here/ledger/run.sh" "$build" "$work/corpus"
# heading, then the command
measure() {
  echo "== $1"
  "${@:2}"
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
programs=$build/benchmarks
measure "matrix product" "$programs/matmul/matmul_speed"
measure attention "$programs/attention/attention_benchmark"
measure elementwise "$programs/elementwise/benchmark_elementwise"
measure optimizer "$programs/optimizer/benchmark_optimizer"
measure reading "$programs/reading/reading_speed" "$work" 250
measure "pipeline schedules, 2 stages" mpirun -np 2 "$programs/schedules/schedule_speed" --model "$here/configs/llama-256.json"
measure "gradient reduction, 2 ranks" mpirun -np 2 "$programs/reduction/benchmark_reduction"
measure "checkpoint, 2 ranks" mpirun -np 2 "$programs/checkpoint/checkpoint_speed" "$work" 256 5
