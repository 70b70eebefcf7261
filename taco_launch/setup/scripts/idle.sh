#!/bin/sh
# Whether nothing runs in the training containers of this host; other scripts stand behind this.
#
# taco_typed is what the user types for taco-launch with this inventory. Jobs and leases are the containers' to write, and
# the leases every user's: what is no plain file is passed over, nothing is made by looking, and however many files there
# are, only those for whose inode the kernel has a lock are tried.

idle_held() { # idle_held FILE: somebody holds a lock on it
  [ -f "$1" ] && [ ! -L "$1" ] || return 1
  # it may be a FIFO by now, which opens when somebody writes there
  # shellcheck disable=SC2016 # the inner shell's
  timeout 2 sh -c 'exec 9<"$1" && [ -f /dev/fd/9 ] || exit 0; flock -n 9 || exit 77' sh "$1" 2>/dev/null && return 1
  [ -f "$1" ] && [ ! -L "$1" ] # what cannot be found out is held
}

idle_locked() { # idle_locked MOST: of the files of the input, lines of INODE PATH, those that are held; MOST are tried
  # a line `more` says that there are more: files may be made that have the inode numbers of locked ones elsewhere
  awk -v most="$1" 'FILENAME == "/proc/locks" { if ($2 == "FLOCK") { split($6, at, ":"); held[at[3]] = 1 } next }
    ($1 in held) && tried++ < most { sub(/^ *[0-9]+ +/, ""); print }
    END { if (tried > most) print "more" }' /proc/locks - |
    {
      until=$(($(date +%s) + 20)) # each may be made to take its two seconds
      while IFS= read -r file; do
        [ "$(date +%s)" -lt "$until" ] || file="more"
        if [ "$file" = more ] || idle_held "$file"; then
          printf '%s\n' "$file"
          [ "$file" != more ] || break
        fi
      done
    }
}

idle_jobs() { # idle_jobs STATE_FOLDER: INODE PATH of the lock of each job, of the host's and of all clusters
  find "$1"/jobs "$1"/containers/*/jobs -mindepth 2 -maxdepth 2 -name lock -type f -exec ls -1id {} + 2>/dev/null || :
}

idle_leases() { # idle_leases FOLDER: INODE PATH of each slot's lease
  find "$1" -mindepth 1 -maxdepth 1 -type f ! -name '*.*' \( -name 'slot-*' -o -name 'GPU-*' -o -name 'MIG-*' \) \
    -exec ls -1id {} + 2>/dev/null || :
}

idle_record() { # idle_record FILE: what a container's agent has written there; other users may have made the file
  [ -f "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] && timeout 2 head -c 16384 "$1"
}

idle_plain() { # idle_plain TEXT: it as a word that a terminal may show
  printf '%s' "$1" | tr -cd '[:alnum:]._-'
}

idle() { # idle CONTAINER: fails, and names the job, where one runs
  if [ ! -r /proc/locks ] || ! command -v awk >/dev/null; then
    echo "error: whether a job runs in $1 cannot be found out: there is no awk, or no /proc/locks" >&2
    return 1
  fi
  lock=$(idle_jobs /var/lib/taco-launch | idle_locked 1000 | head -n 1)
  if [ -n "$lock" ] && [ "$lock" != more ]; then
    job=${lock%/lock}
    job=$(idle_plain "${job##*/}")
    echo "error: job $job runs in $1" >&2
    echo "hint: wait for it, or: ${taco_typed-taco-launch} stop $job" >&2
    return 1
  fi
  lease=$(idle_leases /run/taco-launch/leases | idle_locked 1000 | head -n 1)
  if [ "$lock" = more ] || [ "$lease" = more ]; then
    echo "error: whether a job runs in $1 cannot be found out: too many files look like held locks" >&2
    echo "hint: who made them? ls -l /run/taco-launch/leases /var/lib/taco-launch/containers/*/jobs" >&2
    return 1
  fi
  if [ -n "$lease" ]; then
    job=$(idle_plain "$(idle_record "$lease.0" | sed -n '1s/.*"job": *"\([^"]*\)".*/\1/p')")
    echo "error: job ${job:-of an unknown name} runs in $1, it holds $(idle_plain "${lease##*/}")" >&2
    echo "hint: wait for it, or: ${taco_typed-taco-launch} stop ${job:-NAME}" >&2
    return 1
  fi
}
