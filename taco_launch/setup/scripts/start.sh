#!/bin/sh
# Has systemd keep the training container up, now and after every boot.
#
# usage: start.sh CONTAINER UNIT

set -eu
container=$1
unit=$2

running() {
  [ "$(docker container inspect --format '{{.State.Running}}' "$container")" = true ]
}

systemctl daemon-reload
systemctl enable "$unit"
if ! systemctl start "$unit"; then
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
echo "error: $container does not stay up: ${error:-$(docker logs --tail 1 "$container" 2>&1)}: journalctl -u $unit" >&2
exit 1
