#!/bin/sh
# Whether nothing runs in the training containers of this host; other scripts follow this.
#
# taco_typed is what the user types for taco-launch with this inventory. Jobs and leases are the containers' to write, and
# the leases every user's: none of these files is opened to look whether it is locked, as it may be swapped for any other
# at any moment. The kernel tells what is locked, and stat, which does not follow the last link, which file that is.

idle_locked() { # idle_locked MOST FOLDER: of lines DEVICE INODE PATH, the paths that somebody holds a lock on; MOST are printed
  # a line `more` says that there are more, or more locks than a host has, or that the input holds that line.
  # These file systems tell stat the device that the kernel has for their locks; where it is another one, as with btrfs
  # and overlayfs, or below FOLDER another file system starts, a locked inode of that number counts.
  plain=
  case $(stat -f -c %T "$2" 2>/dev/null) in
    ext* | xfs | tmpfs | ramfs) plain=$(stat -c %d "$2") || plain= ;;
  esac
  awk -v most="$1" -v plain="$plain" '
    function told(device) { # as /proc/locks writes it: MAJOR:MINOR, of two digits at least
      return sprintf("%02x:%02x", int(device / 256) % 4096, device % 256 + 256 * int(device / 1048576))
    }
    FILENAME == "/proc/locks" {
      if (FNR > 200000) { more = 1; exit } # each is remembered, and any user may take some
      if ($2 == "FLOCK") {
        split($6, at, ":")
        held[at[3] ""] = 1
        held[$6 ""] = 1
      }
      next
    }
    $1 == "more" { more = 1; next }
    NF > 2 && (($2 "") in held) && ($1 != plain || ((told($1) ":" $2) in held)) {
      if (found++ == most) { more = 1; exit }
      sub(/^[0-9]+ [0-9]+ /, "")
      print
    }
    END { if (more) print "more" }' /proc/locks -
}

idle_files() { # idle_files SECONDS FIND_WORD...: DEVICE INODE PATH of what find finds; a line `more` where that takes too long
  # a name with a line break would be lines of its own, and is none of ours
  code=0
  timeout -k 5 "$@" -type f ! -path '*
*' -exec stat -c '%d %i %n' {} + 2>/dev/null || code=$?
  [ "$code" -lt 124 ] || printf '\nmore\n'
}

idle_jobs() { # idle_jobs STATE_FOLDER CLUSTER: of the lock of each job of a cluster; of all and the host's own without one
  if [ -n "${2-}" ]; then
    set -- "$1/containers/$2/jobs"
  else
    set -- "$1"/jobs "$1"/containers/*/jobs
  fi
  # .queue and other hidden folders belong to no job
  idle_files 30 find "$@" -mindepth 2 -maxdepth 2 -name lock ! -path '*/jobs/.*'
}

idle_leases() { # idle_leases FOLDER: of each slot's lease
  idle_files 10 find "$1" -mindepth 1 -maxdepth 1 ! -name '*.*' \( -name 'slot-*' -o -name 'GPU-*' -o -name 'MIG-*' \)
}

idle_record() { # idle_record FILE: what a container's agent has written there; other users may have made the file
  # root of a container may swap it in between: then no link is followed, and no FIFO waited for
  [ -f "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] && timeout 2 dd if="$1" iflag=nofollow,nonblock bs=16384 count=1 2>/dev/null
}

idle_plain() { # idle_plain TEXT: it as a word that a terminal may show
  printf '%s' "$1" | tr -cd '[:alnum:]._-'
}

idle_word() { # idle_word NAME: a word of the record on stdin
  sed -n '1s/.*"'"$1"'": *"\([^"]*\)".*/\1/p'
}

idle_of() { # idle_of CLUSTER: of the leases on stdin the first that a job of the cluster holds, or a job of an unknown one
  while IFS= read -r lease; do
    holder=$(idle_record "$lease.0" | idle_word cluster)
    if [ -z "$1" ] || [ -z "$holder" ] || [ "$holder" = "$1" ]; then
      echo "$lease"
      return
    fi
  done
}

idle() { # idle CONTAINER: fails, and names the job, where one runs that needs it; any job, if it is not a cluster's container
  if [ ! -r /proc/locks ] || ! command -v awk >/dev/null; then
    echo "error: whether a job runs in $1 cannot be found out: there is no awk, or no /proc/locks" >&2
    return 1
  fi
  cluster_of_it=
  case $1 in
    taco-launch-*) cluster_of_it=${1%%,*} cluster_of_it=${cluster_of_it#taco-launch-} ;;
  esac
  lock=$(idle_jobs /var/lib/taco-launch "$cluster_of_it" | idle_locked 1000 /var/lib/taco-launch | head -n 1)
  if [ -n "$lock" ] && [ "$lock" != more ]; then
    job=${lock%/lock}
    job=$(idle_plain "${job##*/}")
    echo "error: job $job runs in $1" >&2
    echo "hint: wait for it (--wait-for-jobs 2h), or: ${taco_typed-taco-launch} stop $job" >&2
    return 1
  fi
  lease=$(idle_leases /run/taco-launch/leases | idle_locked 1000 /run/taco-launch/leases | idle_of "$cluster_of_it")
  if [ "$lock" = more ] || [ "$lease" = more ]; then
    echo "error: whether a job runs in $1 cannot be found out: there are too many files or held locks" >&2
    echo "hint: who made them? lslocks; ls -l /run/taco-launch/leases /var/lib/taco-launch/containers/*/jobs" >&2
    return 1
  fi
  if [ -n "$lease" ]; then
    job=$(idle_plain "$(idle_record "$lease.0" | idle_word job)")
    echo "error: job ${job:-of an unknown name} runs in $1, it holds $(idle_plain "${lease##*/}")" >&2
    echo "hint: wait for it (--wait-for-jobs 2h), or: ${taco_typed-taco-launch} stop ${job:-NAME}" >&2
    return 1
  fi
}
