#!/usr/bin/env bash
# What a job over a hostfile needs on the machine that starts it: pdsh, ninja, and a hostfile that names hosts. Exit code 0, or a line
# `[FATAL] …` and exit code 2. To be run before the job, in the command that a platform starts:
#   ./scripts/check_many_machines.sh /etc/deepspeed/hostfile && deepspeed --hostfile /etc/deepspeed/hostfile --launcher pdsh train.py …
# `seatrial doctor PLAN` checks the same, and the network between hosts, on every host at once.
set -uo pipefail

usage="usage: check_many_machines.sh [HOSTFILE]      (default /etc/deepspeed/hostfile)"
case "${1:-}" in
  -h | --help) echo "$usage" && exit 0 ;;
  -*) echo "$usage" >&2 && exit 1 ;;
esac
[[ $# -le 1 ]] || { echo "$usage" >&2 && exit 1; }
hostfile="${1:-/etc/deepspeed/hostfile}"

command -v pdsh >/dev/null || { echo "[FATAL] pdsh missing"; exit 2; }
command -v ninja >/dev/null || { echo "[FATAL] ninja missing"; exit 2; }
test -s "$hostfile" || { echo "[FATAL] hostfile missing/empty"; exit 2; }
# A hostfile of comments and blank lines is empty too: deepspeed would report it only after its imports.
hosts="$(grep -cE '^[[:space:]]*[^#[:space:]]+[[:space:]]+slots=[0-9]+' -- "$hostfile")"
[[ $hosts -gt 0 ]] || { echo "[FATAL] hostfile missing/empty"; exit 2; }

echo "[INFO] pdsh, ninja and a hostfile of $hosts hosts are here; \`seatrial doctor PLAN\` looks at every host"
