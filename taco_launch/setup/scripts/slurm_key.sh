#!/bin/sh
# Gives munge its key: NEW, or without NEW a random one, unless it has a key.
#
# usage: slurm_key.sh KEY [NEW]

set -eu
key=$1
new=${2-}

if [ -z "$new" ]; then
  [ ! -s "$key" ] || exit 0
  new=$key.taco-launch
  (umask 077 && head -c 1024 /dev/urandom >"$new")
fi
chown munge:munge "$new"
chmod 0400 "$new"
mv -f "$new" "$key"
