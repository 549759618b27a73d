# Sourced by the scripts beside it. In: CONDA_ENV or SEATRIAL_PYTHON. Out: $python, an interpreter that has Seatrial, and $runbook, the
# folder of train.py; or a sentence and exit code 1.
#
# The variables of a conda environment are copied into this shell, so that no process stands between it and the driver: `conda run` would
# not pass a signal on.
runbook="$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")"
checkout="$(dirname -- "$(dirname -- "$runbook")")"
install=""

stop() {
  printf '[ERROR] %s\n' "$1" >&2
  exit 1
}

if [[ -n ${CONDA_ENV:-} ]]; then
  conda="$(type -P conda || true)"
  [[ -n $conda ]] || conda="${CONDA_EXE:-}"
  [[ -n $conda ]] || stop "CONDA_ENV is $CONDA_ENV, and there is no conda on PATH nor in CONDA_EXE: activate conda, or leave CONDA_ENV out"
  which=-n
  [[ $CONDA_ENV == */* ]] && which=-p
  said="$(mktemp)" taken="$(mktemp)"
  # Into a file, apart from what the environment's activation prints.
  if ! "$conda" run "$which" "$CONDA_ENV" bash -c 'env -0 >"$1"' bash "$taken" >"$said" 2>&1; then
    why="$(grep -v '^[[:space:]]*$' "$said" | tail -n 1 || true)"
    rm -f -- "$said" "$taken"
    stop "CONDA_ENV is $CONDA_ENV, and conda cannot use such an environment (${why:-no message}): \`conda env list\` shows those there are"
  fi
  # Not in a function, whose declarations are local. Functions and bash's own names are skipped.
  while IFS= read -r -d '' assignment; do
    case "${assignment%%=*}" in
      BASHOPTS | SHELLOPTS | BASH_VERSINFO | UID | EUID | PPID | _ | *[!A-Za-z0-9_]* | [0-9]*) ;;
      *) export "$assignment" ;;
    esac
  done <"$taken"
  rm -f -- "$said" "$taken"
  python="$(type -P python || type -P python3 || true)"
  install="conda run $which $CONDA_ENV pip install -e '$checkout[stage1]'"
elif [[ -n ${SEATRIAL_PYTHON:-} ]]; then
  python="$(type -P -- "$SEATRIAL_PYTHON" || true)"
  [[ -n $python ]] || stop "SEATRIAL_PYTHON is $SEATRIAL_PYTHON, and no such program can be started: name a Python, or leave it out"
elif [[ -x $checkout/.venv/bin/python ]]; then
  python="$checkout/.venv/bin/python"
elif [[ -s $runbook/.python ]] && python="$(type -P -- "$(<"$runbook/.python")")"; then
  # Written by `seatrial runbook`: the interpreter that Seatrial is installed for.
  install="$python -m pip install 'seatrial[stage1]'"
else
  python="$(type -P python3 || true)"
fi
[[ -n $python ]] || stop "there is no Python: install Python 3.11 or later, or name one in SEATRIAL_PYTHON"
[[ -n $install ]] || install="$python -m pip install -e '$checkout[stage1]'"
unset SEATRIAL_PYTHON # The interpreter is chosen: to the harness it would be a variable left over from another run.
"$python" -P -c 'import seatrial_runbooks' 2>/dev/null || stop "$python cannot import seatrial_runbooks: $install"
