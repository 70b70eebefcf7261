#!/bin/sh
# Makes ready what a container's start needs: the folder of leases, the container's state folder, and the devices of
# drivers that come late. Run by the container's systemd unit; leases.sh is prepended to this script.
#
# usage: wait.sh SECONDS STATE DEVICE...
#
# A device that has not come after SECONDS is named, and the start is tried all the same: the engine says what it lacks,
# and the unit tries again.

set -u
left=$1
state=$2
shift 2
umask 077
make_leases || exit
mkdir -p "$state" || exit
case "$*" in
  */dev/nvidia*) # their files are made by the first to ask, where nvidia-persistenced is not there to do so
    if command -v nvidia-smi >/dev/null; then
      timeout 60 nvidia-smi -L >/dev/null 2>&1
    fi
    ;;
esac
for device; do
  if [ ! -e "$device" ]; then
    echo "waiting for $device"
    while [ ! -e "$device" ] && [ "$left" -gt 0 ]; do
      sleep 1
      left=$((left - 1))
    done
    if [ -e "$device" ]; then
      echo "$device is there"
    else
      echo "$device has not come: is its driver loaded? trying without it"
    fi
  fi
done
exit 0
