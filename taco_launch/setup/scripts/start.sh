#!/bin/sh
# Has systemd keep the training container up, now and after every boot.
#
# usage: start.sh CONTAINER UNIT FILE NEW
#
# idle.sh and reload.sh are prepended to this script. NEW, where it is there, is what the unit's FILE is to be: it takes its place
# only once nobody is harmed by that, so that what was refused is still to be done. While a job runs in a container with
# GPUs of the toolkit's hook, systemd reads no units again. A container that would lose its GPUs by that is stopped first. One
# that lost them although it should not have starts again as well.

set -eu
container=$1
unit=$2
file=$3
new=$4

trap 'rm -f "$new"' EXIT
trap 'exit 143' TERM INT HUP # else dash ends without the one above

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

reads=no # systemd has to read the unit again
if [ -e "$new" ]; then
  [ "$(systemctl show -p LoadState "$unit")" != LoadState=loaded ] || reads=yes
elif reload_needed "$unit"; then
  reads=yes
fi
had_gpus=no
if [ "$reads" = yes ]; then
  if hook_containers | grep -Fqx -e "$container"; then
    idle "$container, which may lose its GPUs when systemd reads $unit again (daemon-reload)"
  fi
  undisturbed "the change of $unit" "$container"
  if gpu_containers | grep -Fqx -e "$container"; then
    stop
  elif running && has_gpus; then
    had_gpus=yes
  fi
fi
[ ! -e "$new" ] || mv -f "$new" "$file"
reload_units "$unit"
if [ "$had_gpus" = yes ] && ! has_gpus; then
  stop
fi
systemctl enable --no-reload "$unit"
begin=start
if systemctl --quiet is-active "$unit" && ! running; then
  begin=restart # its client waits for a container that somebody has renamed, and a new one has the name
elif [ "$reads" = yes ] && [ "$(systemctl show -p ActiveState "$unit")" = ActiveState=activating ]; then
  begin=restart # it may wait for devices that it no longer names
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
[ -n "$error" ] || error=$(docker logs --tail 1 "$container" 2>&1 | head -c 16384) # a line of any length
state=$(docker container inspect --format '{{.State.Status}}, exit code {{.State.ExitCode}}' "$container")
echo "error: $container does not stay up: $state${error:+: $error}; see journalctl -u $unit" >&2
exit 1
