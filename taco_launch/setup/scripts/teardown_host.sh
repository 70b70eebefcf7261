#!/bin/sh
# Takes back what the last cluster of a host leaves: agent, leases, and what was set of docker.
# idle.sh and reload.sh are prepended to this script.
#
# usage: teardown_host.sh STATE_FOLDER LEASES PROXY CONFIG [WITHOUT SHA256]
#
# WITHOUT is a file of what CONFIG is without us, SHA256 is of CONFIG as it was looked at. Records of jobs stay.

set -eu
state=$1
leases=$2
proxy=$3
config=$4
without=${5-}
looked_at=${6-}

fail() { # fail [TEXT...]: nothing has been changed
  [ -z "$without" ] || rm -f "$without"
  [ $# = 0 ] || echo "error: $*" >&2
  exit 1
}

for folder in "$state"/clusters/*; do
  if [ -e "$folder" ]; then
    fail "cluster ${folder##*/} has been set up on this host meanwhile, and uses the agent and the leases, which stay"
  fi
done
idle "a container of this host" || fail
if [ -n "$without" ]; then
  [ ! -L "$config" ] || config=$(readlink -f "$config")
  now=absent
  [ ! -e "$config" ] || now=$(sha256sum <"$config")
  if [ "${now%% *}" != "$looked_at" ]; then
    fail "$config is not as it was looked at, and stays as it is: it changed meanwhile (run teardown again), or it" \
      "holds carriage returns or bytes that are no UTF-8 (take them out)"
  fi
  if [ "$(tr -d '[:space:]' <"$without")" = '{}' ]; then
    rm -f "$config"
  else
    rm -f "$config.taco-launch"
    cp -p "$config" "$config.taco-launch" # its owner and mode stay
    cat "$without" >"$config.taco-launch"
    mv -f "$config.taco-launch" "$config"
  fi
  if systemctl is-active --quiet docker; then
    systemctl reload docker
  fi
fi
if [ -e "$proxy" ]; then
  rm -f "$proxy"
  rmdir "${proxy%/*}" 2>/dev/null || : # others have files there
  reload_units ''
fi
if root=$(docker info --format '{{.DockerRootDir}}' 2>/dev/null) && [ -n "$root" ]; then
  rm -rf "$root"/tmp/taco-launch-image* # of a copy that was cut off
fi
# it may be a plain folder; and a process may have it as its working directory, for which a lazy one does not wait
umount "$leases" 2>/dev/null || umount -l "$leases" 2>/dev/null || :
rm -rf "$leases" || echo "what is left of $leases goes with the next boot" >&2
if [ ! -L "$state/jobs" ]; then
  rm -rf "$state/jobs/.agents" "$state/jobs/.slots"
fi
rm -rf "$leases.lock" "$state/agent" "$state/docker"
rmdir "$state/jobs" "$state/clusters" "$state" 2>/dev/null || : # other clusters, or jobs
