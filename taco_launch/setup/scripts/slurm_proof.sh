#!/bin/sh
# Prints the state that Slurm has of each node as `NODE STATE`; then, for those that are idle, `ran HOST` as srun ran there.
#
# usage: slurm_proof.sh SECONDS NODE...      so long new nodes may take to register

set -eu
patience=$1
shift
nodes=$(printf '%s,' "$@")
nodes=${nodes%,}
export LC_ALL=C

while :; do
  states=$(sinfo --noheader --Node --partition=all --nodes="$nodes" --format='%N %T')
  waiting=$(printf '%s\n' "$states" | awk '$2 !~ /^(idle|mixed|allocated|completing)/ || /\*/' | wc -l)
  if [ "$waiting" = 0 ] || [ "$patience" -le 0 ]; then
    break
  fi
  patience=$((patience - 2))
  sleep 2
done
printf '%s\n' "$states"
idle=$(printf '%s\n' "$states" | awk '$2 == "idle" { printf "%s%s", comma, $1; comma = "," }')
if [ -n "$idle" ]; then
  count=$(printf '%s\n' "$states" | awk '$2 == "idle"' | wc -l)
  # shellcheck disable=SC2016 # the inner shell's
  srun --partition=all --nodelist="$idle" --nodes="$count" --ntasks="$count" --time=1 --immediate=30 --chdir=/ \
    sh -c 'echo "ran $SLURMD_NODENAME"'
fi
