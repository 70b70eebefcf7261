#!/bin/sh
# Leases a port of this host for the sshd of a variant: no other variant gets it, and nobody else has it now.
#
# usage: variant_port.sh VARIANT FIRST LAST WANTED [REFUSED...]
#
# WANTED is the only port that will do, 0 for any from FIRST to LAST but those that other hosts REFUSED. Says `port NUMBER`:
# the variant's own, where it has one that will do; or `taken`. teardown.sh gives it back.

set -eu
variant=$1
first=$2
last=$3
wanted=$4
shift 4

ports=/var/lib/taco-launch/ports
clusters=/var/lib/taco-launch/clusters
umask 077
mkdir -p "$ports" /run/taco-launch
chmod 0711 /run/taco-launch # the folder is everybody's to pass, for the leases
exec 9>/run/taco-launch/ports.lock
timeout 30 flock 9

listened=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { split($2, at, ":"); print at[length(at)] }')
# of containers that do not run now
configured=$(cat "$clusters"/*/ssh/sshd_config 2>/dev/null | sed -n 's/^ListenAddress .*:\([0-9]*\)$/\1/p')

is_free() { # is_free PORT
  if [ -e "$ports/$1" ]; then
    [ "$(cat "$ports/$1")" = "$variant" ]
    return
  fi
  case "
$listened
" in
    *"
$(printf %04X "$1")
"*) return 1 ;;
  esac
  case "
$configured
" in
    *"
$1
"*) return 1 ;;
  esac
}

take() { # take PORT: instead of any that it has had
  for port in "$ports"/*; do
    if [ -f "$port" ] && [ "$(cat "$port")" = "$variant" ] && [ "${port##*/}" != "$1" ]; then
      rm -f "$port"
    fi
  done
  printf '%s\n' "$variant" >"$ports/$1"
  echo "port $1"
  exit 0
}

if [ "$wanted" -gt 0 ]; then
  ! is_free "$wanted" || take "$wanted"
  echo taken
  exit 0
fi
refused=" $* "
for own in "$ports"/*; do
  if [ -f "$own" ] && [ "$(cat "$own")" = "$variant" ]; then
    case $refused in
      *" ${own##*/} "*) ;;
      *) take "${own##*/}" ;;
    esac
  fi
done
port=$first
while [ "$port" -le "$last" ]; do
  case $refused in
    *" $port "*) ;;
    *) ! is_free "$port" || take "$port" ;;
  esac
  port=$((port + 1))
done
echo taken
