#!/bin/sh
# The first program inside: mounts what programs expect, runs the guest program, and ends the machine.
#
#   init.sh FOLDER PYTHON ROOT    the run's folder, the only place of the host that can be written; Python; this software
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null || true
mkdir -p /dev/shm /dev/net /dev/pts
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mkdir /run/host
mount -t hostfs -o "$1" none /run/host
ip link set lo up
cd "$3" || exit
"$2" -m testbed.virtual_kernel.guest /run/host 2>/run/host/guest.log </dev/null
echo o >/proc/sysrq-trigger
# The machine ends before this does.
sleep 60
