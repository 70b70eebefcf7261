#!/bin/sh
# Starts the removal of a variant, unless something runs in it or it was requested just now; reload.sh is prepended to this
# script, and firewall.sh, teardown.sh and the removal of its image follow it (stages/container.py).
#
# usage: variant_removal.sh USED SECONDS IMAGE FIREWALL_UNIT TEARDOWN_ARGUMENT...
#
# USED is the file whose time is when it was last requested, on the head. IMAGE is what goes with its last container, "" for none.

set -eu
used=$1
seconds=$2
# shellcheck disable=SC2034 # for what follows this
image=$3 firewall_unit=$4
shift 4

idle() { # idle CONTAINER: fails where more runs there than what keeps it up; teardown.sh asks
  docker container inspect "$1" >/dev/null 2>&1 || return 0
  [ "$(docker container inspect --format '{{.State.Running}}' "$1")" = true ] || return 0
  others=$(docker top "$1" -eo pid,args | awk 'NR > 1 && !/main\.sh/ && $2 != "sleep" && $2 !~ /sshd:?$/' | head -n 3)
  if [ -n "$others" ]; then
    echo "error: something runs in $1, which stays: $(printf '%s' "$others" | tr -c '[:alnum:] ._/-' ' ' | head -c 200)" >&2
    return 1
  fi
}

if [ -e "$used" ]; then
  age=$(($(date +%s) - $(stat -c %Y "$used")))
  if [ "$age" -lt "$seconds" ]; then
    echo "error: it was asked for $age s ago, and stays" >&2
    exit 1
  fi
fi
idle "$2"
