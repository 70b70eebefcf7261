#!/bin/sh
# Has the sshd of the training container take its settings and host key as they are now, and waits until it listens.
#
# usage: sshd.sh CONTAINER SETTINGS PID_FILE
#
# Sessions that are open go on: sshd executes itself anew, and only closes its listening socket for that moment. One that
# does not run is started by the container's main process, which finds the files.

set -eu

container=$1
settings=$2
pid_file=$3

running() { # whether the sshd with these settings runs, and listens: then it has written its number, $pid
  pid=$(cat "$pid_file" 2>/dev/null) && [ -n "$pid" ] &&
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -e "$settings"
}

wait_until() { # wait_until COMMAND: 20 s
  tries=0
  until "$@"; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || return 1
    sleep 0.2
  done
}

is_up() {
  [ "$(docker container inspect --format '{{.State.Running}}' "$container" 2>&1)" = true ]
}

if ! wait_until is_up; then
  echo "container $container does not run: $(docker logs --tail 2 "$container" 2>&1 | tr '\n' ' ')" >&2
  exit 1
fi
if ! said=$(docker exec "$container" /bin/sh -c \
  'PATH=$PATH:/usr/sbin:/usr/local/sbin; mkdir -p /run/sshd; exec sshd -t -f "$1"' check "$settings" 2>&1); then
  echo "sshd of container $container refuses its settings: $said" >&2
  exit 1
fi
if running; then
  rm -f "$pid_file"
  kill -HUP "$pid"
fi
if ! wait_until running; then
  echo "sshd of container $container does not listen: $(docker logs --tail 3 "$container" 2>&1 | tr '\n' ' ')" >&2
  exit 1
fi
