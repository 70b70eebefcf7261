#!/bin/sh
# Takes back a cluster's container, unit and files; idle.sh stands in front of this.
#
# usage: teardown.sh CLUSTER CONTAINER UNFINISHED UNIT UNIT_FILE FOLDER
#
# UNFINISHED is the container's name while it is made.
# A container of that name that is not ours, and records of jobs, stay.

set -eu
cluster=$1
container=$2
unfinished=$3
unit=$4
unit_file=$5
folder=$6

idle "$container"
if [ -e "$unit_file" ]; then
  systemctl --quiet disable --now "$unit"
  rm -f "$unit_file"
  systemctl daemon-reload
  systemctl reset-failed "$unit" 2>/dev/null || : # it has not failed
fi
label='{{index .Config.Labels "taco-launch.cluster"}}'
for name in "$container" "$unfinished"; do
  if [ "$(docker container inspect --format "$label" "$name" 2>/dev/null)" = "$cluster" ]; then
    docker rm --force --volumes "$name" >/dev/null
  fi
done
if [ -e "$folder/firewall.sh" ]; then
  /bin/sh "$folder/firewall.sh" remove
fi
rm -rf "$folder"
