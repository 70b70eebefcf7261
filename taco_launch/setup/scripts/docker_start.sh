#!/bin/sh
# Starts dockerd, now and at boot, and waits until it answers.

set -eu

fail() { # fail TEXT...
  echo "error: $*" >&2
  exit 1
}

export LC_ALL=C DEBIAN_FRONTEND=noninteractive
if command -v dpkg >/dev/null && [ -n "$(dpkg --audit)" ]; then # an installation was cut off in the middle
  tries=24
  until said=$(dpkg --force-confold --configure -a 2>&1 </dev/null); do
    case $said in
      *'locked by another process'*) tries=$((tries - 1)) ;;
      *) tries=0 ;;
    esac
    [ "$tries" -gt 0 ] || fail "dpkg --configure -a: $(printf %s "$said" | tail -n 3 | tr '\n' ' ')"
    sleep 5
  done
fi
systemctl daemon-reload
began=$(date '+%Y-%m-%d %H:%M:%S')
systemctl enable docker
systemctl reset-failed docker >/dev/null 2>&1 || :
left=60
systemctl start docker || left=0
until docker version --format '{{.Server.Version}}' >/dev/null 2>&1; do
  if [ "$left" -le 0 ] || systemctl is-failed --quiet docker; then
    why=$(journalctl -u docker --since "$began" --no-pager -o cat 2>/dev/null |
      grep -E 'failed to start daemon|[Uu]nable to configure|level=(fatal|error)|[Ee]rror' | tail -n 1)
    fail "docker does not start: ${why:-see journalctl -u docker on the host}"
  fi
  left=$((left - 1))
  sleep 1
done
