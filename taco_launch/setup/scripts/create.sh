#!/bin/sh
# Makes the training container anew; look.sh and idle.sh stand in front of this.
#
# usage: create.sh CONTAINER UNIT CLUSTER FOLDER IMAGE MPIRUN OPTION...
#
# OPTION... are the arguments of `docker create`, without a name. What was there of the cluster goes only once the new one
# is made, and not while a job runs in it. What is not ours is never removed.

set -eu
container=$1
unit=$2
cluster=$3
folder=$4
image=$5
mpirun=$6
shift 6

new=taco-launch_$cluster # no cluster's container can have this name

ours() { # ours CONTAINER: it is there, and of this cluster
  label=$(docker container inspect --format '{{index .Config.Labels "taco-launch.cluster"}}' "$1" 2>/dev/null) &&
    [ "$label" = "$cluster" ]
}

if ours "$container"; then
  idle "$container"
fi
look "$image" "$mpirun"
umask 077
mkdir -p /run/taco-launch/leases "$folder/ssh"
# mounted files have to be there; what is in them is the business of ssh_mesh, which rewrites them in place
for file in "$folder/hosts" "$folder/ssh/ssh_config"; do
  if [ ! -e "$file" ]; then
    : >"$file"
    chmod 0644 "$file"
  fi
done
if ours "$new"; then # of a run that was cut
  docker rm --force --volumes "$new" >/dev/null
fi
docker create --name "$new" "$@" >/dev/null
if ours "$container"; then
  if ! idle "$container"; then # a job has begun meanwhile
    docker rm --force --volumes "$new" >/dev/null
    exit 1
  fi
  systemctl stop "$unit" 2>/dev/null || : # it may not be there yet
  docker rm --force --volumes "$container" >/dev/null
fi
docker rename "$new" "$container"
