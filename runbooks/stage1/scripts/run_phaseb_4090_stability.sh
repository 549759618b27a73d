#!/usr/bin/env bash
# Phase B: both sentinel groups three times, then the check of their stability. Variables as those of run_stage1_ab_bench.sh.
#   OUTPUT_ROOT=outputs/bench_4090_phaseB_diag INCLUDE=localhost:0,1 ./scripts/run_phaseb_4090_stability.sh
set -euo pipefail
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/find_python.sh"
exec "$python" -P -m seatrial_runbooks.stage1.phaseb --runbook "$runbook" "$@"
