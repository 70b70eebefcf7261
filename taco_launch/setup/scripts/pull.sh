#!/bin/sh
# Pulls the training image; look.sh is prepended to this script.
#
# usage: pull.sh IMAGE NAME KIB MPIRUN REGISTRY USER PASSWORD_FILE
#
# IMAGE is what is asked of the registry; what comes gets NAME besides, where that is not empty. KIB is what has to be
# free. With a USER, there is a login at REGISTRY (empty: docker's own) first, whose password is in PASSWORD_FILE. That
# file, and what docker writes of the login, are gone at the end.

set -eu
image=$1
name=$2
kib=$3
mpirun=$4
registry=$5
user=$6
password=$7
: "${taco_progress:=/dev/null}"
settings=
end() {
  rm -rf ${password:+"$password"} ${settings:+"$settings"}
}
trap end EXIT
trap 'exit 143' TERM INT HUP # else dash ends without the one above

again() { # again WHAT COMMAND...: up to five times, unless the answer would be the same; else its words, and what to do
  what=$1
  shift
  tries=1
  until said=$("$@" 2>&1 >/dev/null); do
    case $said in
      *[Uu]nauthorized* | *denied* | *orbidden* | *"no basic auth"*)
        next='the registry refuses this: see container.registry in the inventory'
        ;;
      *"manifest unknown"* | *"not found"* | *"name unknown"* | *"invalid reference"*)
        next='the registry has no such image: correct its name (container.image in the inventory, or --image)'
        ;;
      *x509* | *"HTTP response to HTTPS"*)
        next='this host does not trust the registry: install its certificate, or see docker.insecure_registries'
        ;;
      *"no space left"*)
        next='free some space: docker image prune'
        ;;
      *)
        if [ "$tries" -lt 5 ]; then
          echo "try $tries: $said"
          sleep "$((1 << tries))" # 2, 4, 8, 16
          tries=$((tries + 1))
          continue
        fi
        next='does this host reach the registry? see docker.proxy and docker.mirrors in the inventory'
        ;;
    esac
    said=$(echo "$said" | tail -n 1)
    printf '%s\n' "error: $what: ${said#Error response from daemon: }" "tries: $tries" "$next" >&2
    return 1
  done
}

log_in() {
  # shellcheck disable=SC2086 # docker's own registry has no name here
  docker login --username "$user" --password-stdin $registry <"$password"
}

pull() { # pulls it; $taco_progress has how many layers are here, of those that docker names first
  { docker pull "$image" && echo pulled; } | {
    layers=0
    here=0
    last=
    while read -r line; do
      last=$line
      case $line in
        *': Pulling fs layer') layers=$((layers + 1)) ;;
        *': Already exists') layers=$((layers + 1)) here=$((here + 1)) ;;
        *': Pull complete') here=$((here + 1)) ;;
        *) continue ;;
      esac
      echo "$here of $layers layers" >"$taco_progress"
    done
    [ "$last" = pulled ] # a pipe has no exit code of docker
  }
}

root=$(docker info --format '{{.DockerRootDir}}')
free=$(df -Pk "$root" | { read -r _ && read -r _ _ _ free _ && echo "$free"; })
if [ "$free" -lt "$kib" ]; then
  echo "error: $root: $((free >> 10)) MiB are free, and $image takes about $((kib >> 10)) MiB: docker image prune" >&2
  exit 1
fi
if [ -n "$user" ]; then
  settings=$(mktemp -d)
  DOCKER_CONFIG=$settings
  export DOCKER_CONFIG
  again "docker login ${registry:-(docker.io)} as $user" log_in
fi
again "docker pull $image" pull
[ -z "$name" ] || docker tag "$image" "$name"
look "${name:-$image}" "$mpirun"
