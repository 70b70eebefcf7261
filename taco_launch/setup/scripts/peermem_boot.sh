#!/bin/sh
# Has a kernel module loaded at boot by one place only: where the service that a package of nv_peer_mem brings does it, our
# file, which was put just now, goes again.
#
# usage: peermem_boot.sh MODULE FILE

set -eu

if [ "$1" = nv_peer_mem ] && systemctl --quiet is-enabled nv_peer_mem >/dev/null 2>&1; then
  rm -f "$2"
fi
