#!/bin/sh
# Makes an agent that lies there the current one, and removes those that nobody uses; idle.sh is prepended to this script.
#
# usage: agent.sh STATE_FOLDER AGENTS_FOLDER NAME
#
# What tells who uses an agent is written by any user of the host, and by containers: of each process and file the beginning
# is read, of no more files than a host's jobs have, within a limit of time. Where that is not enough, every agent stays.

set -eu

most=1024 # of jobs that run: more are no host's
# of the text of those jobs: each of them has a handful
files=8192

whole() { # whole SECONDS COMMAND...: its output; `more` for the caller, at 4, where it is not all of it
  code=0
  timeout -k 5 "$@" 2>/dev/null || code=$?
  [ "$code" -lt 124 ] || echo more >&4 # what ended, or was not there, is no loss
}

named() { # those of the agents in $olds that stdin names
  grep -aoF -f /dev/fd/3 3<<END | awk '!seen[$0]++'
$olds
END
}

processes() { # the beginning of each one's command line; before each stands a line of its own: no line is longer than that
  # the names of agents are in nobody's arguments here: they would be found
  printf '%s\n' /proc/[0-9]*/cmdline | whole 20 xargs head -vc 8192
}

running() { # running STATE_FOLDER: what the jobs that run have written
  locks=$(idle_jobs "$1" | idle_locked "$most" "$1") || locks='more'
  case $locks in
    '') return ;;
    more | *'
more')
      echo more >&4
      return
      ;;
  esac
  # a file may be swapped: no link is followed, and no FIFO waited for
  # shellcheck disable=SC2016 # the inner shell's
  printf '%s\n' "$locks" | whole 30 /bin/sh -c '
    while IFS= read -r lock; do
      find "${lock%/*}" -maxdepth 1 -type f -name "*.json*" ! -name "*
*" || :
    done | {
      count=0
      while IFS= read -r file; do
        count=$((count + 1))
        [ "$count" -le "$1" ] || exit 124
        dd if="$file" iflag=nofollow,nonblock,fullblock,count_bytes bs=65536 count=4194304 || exit 124
        echo
      done
    }' running "$files"
}

waiting() { # waiting STATE_FOLDER: nothing of a job that waits runs: it begins with the agent that it was submitted with
  # shellcheck disable=SC2016 # the inner shell's
  whole 20 /bin/sh -c '
    find "$1"/jobs "$1"/containers/*/jobs -mindepth 2 -maxdepth 2 -name agent.pyz -type l ! -path "*
*" ! -lname "*
*" -printf "%h %l\n" | while IFS= read -r line; do
      job=${line%% *}
      if [ -e "${job%/*}/.queue/pending/${job##*/}" ]; then
        printf "%s\n" "${line##*/}"
      fi
    done' waiting "$1"
}

chmod 0700 "$1"
rm -f "$2/.current"
ln -s "$3" "$2/.current"
mv -fT "$2/.current" "$2/current"
olds=
for old in "$2"/agent-*.pyz; do
  [ "${old##*/}" = "$3" ] || [ ! -e "$old" ] || olds="$olds${olds:+
}${old##*/}"
done
[ -n "$olds" ] || exit 0
used=$({ { processes; running "$1"; waiting "$1"; } | named; } 4>&1)
for old in $olds; do
  case "
$used
" in
    *"
more
"* | *"
$old
"*) ;;
    *) rm -f "$2/$old" ;;
  esac
done
