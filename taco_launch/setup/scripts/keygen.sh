#!/bin/sh
# Makes a key pair, in place of an earlier one; the public half is put last, so that it is there for a whole pair only.
#
# usage: keygen.sh PATH COMMENT

set -eu
umask 077

if ! command -v ssh-keygen >/dev/null; then
  echo 'there is no ssh-keygen: install the ssh client of the distribution (openssh-client, openssh-clients)' >&2
  exit 1
fi
mkdir -p "${1%/*}"
part=$(mktemp -d "${1%/*}/.new-XXXXXX")
trap 'rm -rf "$part"' EXIT
trap 'exit 143' TERM INT HUP # else dash ends without the one above
ssh-keygen -q -t ed25519 -N '' -C "$2" -f "$part/key"
rm -f "$1.pub"
mv -f "$part/key" "$1"
mv -f "$part/key.pub" "$1.pub"
