#!/bin/sh
# Stops the services of Slurm, now and at boot, and removes its settings. Packages stay, as do munge and its key.
#
# usage: slurm_removal.sh MARK FILE...

set -eu

if jobs=$(pgrep -f '^slurmstepd: \[[0-9]') && [ -n "$jobs" ]; then
  echo "error: a job of Slurm runs on this host" >&2
  echo "hint: squeue shows it; wait for it or end it (scancel), then run teardown again" >&2
  exit 1
fi
for unit in slurmd slurmctld; do
  if systemctl cat "$unit" >/dev/null 2>&1; then
    systemctl disable --now --quiet "$unit"
  fi
done
rm -f "$@"
