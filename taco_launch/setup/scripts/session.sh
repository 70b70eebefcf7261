#!/bin/sh
# Begins every session that the sshd of a training container opens (its ForceCommand): with the image's environment,
# which sshd has dropped, then what was asked for.
#
# The environment is what the container's main process found, written by main.sh as lines of `export`. What belongs to
# the session itself stays as sshd has set it.

command=${SSH_ORIGINAL_COMMAND-}
unset SSH_ORIGINAL_COMMAND
if [ -r "${0%/*}/environment" ]; then
  set -- "${HOME-/}" "${USER-root}" "${LOGNAME-root}" "${SHELL:-/bin/sh}" "${TERM-}"
  # shellcheck disable=SC1091 # it is made on the host
  . "${0%/*}/environment"
  HOME=$1 USER=$2 LOGNAME=$3 SHELL=$4 TERM=$5
  export HOME USER LOGNAME SHELL TERM
  [ -n "${SSH_TTY-}" ] || unset TERM # bash gives itself one
fi
# bash takes a first or second shell behind sshd for a login and reads .bashrc, which may change PATH once more; where
# this shell is bash as well, it counts one down as it executes the next
SHLVL=2
export SHLVL

case $command in
  '') exec "${SHELL:-/bin/sh}" ;;
  sftp-server)
    for folder in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec /usr/lib64/ssh; do
      [ ! -x "$folder/sftp-server" ] || exec "$folder/sftp-server"
    done
    echo 'there is no sftp-server in this image' >&2
    exit 127
    ;;
esac
exec "${SHELL:-/bin/sh}" -c "$command"
