#!/bin/sh
# Waits for the engine, for the scripts that it is prepended to.

began=$(date '+%Y-%m-%d %H:%M:%S')

answers() { # answers [SECONDS]: waits for the engine
  left=${1-60}
  until docker version --format '{{.Server.Version}}' >/dev/null 2>&1; do
    if [ "$left" -le 0 ] || systemctl is-failed --quiet docker; then
      return 1
    fi
    left=$((left - 1))
    sleep 1
  done
}

complaint() { # what the engine said when it did not start
  journalctl -u docker --since "$began" --no-pager -o cat 2>/dev/null |
    grep -E 'failed to start daemon|[Uu]nable to configure|level=(fatal|error)|[Ee]rror' | tail -n 1
}
