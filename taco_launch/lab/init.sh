#!/bin/sh
# The first thing that runs in a lab host: opens what systemd and an inner Docker Engine write to, then becomes systemd.
# It is read as `sh -c`, so nothing of it lies on the host. All other global settings stay read-only, as Docker made them:
# against accidents, not against a root who sets out to change them. SYS_ADMIN, which an inner Docker Engine needs, can
# remount /proc/sys or mount /proc again; only a user namespace locks such mounts, and an inner engine cannot do in one.
set -eu

if [ -e /sys/fs/cgroup/cgroup.procs ]; then
  mount -o remount,rw,bind /sys/fs/cgroup # cgroup v2: a single mount, of this host's own part
else
  # cgroup v1: one mount per controller, each showing this host's own part only
  for mounted in /sys/fs/cgroup/*; do
    if mountpoint -q "$mounted"; then mount -o remount,rw,bind "$mounted"; fi
  done
  # With v1 alone no container learns when a cgroup becomes empty, and a service that waits for it (user@0, so the next
  # login) hangs now and then: v2 beside it tells. Only the machine's own root, which is none of ours, has no cgroup.events.
  mkdir /sys/fs/cgroup/unified
  if ! mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified || ! [ -e /sys/fs/cgroup/unified/cgroup.events ]; then
    umount /sys/fs/cgroup/unified || true
    rmdir /sys/fs/cgroup/unified
  fi
  # closed, so that systemd mounts no controllers besides, which would show the whole machine's
  mount -o remount,ro,bind /sys/fs/cgroup
fi

# settings of the network belong to this host alone
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,rw,bind /proc/sys/net

# Host keys of its own, at the first boot. No RSA key: it takes half a second, and every client of today knows the others.
for kind in ed25519 ecdsa; do
  file=/etc/ssh/ssh_host_${kind}_key
  [ -s "$file" ] || ssh-keygen -q -t "$kind" -N '' -f "$file"
done
exec /sbin/init
