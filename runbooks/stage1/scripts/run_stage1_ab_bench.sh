#!/usr/bin/env bash
# The Stage 1 benchmark: variables become a plan, the plan is run by Seatrial. --help lists every variable, --dry-run starts nothing.
#   MODE=sweep INCLUDE=localhost:0,1 SWEEP_MICRO_BATCHES=160,192 OUTPUT_ROOT=outputs/x ./scripts/run_stage1_ab_bench.sh
set -euo pipefail
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/find_python.sh"
exec "$python" -P -m seatrial_runbooks.stage1.driver --runbook "$runbook" "$@"
