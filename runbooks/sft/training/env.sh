#!/usr/bin/env bash
# Sourced by the jobs and by you, in bash: `source training/env.sh`. Sets REPO_ROOT (the folder of training/), SHARED_ROOT, RUNS_ROOT and
# HF_HOME, unless they are set already, and activates the virtual environment. Whatever is missing is one sentence and exit code 1.
#
# The environment is VENV, or the first of these that exists: SHARED_ROOT/.venv, the checkout's .venv, the one that is active already, the one
# that `seatrial runbook` was called from.
REPO_ROOT="$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")"
SHARED_ROOT="${SHARED_ROOT:-$REPO_ROOT}"
RUNS_ROOT="${RUNS_ROOT:-$SHARED_ROOT/results/training}"
HF_HOME="${HF_HOME:-$SHARED_ROOT/.cache/huggingface}"
export REPO_ROOT SHARED_ROOT RUNS_ROOT HF_HOME

_sft_environment() {
  local found
  for found in "${VENV:-}" "$SHARED_ROOT/.venv" "$REPO_ROOT/../../.venv" "${VIRTUAL_ENV:-}"; do
    if [[ -n $found && -f $found/bin/activate ]]; then
      printf '%s\n' "$found"
      return
    fi
    if [[ -n ${VENV:-} ]]; then
      printf '[ERROR] VENV is %s, and there is no %s/bin/activate: name a virtual environment, or leave VENV out\n' "$VENV" "$VENV" >&2
      return 1
    fi
  done
  found="$(cat -- "$REPO_ROOT/.python" 2>/dev/null)"
  if [[ -n $found && -f $(dirname -- "$found")/activate ]]; then
    dirname -- "$(dirname -- "$found")"
    return
  fi
  printf '[ERROR] %s: no virtual environment in %s/.venv: create one there, or name one in VENV\n' "$(hostname)" "$SHARED_ROOT" >&2
  return 1
}

_sft_activate() {
  local venv
  venv="$(_sft_environment)" || return 1
  # shellcheck disable=SC1091
  source "$venv/bin/activate" || return 1
  if ! python -P -c 'import seatrial_runbooks.sft' 2>/dev/null; then
    printf "[ERROR] %s: %s cannot import seatrial_runbooks.sft: pip install 'seatrial[sft]' there\n" "$(hostname)" "$(type -P python)" >&2
    return 1
  fi
}

# The last command: its exit code is that of `source`.
_sft_activate
