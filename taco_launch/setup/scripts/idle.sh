#!/bin/sh
# Whether nothing runs in the training containers of this host; other scripts stand behind this.

idle() { # idle CONTAINER: fails, and names the job, where one runs
  for lock in /var/lib/taco-launch/jobs/*/lock; do
    if [ -e "$lock" ] && ! flock -n "$lock" true; then
      job=${lock%/lock}
      echo "error: job ${job##*/} runs in $1: wait for it, or: taco-launch stop ${job##*/}" >&2
      return 1
    fi
  done
  for lease in /run/taco-launch/leases/*; do
    if [ -e "$lease" ] && ! flock -n "$lease" true; then
      job=$(sed -n '1s/.*"job": *"\([^"]*\)".*/\1/p' "$lease")
      echo "error: job ${job:-of an unknown name} runs in $1, it holds ${lease##*/}: wait for it, or:" \
        "taco-launch stop ${job:-NAME}" >&2
      return 1
    fi
  done
}
