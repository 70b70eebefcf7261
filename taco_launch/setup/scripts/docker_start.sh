#!/bin/sh
# Starts dockerd, now and at boot, and waits until it answers; dpkg.sh and dockerd.sh are prepended to this script.

set -eu

export LC_ALL=C DEBIAN_FRONTEND=noninteractive

fail() { # fail TEXT...
  echo "error: $*" >&2
  exit 1
}

finish_dpkg
# where it runs, its unit is known, and containers could lose their GPUs by a reload (reload.sh); Debian's update-rc.d, which
# knows the init script beside it, would reload all the same
systemctl is-active --quiet docker || systemctl daemon-reload
SYSTEMCTL_SKIP_SYSV=1 systemctl enable --no-reload docker
systemctl reset-failed docker >/dev/null 2>&1 || :
left=60
systemctl start docker || left=0
if ! answers "$left"; then
  why=$(complaint) || :
  fail "docker does not start: ${why:-see journalctl -u docker on the host}"
fi
