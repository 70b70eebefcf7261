#!/bin/sh
# Makes the folder of the leases, which are gone with every boot; wait.sh and create.sh follow this.
#
# Slots are leased by all users of the host, each of whom may make files there that only their owner removes. So it is a
# file system of its own, where it is new: who fills it does not fill the host's /run. Where it is there already jobs may
# hold locks in it, which a file system above it would hide.

make_leases() {
  (
    umask 077
    mkdir -p /run/taco-launch && chmod 0711 /run/taco-launch || exit
    exec 9>/run/taco-launch/leases.lock
    timeout 30 flock 9 || exit
    if [ ! -d /run/taco-launch/leases ]; then
      mkdir /run/taco-launch/leases || exit
      mount -t tmpfs -o mode=1777,size=64m,nr_inodes=65536,nosuid,nodev,noexec taco-launch /run/taco-launch/leases ||
        echo "the leases share the file system of /run: a user who fills it fills that" >&2
    fi
    chmod 1777 /run/taco-launch/leases
  )
}
