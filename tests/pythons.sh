#!/usr/bin/env bash
# The harness alone, as its lock file gives it (every package by its hash), on every Python it claims: no torch, a campaign of the dummy
# workload, a verdict.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# pyenv shows only the versions that are asked for.
if command -v pyenv >/dev/null; then
  PYENV_VERSION=$(pyenv versions --bare | paste -sd:)
  export PYENV_VERSION
fi

passed=0 left_out=""
for version in 3.11 3.12 3.13; do
  python=$(command -v "python$version" || true)
  if [ -z "$python" ] || ! "$python" -c "" 2>/dev/null; then
    left_out="$left_out $version"
    continue
  fi
  "$python" -m venv "$scratch/$version"
  lock="$root/requirements/linux-$(uname -m)-py${version/./}.txt"
  install=("$scratch/$version/bin/python" -m pip install --disable-pip-version-check --quiet)
  if [ -f "$lock" ]; then
    "${install[@]}" --require-hashes -r "$lock"
    "${install[@]}" --no-deps --no-build-isolation "$root"
    "$scratch/$version/bin/python" -m pip check --disable-pip-version-check
  else
    echo "Python $version: no lock file for $(uname -m), so constraints.txt without hashes"
    "${install[@]}" -c "$root/constraints.txt" "$root"
  fi
  (
    cd "$scratch"
    ! "$scratch/$version/bin/python" -c "import torch" 2>/dev/null || { echo "Python $version: torch came along"; exit 1; }
    "$scratch/$version/bin/seatrial" run "$root/plans/dummy-smoke.yaml" --out "out-$version" | tail -n 3
    "$scratch/$version/bin/seatrial" sweep -P n=1,2 --repeats 2 --out "sweep-$version" -- python"$version" -c \
      "import time; [(time.sleep(0.002), print(f'iter {{i}}: loss 1.0, time 2.00ms', flush=True)) for i in range(20 * {n})]" | tail -n 3
  )
  echo "Python $version: a campaign and a sweep without torch ended in PASS"
  passed=$((passed + 1))
done
[ -z "$left_out" ] || echo "left out, not installed here:$left_out"
echo "$passed passed, 0 failed"
[ "$passed" -gt 0 ]
