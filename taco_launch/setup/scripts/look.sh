#!/bin/sh
# look IMAGE MPIRUN: fails, and says what adds it, where an image lacks what a training container needs. Prepended to
# other scripts.

# what runs inside: names what is missing, a line each
# shellcheck disable=SC2016 # the inner shell's
inside='
PATH=$PATH:/usr/local/openmpi/bin:/opt/openmpi/bin:/usr/lib64/openmpi/bin:/usr/local/sbin:/usr/sbin:/sbin
for program in sshd ssh "$1"; do
  command -v "$program" >/dev/null || echo "$program"
done
if ! command -v python3 >/dev/null; then
  echo python3
elif ! python3 -c "import sys; sys.exit(sys.version_info < (3, 8))"; then
  echo "a python3 of 3.8 or newer ($(python3 -V 2>&1) is there)"
fi
'

look() {
  if ! lacks=$(docker run --rm --user 0 --network none --entrypoint /bin/sh "$1" -c "$inside" look "$2"); then
    echo "error: $1: cannot be looked into by: docker run --rm --user 0 --entrypoint /bin/sh $1" >&2
    return 1
  fi
  [ -n "$lacks" ] || return 0
  lacks=$(echo "$lacks" | { read -r all && while read -r each; do all="$all, $each"; done && :; echo "$all"; })
  echo "error: $1 lacks $lacks; make an image that has all: docker build -t NAME docker/train-from --build-arg BASE=$1" >&2
  return 1
}
