#!/bin/sh
# Takes back what the last cluster of a host leaves: agent, leases, and what was set of docker.
#
# usage: teardown_host.sh STATE_FOLDER LEASES PROXY CONFIG
#
# STATE_FOLDER/docker/daemon.json, if it is there, is what CONFIG was without us. Records of jobs stay.

set -eu
state=$1
leases=$2
proxy=$3
config=$4

if [ -e "$state/docker/daemon.json" ]; then
  cat "$state/docker/daemon.json" >"$config" # its owner and mode stay
  [ "$(tr -d '[:space:]' <"$config")" != '{}' ] || rm -f "$config"
  if systemctl is-active --quiet docker; then
    systemctl reload docker
  fi
fi
if [ -e "$proxy" ]; then
  rm -f "$proxy"
  rmdir "${proxy%/*}" 2>/dev/null || : # others have files there
  systemctl daemon-reload
fi
rm -rf "$leases" "$state/agent" "$state/docker"
rmdir "$state/clusters" "$state" 2>/dev/null || : # other clusters, or jobs
