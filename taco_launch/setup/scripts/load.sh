#!/bin/sh
# Loads the training image from the stream that image_copy.sh has left; look.sh is prepended to this script.
#
# usage: load.sh NAME MPIRUN ID...
#
# The engine has to call what comes by one of the IDs. The stream is gone at the end.

set -eu
name=$1
mpirun=$2
shift 2
root=$(docker info --format '{{.DockerRootDir}}')
stream=$root/tmp/taco-launch-image.tar
end() {
  rm -f "$stream"
}
trap end EXIT
trap 'exit 143' TERM INT HUP # else dash ends without the one above

if [ ! -f "$stream" ]; then
  echo "error: the stream of $name is not here: was docker started anew? set it up again" >&2
  exit 1
fi
if ! said=$(docker load -q -i "$stream" 2>&1); then
  echo "error: docker load: $(echo "$said" | tail -n 1)" >&2
  exit 1
fi
is=$(docker image inspect --format '{{.Id}}' "$name")
case " $* " in
  *" $is "*) look "$name" "$mpirun" ;;
  *)
    echo "error: $name was loaded, and is $is here instead of $*" >&2
    false
    ;;
esac
