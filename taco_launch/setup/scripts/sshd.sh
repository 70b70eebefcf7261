#!/bin/sh
# Has the sshd of the training container take its settings and host key as they are now, and waits until it listens.
#
# usage: sshd.sh CONTAINER SETTINGS PID_FILE
#
# PID_FILE is a path in the container: the host takes no number of a process from there, the container's main process
# hands HUP on. Open sessions continue: sshd executes itself again, and only closes its listening socket for that
# moment. One that does not run is started by the main process, which finds the files.

set -eu

container=$1
settings=$2
pid_file=$3

inside() { # inside SCRIPT [ARGUMENT...]: the container decides what comes: its first 64 KiB, and the exit code of docker
  {
    ended=$({
      {
        code=0
        docker exec "$container" /bin/sh -c "$@" 2>&1 3>&- 4>&- || code=$?
        echo "$code" >&3
      } | head -c 65536 >&4
    } 3>&1)
  } 4>&1
  return "$ended"
}

logs() { # logs LINES: of the container, on one line; each may have any length
  docker logs --tail "$1" "$container" 2>&1 | head -c 16384 | tr '\n' ' '
}

is_up() {
  [ "$(docker container inspect --format '{{.State.Running}}' "$container" 2>&1)" = true ]
}

tries=0
until is_up; do
  tries=$((tries + 1))
  if [ "$tries" -ge 100 ]; then
    echo "container $container does not run: $(logs 2)" >&2
    exit 1
  fi
  sleep 0.2
done
# shellcheck disable=SC2016 # the inner shell's
if ! said=$(inside 'PATH=$PATH:/usr/sbin:/usr/local/sbin; mkdir -p /run/sshd; sshd -t -f "$1" && rm -f "$2"' \
  check "$settings" "$pid_file"); then
  echo "sshd of container $container refuses its settings: $said" >&2
  exit 1
fi
docker kill --signal HUP "$container" >/dev/null
# the one with these settings runs, and listens: then it has written its number
# shellcheck disable=SC2016 # the inner shell's
inside '
tries=0
until pid=$(cat "$2" 2>/dev/null) && [ -n "$pid" ] && grep -qsF -e "$1" "/proc/$pid/cmdline"; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || exit 1
  sleep 0.2 2>/dev/null || sleep 1
done
' wait "$settings" "$pid_file" || {
  echo "sshd of container $container does not listen: $(logs 3)" >&2
  exit 1
}
