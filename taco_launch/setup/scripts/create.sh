#!/bin/sh
# Recreates the training container; look.sh, idle.sh and leases.sh are prepended to this script.
#
# usage: create.sh CONTAINER UNFINISHED UNIT CLUSTER FOLDER STATE VARIABLES IMAGE MPIRUN NUMBER DATA... OPTION...
#
# UNFINISHED is the container's name while it is made. CLUSTER is what its label says, CLUSTER@VARIANT for a variant.
# DATA... are NUMBER paths that a job names, and no inventory: they are checked more closely. OPTION... are the arguments of
# `docker create`, without a name. VARIABLES is a file of secrets, where they name one, and is removed. The old container of
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

trap 'rm -f "$variables"' EXIT
trap 'exit 143' TERM INT HUP # else dash ends without the one above

shared=/var/lib/taco-launch

ours() { # ours CONTAINER: it is there, and of this cluster
  label=$(docker container inspect --format '{{index .Config.Labels "taco-launch.cluster"}}' "$1" 2>/dev/null) &&
    [ "$label" = "$cluster" ]
}

data() { # data PATH: refused where who has the container could become the host's root by it
  # as PATH is given: a link could lead elsewhere by the time that the container starts
  real=$(readlink -f "$1")
  if [ "$real" != "$1" ]; then
    echo "error: $1, which --data names, is a symbolic link, or behind one: it is $real" >&2
    echo "hint: --data $real:..., or name it as a data set in the inventory (data:)" >&2
    return 1
  fi
  case ${real%/}/ in
    / | /bin/* | /boot/* | /dev/* | /etc/* | /lib/* | /lib32/* | /lib64/* | /libx32/* | /proc/* | /root/* | /run/* | /sbin/* | \
      /sys/* | /usr/* | /var/ | /var/lib/ | /var/lib/containerd/* | /var/lib/docker/* | /var/lib/taco-launch/* | /var/run/* | \
      /var/spool/*)
      echo "error: $1, which --data names, belongs to the host: who runs a rank could become its root" >&2
      echo "hint: keep data elsewhere; who looks after the inventory may mount it: container: {mounts: [...]}" >&2
      return 1
      ;;
  esac
}

while [ "$paths" -gt 0 ]; do
  if [ ! -e "$1" ]; then
    echo "error: $1, which --data names, is not on this host" >&2
    echo "hint: mkdir -p $1 there, or name another folder" >&2
    exit 1
  fi
  data "$1"
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
