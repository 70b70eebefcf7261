#!/bin/sh
# Makes an agent that lies there the current one, and removes the oldest others, with what lies beside them.
#
# usage: agent.sh STATE_FOLDER AGENTS_FOLDER NAME
#
# A job runs with the agent that it was submitted with, and which agents the jobs use is written by any user and container:
# nothing of that is read. The newest few stay, of 4 MB each.

set -eu

kept=8

chmod 0700 "$1"
rm -f "$2/.current"
ln -s "$3" "$2/.current"
mv -fT "$2/.current" "$2/current"
touch "$2/$3"
# py-spy lies beside the agents that read stacks with it; the newest two stay
# shellcheck disable=SC2010,SC2012 # their names are those of versions and processors
ls -t "$2" | grep -x 'py-spy-[0-9A-Za-z._-]*' | tail -n +3 | while IFS= read -r old; do
  rm -f "$2/$old"
done
# shellcheck disable=SC2010,SC2012 # their names are those of versions and hashes
ls -t "$2" | grep -x 'agent-[0-9A-Za-z.+-]*\.pyz' | tail -n "+$((kept + 2))" | while IFS= read -r old; do
  rm -f "$2/$old"
done
