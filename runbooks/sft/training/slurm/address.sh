#!/usr/bin/env bash
# The IPv4 address of this node on an interface: bash training/slurm/address.sh eth0
set -euo pipefail

found="$(ip -4 -o addr show dev "$1" 2>/dev/null | awk '{sub("/.*", "", $4); print $4; exit}')" || true
if [[ -z $found ]]; then
  have="$(ip -4 -o addr show | awk '{sub("/.*", "", $4); printf "%s %s %s", (NR > 1 ? "," : ""), $2, $4}')"
  echo "[ERROR] $(hostname) has no IPv4 address on '$1': set NIC to one of$have" >&2
  exit 1
fi
echo "$found"
