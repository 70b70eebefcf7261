#!/bin/sh
# Has systemd keep the training container up, now and after every boot.
#
# usage: start.sh CONTAINER UNIT
#
# idle.sh and reload.sh stand in front of this. A container that would lose its GPUs when systemd reads its units anew is
# stopped first, and not while a job runs in it. One that lost them although it should not have starts anew as well.

set -eu
container=$1
unit=$2

running() {
  [ "$(docker container inspect --format '{{.State.Running}}' "$container")" = true ]
}

has_gpus() {
  timeout 60 docker exec "$container" nvidia-smi -L >/dev/null 2>&1
}

stop() { # not while a job runs
  idle "$container"
  systemctl stop "$unit" 2>/dev/null || : # it may not be there yet
  docker stop "$container" >/dev/null
}

had_gpus=no
if reload_needed "$unit"; then
  if gpu_containers | grep -Fqx "$container"; then
    stop
  elif running && has_gpus; then
    had_gpus=yes
  fi
fi
reload_units "$unit"
if [ "$had_gpus" = yes ] && ! has_gpus; then
  stop
fi
systemctl enable --no-reload "$unit"
begin=start
if systemctl --quiet is-active "$unit" && ! running; then
  begin=restart # its client waits for a container that somebody has renamed, and a new one has the name
fi
if ! systemctl "$begin" "$unit"; then
  journalctl --no-pager --output cat --lines 2 --unit "$unit" >&2
  exit 1
fi
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  if running && sleep 1 && running; then
    exit 0
  fi
  sleep 1
done
error=$(docker container inspect --format '{{.State.Error}}' "$container")
[ -n "$error" ] || error=$(docker logs --tail 1 "$container" 2>&1)
state=$(docker container inspect --format '{{.State.Status}}, exit code {{.State.ExitCode}}' "$container")
echo "error: $container does not stay up: $state${error:+: $error}; see journalctl -u $unit" >&2
exit 1
