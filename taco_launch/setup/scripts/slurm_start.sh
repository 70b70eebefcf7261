#!/bin/sh
# Starts the services of Slurm with the settings that the host has now, and at boot.
#
# usage: slurm_start.sh MARK DIGEST UNIT...
#
# DIGEST is a checksum of those settings. MARK gets it once all services run: where this is cut off, it is done again.

set -eu
mark=$1
digest=$2
shift 2

fail() { # fail TEXT...
  echo "error: $*" >&2
  exit 1
}

rm -f "$mark"
install -d -o slurm -g slurm /var/lib/slurm/slurmctld /var/log/slurm
install -d /var/lib/slurm/slurmd
for unit; do
  systemctl enable --quiet "$unit" || fail "systemctl enable $unit failed"
  systemctl restart "$unit" || fail "$unit does not start: $(journalctl -u "$unit" -n 1 -o cat)"
done
sleep 2 # bad settings end a service only once it has read them
for unit; do
  systemctl is-active --quiet "$unit" || fail "$unit has ended: $(journalctl -u "$unit" -n 1 -o cat)"
done
mkdir -p "${mark%/*}"
(umask 077 && printf %s "$digest" >"$mark")
