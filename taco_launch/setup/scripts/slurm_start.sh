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

fail() { # fail UNIT TEXT: with the last error of the unit, which systemd's own lines may follow
  why=$(journalctl -u "$1" -n 30 -o cat | grep -E 'fatal|error' | tail -n 1)
  echo "error: $1 $2${why:+: $why}" >&2
  echo "hint: on the host: journalctl -u $1" >&2
  exit 1
}

rm -f "$mark"
install -d -o slurm -g slurm /var/lib/slurm/slurmctld /var/log/slurm
install -d /var/lib/slurm/slurmd
for unit; do
  systemctl enable --quiet "$unit" || fail "$unit" "cannot be enabled"
  systemctl restart "$unit" || fail "$unit" "does not start"
done
sleep 2 # bad settings end a service only once it has read them
for unit; do
  systemctl is-active --quiet "$unit" || fail "$unit" "has ended"
done
mkdir -p "${mark%/*}"
(umask 077 && printf %s "$digest" >"$mark")
