#!/bin/sh
# Takes back a cluster's container, unit and files; idle.sh and reload.sh are prepended to this script.
#
# usage: teardown.sh CLUSTER CONTAINER UNFINISHED UNIT UNIT_FILE FOLDER HOST_FOLDER SECRETS STATE
#
# UNFINISHED is the container's name while it is made. FOLDER is what the container reads, HOST_FOLDER what the host runs;
# SECRETS is a file that a set-up left that was cut off.
# A container of that name that is not ours, and records of jobs, stay.

set -eu
cluster=$1
container=$2
unfinished=$3
unit=$4
unit_file=$5
folder=$6
host_folder=$7
secrets=$8
state=$9

free_ports() { # free_ports PATTERN: those that variants of such a name have leased
  for port in /var/lib/taco-launch/ports/*; do
    [ -f "$port" ] || continue
    # shellcheck disable=SC2254 # it is a pattern
    case $(cat "$port") in
      $1) rm -f "$port" ;;
    esac
  done
  rmdir /var/lib/taco-launch/ports 2>/dev/null || : # others have some
}

idle "$container"
if [ -e "$unit_file" ]; then
  systemctl --quiet disable --no-reload --now "$unit"
  rm -f "$unit_file"
  reload_units ''
  systemctl reset-failed "$unit" 2>/dev/null || : # it has not failed
fi
label='{{index .Config.Labels "taco-launch.cluster"}}'
for name in "$container" "$unfinished"; do
  if [ "$(docker container inspect --format "$label" "$name" 2>/dev/null)" = "$cluster" ]; then
    docker rm --force --volumes "$name" >/dev/null
  fi
done
rm -rf "$folder" "$host_folder"
rm -f "$secrets"
case $cluster in
  *@*) # a variant: its port, and nothing of its cluster's jobs
    free_ports "$cluster"
    rmdir "${folder%/*}" 2>/dev/null || : # other variants
    exit 0
    ;;
esac
free_ports "$cluster@*"
# what the head's container copied here, who had which slot, and which jobs waited; records of jobs stay
if [ ! -L "$state/jobs" ]; then # ranks write there
  rm -rf "$state/jobs/.agents" "$state/jobs/.slots" "$state/jobs/.queue" "$state/jobs/.variants"
fi
rmdir "$state/jobs" "$state" "${state%/*}" "${host_folder%/*}" 2>/dev/null || : # jobs, other clusters
