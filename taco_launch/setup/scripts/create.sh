#!/bin/sh
# Makes the training container anew; look.sh, idle.sh and leases.sh are prepended to this script.
#
# usage: create.sh CONTAINER UNIT CLUSTER FOLDER STATE VARIABLES IMAGE MPIRUN NUMBER SOURCE... OPTION...
#
# SOURCE... are NUMBER paths of the user's that are mounted, and have to be there. OPTION... are the arguments of `docker create`, without a name. VARIABLES, where they name it, is a file that holds
# secrets, and goes. What was there of the cluster goes only once the new one is made, and not while a job runs in it. What
# is not ours is never removed.

set -eu
container=$1
unit=$2
cluster=$3
folder=$4
state=$5
variables=$6
image=$7
mpirun=$8
sources=$9
shift 9

trap 'rm -f "$variables"' EXIT
trap 'exit 143' TERM INT HUP # else dash ends without the one above

shared=/var/lib/taco-launch
new=taco-launch_$cluster # no cluster's container can have this name

ours() { # ours CONTAINER: it is there, and of this cluster
  label=$(docker container inspect --format '{{index .Config.Labels "taco-launch.cluster"}}' "$1" 2>/dev/null) &&
    [ "$label" = "$cluster" ]
}

while [ "$sources" -gt 0 ]; do
  if [ ! -e "$1" ]; then
    echo "error: $1, which container.mounts names, is not on this host" >&2
    echo "hint: mkdir -p $1 there, or take it out of container.mounts in the inventory" >&2
    exit 1
  fi
  shift
  sources=$((sources - 1))
done
if ours "$container"; then
  idle "$container"
fi
look "$image" "$mpirun"
umask 077
# mounted files and folders have to be there, and themselves: an earlier version let containers write here
for each in "${state%/*}" "$state" "$shared/agent" "$shared/clusters" "$folder" "$folder/ssh" "$folder/hosts" "$folder/ssh/ssh_config"; do
  if [ -L "$each" ]; then
    echo "error: $each is a symbolic link, and what it leads to would be shared: look who made it, and remove it" >&2
    exit 1
  fi
done
make_leases
mkdir -p "$state" "$shared/agent" "$folder/ssh"
# what is in them is the business of ssh_mesh, which rewrites them in place
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
  # versions before let the containers of all clusters write where the host's root has its jobs
  if docker container inspect --format '{{range .Mounts}}{{println .Source}}{{end}}' "$container" | grep -qxF "$shared/jobs" &&
    [ ! -e "$shared/jobs-of-before" ]; then
    mv "$shared/jobs" "$shared/jobs-of-before"
  fi
  docker rm --force --volumes "$container" >/dev/null
fi
docker rename "$new" "$container"
