#!/bin/sh
# The first process of a host, already inside its own network, UTS, IPC, PID and mount namespaces: gives the host its name, its folders
# and its sshd, and becomes tini, which reaps.
#
# usage: boot.sh NAME FOLDER TCP_RETRIES2      FOLDER holds: hosts, passwd, sshd_config, shared (paths, one a line), stage (empty)
set -e
name=$1 folder=$2 tcp_retries2=$3

echo "$name" >/proc/sys/kernel/hostname

# A new sysfs shows this host's interfaces and not the machine's; what the machine has mounted for control groups stays.
mount -t tmpfs tmpfs "$folder/stage"
if [ -d /sys/fs/cgroup ]; then
  mkdir "$folder/stage/cgroup"
  mount --rbind /sys/fs/cgroup "$folder/stage/cgroup"
fi
mount -t sysfs sysfs /sys
if [ -d "$folder/stage/cgroup" ]; then
  mount --rbind "$folder/stage/cgroup" /sys/fs/cgroup
fi
umount -l "$folder/stage"

# Folders that no two real hosts share. Paths below them that are to be shared are bound into the new folder before it takes the place.
own_folder() {
  mount -t tmpfs -o "mode=$2" tmpfs "$folder/stage"
  while read -r path; do
    case $path in
    "$1"/*)
      mkdir -p "$folder/stage${path#"$1"}"
      mount --bind "$path" "$folder/stage${path#"$1"}"
      ;;
    esac
  done <"$folder/shared"
  mount -n --move "$folder/stage" "$1"
}
own_folder /tmp 1777
own_folder /dev/shm 1777
own_folder /run 755
mkdir -p /run/sshd /run/lock /run/local

mount --bind "$folder/hosts" /etc/hosts
mount --bind "$folder/passwd" /etc/passwd

if [ "$tcp_retries2" != default ]; then
  echo "$tcp_retries2" >/proc/sys/net/ipv4/tcp_retries2
fi
/usr/sbin/sshd -f "$folder/sshd_config" -E "$folder/sshd.log"
exec tini -- sleep infinity
