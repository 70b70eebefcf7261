#!/bin/sh
# Has the service that came with nv_peer_mem load nothing at boot; reload.sh is prepended to this script.
#
# usage: peermem_service.sh UNIT MARK
#
# MARK is the file that says that set-up brought it. Who took the package away has taken the service with it.

set -eu
unit=$1
mark=$2

if systemctl --quiet is-enabled "$unit" 2>/dev/null; then
  case $(systemctl show -p FragmentPath "$unit") in
    *FragmentPath=/run/systemd/generator*) # an init script, for which update-rc.d or chkconfig does it, --no-reload or not
      undisturbed "disabling $unit, which is an init script,"
      ;;
  esac
  systemctl disable --no-reload "$unit"
fi
rm -f -- "$mark"
