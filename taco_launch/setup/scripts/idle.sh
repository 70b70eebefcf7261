#!/bin/sh
# Whether nothing runs in the training containers of this host; other scripts stand behind this.
#
# taco_typed is what the user types for taco-launch with this inventory. Jobs and leases are the containers' to write: what is no plain file is passed over, and nothing is made by looking.

idle_held() { # idle_held FILE: somebody holds a lock on it
  [ -f "$1" ] && [ ! -L "$1" ] || return 1
  # it may be a FIFO by now, which opens when somebody writes there
  # shellcheck disable=SC2016 # the inner shell's
  timeout 2 sh -c 'exec 9<"$1" && [ -f /dev/fd/9 ] || exit 0; flock -n 9 || exit 77' sh "$1" 2>/dev/null
  [ "$?" -eq 77 ]
}

idle_record() { # idle_record FILE: what a container's agent has written there; other users may have made the file
  [ -f "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] && timeout 2 head -c 16384 "$1"
}

idle_plain() { # idle_plain TEXT: it as a word that a terminal may show
  printf '%s' "$1" | tr -cd '[:alnum:]._-'
}

idle() { # idle CONTAINER: fails, and names the job, where one runs
  for lock in /var/lib/taco-launch/jobs/*/lock /var/lib/taco-launch/containers/*/jobs/*/lock; do
    if idle_held "$lock"; then
      job=${lock%/lock}
      job=$(idle_plain "${job##*/}")
      echo "error: job $job runs in $1" >&2
      echo "hint: wait for it, or: ${taco_typed-taco-launch} stop $job" >&2
      return 1
    fi
  done
  for lease in /run/taco-launch/leases/*; do
    if idle_held "$lease"; then
      job=$(idle_plain "$(idle_record "$lease.0" | sed -n '1s/.*"job": *"\([^"]*\)".*/\1/p')")
      echo "error: job ${job:-of an unknown name} runs in $1, it holds $(idle_plain "${lease##*/}")" >&2
      echo "hint: wait for it, or: ${taco_typed-taco-launch} stop ${job:-NAME}" >&2
      return 1
    fi
  done
}
