#!/usr/bin/env bash
# Debian packages that lanes beside the main one need. Installed when apt and root are there; else the lanes left out are named.
set -euo pipefail

declare -A packages=(
  [cluster]="pdsh openssh-server iproute2 nftables tini gcc libc6-dev"
  [browser]="chromium"
  [slurm]="munge slurm-wlm slurmdbd mariadb-server shellcheck"
)

missing() {
  for package in $1; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || echo "$package"
  done
}

wanted=""
for lane in "${!packages[@]}"; do
  lacking=$(missing "${packages[$lane]}" | tr '\n' ' ')
  [ -n "$lacking" ] || continue
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    wanted="$wanted $lacking"
  else
    echo "lane '$lane' left out: it needs $lacking(apt-get install, as root)"
  fi
done

if [ -n "$wanted" ]; then
  echo "installing system packages:$wanted"
  log=$(mktemp)
  # shellcheck disable=SC2086
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $wanted; } >"$log" 2>&1; then
    tail -n 5 "$log"
    echo "could not install:$wanted; the lanes that need them are left out"
  fi
  rm -f "$log"
fi
