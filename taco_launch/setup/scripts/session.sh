#!/bin/sh
# Starts every session that the sshd of a training container opens (its ForceCommand): with the image's environment,
# which sshd has dropped, then what was requested.
#
# The environment is what the container's main process found, written by main.sh as lines of `export`. What belongs to
# the session itself stays as sshd has set it.

# no variable of our own: the image may have one of that name
set -- "${HOME-/}" "${USER-root}" "${LOGNAME-root}" "${SHELL:-/bin/sh}" "${TERM-}" "${SSH_ORIGINAL_COMMAND-}"
unset SSH_ORIGINAL_COMMAND
if [ -r /run/taco-launch/environment ]; then
  # shellcheck disable=SC1091 # main.sh makes it
  . /run/taco-launch/environment
  HOME=$1 USER=$2 LOGNAME=$3 SHELL=$4 TERM=$5
  export HOME USER LOGNAME SHELL TERM
  [ -n "${SSH_TTY-}" ] || unset TERM # bash gives itself one
fi
# bash takes a first or second shell behind sshd for a login and reads .bashrc, which may change PATH once more; where
# this shell is bash as well, it counts one down as it executes the next
SHLVL=2
export SHLVL

case $6 in
  '') exec "${SHELL:-/bin/sh}" ;;
  sftp-server)
    set -- /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec /usr/lib64/ssh
    while [ $# -gt 0 ]; do
      [ ! -x "$1/sftp-server" ] || exec "$1/sftp-server"
      shift
    done
    echo 'there is no sftp-server in this image' >&2
    exit 127
    ;;
esac
exec "${SHELL:-/bin/sh}" -c "$6"
