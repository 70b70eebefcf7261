#!/bin/sh
# The main process of the training container: keeps the image's environment for sessions, an sshd alive, and the queue going.
#
# It lies in the cluster's folder, which is mounted at its path on the host, to be read only. sshd drops the environment
# that the image gives (PATH, LD_LIBRARY_PATH, ...): a file in the container's own memory holds it for session.sh. What
# sshd needs comes after the container is made, so it is waited for; HUP has it read that again. Processes are seen with the
# host's numbers; when this one ends, the engine ends all others. A job that is not over has a mark in the queue's folder: it
# continues after a boot, or where what looks after it was killed and nobody calls.

set -u
trap : HUP # nothing is there yet to be told
# before anything is set: it may be a variable of the image, too
(umask 077 && export -p >/run/taco-launch/environment.new) &&
  mv -f /run/taco-launch/environment.new /run/taco-launch/environment

folder=${0%/*}
child=
sshd=
queue=
end() {
  trap '' TERM INT HUP
  [ -z "$child" ] || kill -s TERM "$child" 2>/dev/null
  [ -z "$queue" ] || kill -s TERM "$queue" 2>/dev/null
  exit 0
}
trap end TERM INT
trap '[ -z "$sshd" ] || kill -s HUP "$sshd"' HUP

pause() { # pause SECONDS: a trap does not wait for the end of it
  sleep "$1" &
  child=$!
  wait "$child"
  child=
}

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
# its folder of privilege separation, where the distribution's unit would make it
mkdir -p /run/sshd
# a locked account may not log in, not even by a key; `*` is no password either (shadow(5))
if grep -q '^root:!' /etc/shadow 2>/dev/null; then
  usermod -p '*' root
fi

jobs=${folder%/clusters/*}/containers/${folder##*/}/jobs
schedule() { # by the agent of any job that is not over; it ends at once where there is nothing to do, or somebody does it
  for mark in "$jobs/.queue/pending"/*; do
    [ -f "$jobs/${mark##*/}/agent.pyz" ] || continue
    (
      set -- "$(readlink -f "$jobs/${mark##*/}/agent.pyz")"
      # shellcheck disable=SC1091 # as for sessions: what is set here is none of a job's
      . /run/taco-launch/environment
      exec python3 -I -S "$1" schedule </dev/null
    )
    return
  done
}
while :; do
  schedule
  sleep 60
done &
queue=$!

while :; do
  while [ ! -s "$folder/ssh/sshd_config" ] || [ ! -s "$folder/ssh/host_key" ]; do
    pause 1
  done
  # by its whole path: it executes itself again for each connection, and on HUP
  "$(command -v sshd)" -D -e -f "$folder/ssh/sshd_config" &
  child=$!
  sshd=$child
  while :; do # a signal ends the waiting, too
    wait "$sshd"
    code=$?
    kill -s 0 "$sshd" 2>/dev/null || break
  done
  sshd=
  echo "sshd ended with exit code $code, and is started again"
  pause 2
done
