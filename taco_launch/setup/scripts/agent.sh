#!/bin/sh
# Makes an agent that lies there the current one, and removes those that nobody uses; idle.sh is prepended to this script.
#
# usage: agent.sh STATE_FOLDER AGENTS_FOLDER NAME

set -eu

most=1024 # of jobs that run: more are no host's, and then every agent stays

used() { # used NAME STATE_FOLDER: by a process, or by a job that runs, or waits
  # the name goes by way of the input: in its arguments grep would find itself
  # shellcheck disable=SC2062 # it is no pattern
  if printf '%s\n' "$1" | grep -qasF -f - /proc/[0-9]*/cmdline; then
    return 0
  fi
  running=$(idle_jobs "$2" | idle_locked "$most")
  if [ "$(printf '%s\n' "$running" | wc -l)" -ge "$most" ]; then
    return 0
  fi
  # containers write there: what is no plain file is passed over, and nothing is made by looking
  found=$(printf '%s\n' "$running" | while IFS= read -r lock; do
    for file in "${lock%/*}"/*.json*; do
      if [ -f "$file" ] && [ ! -L "$file" ] && timeout 5 head -c 4194304 "$file" | grep -qasF -e "$1"; then
        echo found
        break 2
      fi
    done
  done)
  if [ -n "$found" ]; then
    return 0
  fi
  # nothing of a job that waits runs: it begins with the agent that it was submitted with
  found=$(find "$2"/jobs "$2"/containers/*/jobs -mindepth 2 -maxdepth 2 -name agent.pyz -lname "*/$1" 2>/dev/null |
    while IFS= read -r link; do
      job=${link%/agent.pyz}
      if [ -e "${job%/*}/.queue/pending/${job##*/}" ]; then
        echo found
        break
      fi
    done)
  [ -n "$found" ]
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
