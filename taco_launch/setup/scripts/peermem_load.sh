#!/bin/sh
# Loads the kernel module by which HCAs reach GPU memory, in place of the other one; idle.sh is prepended to this script.
#
# usage: peermem_load.sh MODULE OTHER NOT_BUILT SYMBOLS KEY IN_USE
#
# The last four are shown to the user, each with a line `hint: ` of what is to be done: the driver was built without
# OFED's symbols, OFED was changed after it was built, Secure Boot refuses the module, the other one is in use.

set -eu
module=$1
other=$2
not_built=$3
symbols=$4
key=$5
in_use=$6

export LC_ALL=C

fail() { # fail TEXT...
  echo "error: $*" >&2
  exit 1
}

loaded() { # loaded MODULE
  [ -d "/sys/module/$1" ]
}

swapped=
if loaded "$other"; then
  idle "a container of this host"
  if ! said=$(rmmod "$other" 2>&1) || loaded "$other"; then # modprobe -r might take the driver with it
    fail "${said:-rmmod $other unloads nothing}: $in_use"
  fi
  echo "$other is unloaded"
  swapped=yes
fi
if said=$(modprobe "$module" 2>&1) && loaded "$module"; then
  exit
fi
kernel=$(dmesg 2>/dev/null | grep -iE 'nv_peer_mem|nvidia[-_]peermem|Loading of unsigned module|peer_memory_client' |
  tail -n 1) || kernel=
[ -z "$swapped" ] || modprobe "$other" || :
said=$(printf '%s\n' "$said" | tail -n 1)
case $said in
  *'Required key not available'*) fail "$said: $key" ;;
  *'Unknown symbol'*) fail "$said${kernel:+ (the kernel: $kernel)}: $symbols" ;;
  *'Invalid argument'*) fail "$said${kernel:+ (the kernel: $kernel)}: $not_built" ;;
  '') fail "modprobe $module loads nothing, and complains of nothing
hint: look for an install line of it in /etc/modprobe.d (modprobe -c shows all)" ;;
  *) fail "$said${kernel:+ (the kernel: $kernel)}" ;;
esac
