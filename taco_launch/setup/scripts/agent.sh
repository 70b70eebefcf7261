#!/bin/sh
# Makes an agent that lies there the current one, and removes those that nobody uses.
#
# usage: agent.sh STATE_FOLDER AGENTS_FOLDER NAME

set -eu

held() { # held FILE: somebody holds a lock on it; it may be a FIFO by now, which opens when somebody writes there
  [ -f "$1" ] && [ ! -L "$1" ] || return 1
  code=0
  # shellcheck disable=SC2016 # the inner shell's
  timeout 2 sh -c 'exec 9<"$1" && [ -f /dev/fd/9 ] || exit 0; flock -n 9 || exit 77' sh "$1" 2>/dev/null || code=$?
  [ "$code" -eq 77 ]
}

used() { # used NAME STATE_FOLDER: by a process, or by a job that runs, or waits
  # the name goes by way of the input: in its arguments grep would find itself
  # shellcheck disable=SC2062 # it is no pattern
  if printf '%s\n' "$1" | grep -qasF -f - /proc/[0-9]*/cmdline; then
    return 0
  fi
  # containers write there: what is no plain file is passed over, and nothing is made by looking
  for lock in "$2"/jobs/*/lock "$2"/containers/*/jobs/*/lock; do
    if ! held "$lock"; then
      continue
    fi
    for file in "${lock%/*}"/*.json*; do
      if [ -f "$file" ] && [ ! -L "$file" ] && timeout 5 head -c 4194304 "$file" | grep -qasF -e "$1"; then
        return 0
      fi
    done
  done
  # nothing of a job that waits runs: it begins with the agent that it was submitted with
  for mark in "$2"/jobs/.queue/pending/* "$2"/containers/*/jobs/.queue/pending/*; do
    link=$(readlink "${mark%/.queue/*}/${mark##*/}/agent.pyz") || continue
    [ "${link##*/}" != "$1" ] || return 0
  done
  return 1
}

chmod 0700 "$1"
rm -f "$2/.current"
ln -s "$3" "$2/.current"
mv -fT "$2/.current" "$2/current"
for old in "$2"/agent-*.pyz; do
  if [ "${old##*/}" != "$3" ] && ! used "${old##*/}" "$1"; then
    rm -f "$old"
  fi
done
