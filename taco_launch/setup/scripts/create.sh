#!/bin/sh
# Recreates the training container; look.sh, idle.sh and leases.sh are prepended to this script.
#
# usage: create.sh CONTAINER UNFINISHED UNIT CLUSTER FOLDER STATE VARIABLES IMAGE MPIRUN NUMBER ROOTS DATA... OPTION...
#
# UNFINISHED is the container's name while it is made. CLUSTER is what its label says, CLUSTER@VARIANT for a variant.
# DATA... are NUMBER paths that a job names, as MODE:PATH; ROOTS are the inventory's data_roots, a line MODE:PATH each. OPTION... are
# the arguments of `docker create`, without a name. VARIABLES is a file of secrets, where they name one, and is removed. The old container of
# the cluster is removed only once the new one is made, and not while a job runs in it. What is not ours is never removed.

set -eu
container=$1
new=$2
shift
unit=$2
cluster=$3
folder=$4
state=$5
variables=$6
image=$7
mpirun=$8
paths=$9
shift 9
roots=$1
shift

trap 'rm -f "$variables"' EXIT
trap 'exit 143' TERM INT HUP # else dash ends without the one above

shared=/var/lib/taco-launch

ours() { # ours CONTAINER: it is there, and of this cluster
  label=$(docker container inspect --format '{{index .Config.Labels "taco-launch.cluster"}}' "$1" 2>/dev/null) &&
    [ "$label" = "$cluster" ]
}

allowed() { # allowed MODE PATH: it is one of the roots or below, and where MODE is rw so is that root's
  while IFS=: read -r mode root; do
    case $1:$mode:$2/ in
      ro:r?:"$root"/* | rw:rw:"$root"/*) return 0 ;;
    esac
  done <<ROOTS
$roots
ROOTS
  return 1
}

data() { # data MODE PATH: refused where the inventory does not let jobs mount it
  if [ ! -e "$2" ]; then
    echo "error: $2, which --data names, is not on this host" >&2
    echo "hint: mkdir -p $2 there, or name another folder" >&2
    exit 1
  fi
  # as PATH is given: a link could lead elsewhere by the time that the container starts
  real=$(readlink -f "$2")
  if [ "$real" != "$2" ]; then
    echo "error: $2, which --data names, is a symbolic link, or behind one: it is $real" >&2
    if allowed "$1" "$real"; then
      echo "hint: --data $real:..., or name it as a data set in the inventory (data:)" >&2
    else
      echo "hint: name a folder below data_roots of the inventory" >&2
    fi
    exit 1
  fi
  if ! allowed "$1" "$real"; then
    echo "error: $2, which --data names, is outside the folders that jobs may mount ($1)" >&2
    echo "hint: add it to the inventory: data_roots: [{path: $2, mode: $1}]; or remove the container: taco-launch prune --help" >&2
    exit 1
  fi
  case $real/ in
    "$engine"/*) ;;
    *) case $engine/ in "$real"/*) ;; *) return ;; esac ;;
  esac
  echo "error: $2, which --data names, contains the folder of the Docker Engine ($engine) or lies in it: ranks could become root on this host" >&2
  echo "hint: name a folder that has only data, and remove from data_roots of the inventory what leads to $engine" >&2
  exit 1
}

engine=
if [ "$paths" -gt 0 ]; then # whatever names it: the inventory, daemon.json, or an option of dockerd
  engine=$(docker info --format '{{.DockerRootDir}}')
  engine=$(readlink -f "$engine")
fi
while [ "$paths" -gt 0 ]; do
  data "${1%%:*}" "${1#*:}"
  shift
  paths=$((paths - 1))
done
look "$image" "$mpirun"
umask 077
# mounted files and folders have to be there, and themselves
for each in "${state%/*}" "$state" "$shared/agent" "$shared/clusters" "${folder%/variants/*}" "${folder%/*}" "$folder" "$folder/ssh" "$folder/hosts" "$folder/ssh/ssh_config"; do
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
# which image that is, for the agent inside, which compares it with those of the job's other hosts and with the inventory's
id=$(docker container inspect --format '{{.Image}}' "$new")
digests=$(docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$id" | sed -n 's/.*@//p')
printf '%s\n' "$id" "$digests" "$image" >"$folder/image.new"
chmod 0644 "$folder/image.new"
if ours "$container"; then
  if ! idle "$container"; then # a job has started since the plan was made
    docker rm --force --volumes "$new" >/dev/null
    exit 1
  fi
  systemctl stop "$unit" 2>/dev/null || : # it may not be there yet
  docker rm --force --volumes "$container" >/dev/null
fi
# the variants see the processes of the container that is gone, and cannot start again: set-up makes them again
docker container ls --all --format '{{.Names}} {{.Label "taco-launch.cluster"}}' | while read -r name label; do
  case $label in
    "$cluster@"*) docker rm --force --volumes "$name" >/dev/null ;;
  esac
done
docker rename "$new" "$container"
mv -f "$folder/image.new" "$folder/image"
