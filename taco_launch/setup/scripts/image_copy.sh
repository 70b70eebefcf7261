#!/bin/sh
# A host's part in handing an image's stream on: takes it from the controller or from another host, and gives it to others.
#
# usage: image_copy.sh FOLDER VERB...
#
#   begin SHA256 SIZE KIB NAME PORT... <FILES  make ready; KIB is what has to be free before the first byte; FILES are lines
#                                              `NAME BASE64` of what is put into FOLDER. Says `has BYTES`, and the `port`
#                                              that this host gives the stream at, or `port none WHY`
#   has                                        say how many bytes are there
#   take OFFSET LENGTH [gzip] <BYTES           add what the controller sends
#   pull NAME ADDRESS PORT                     add what that host gives; says `has BYTES` all the while
#   check SHA256                               compare what came; what is wrong is thrown away (exit code 3)
#   give                                       hand the stream to a host that requests it over SSH
#   end                                        give no more; a stream that is not whole stays
#   finish SHA256                              end, and leave the stream to load.sh
#
# A private sshd gives the stream: it listens for as long as the copy takes, knows one key and runs one command, and both
# it and those who take know each other by keys that were made for this copy alone. FOLDER is in memory. The stream lies in
# docker's own folder for such things, which it empties as it starts. Where nobody is heard of for two minutes, all of it
# ends by itself but for a stream that is not whole.

set -eu
PATH=${PATH-}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
folder=$1
verb=$2
shift 2
stream=$folder/stream

fail() {
  echo "error: $*" >&2
  exit 1
}
size_of() {
  stat -L -c %s "$1"
}
place() { # place: the folder that streams lie in
  root=$(docker info --format '{{.DockerRootDir}}')
  [ -n "$root" ] || fail 'docker does not say where its folder is'
  mkdir -p "$root/tmp"
  echo "$root/tmp"
}
runs() { # runs PID: not so of one that has ended, and that nobody has waited for
  [ -n "$(tr -d '\0' <"/proc/$1/cmdline" 2>/dev/null)" ]
}
end() {
  if [ -s "$folder/sshd.pid" ]; then
    server=$(cat "$folder/sshd.pid")
    kill -s TERM "$server" 2>/dev/null || :
    tries=0
    while runs "$server" && [ "$tries" -lt 50 ]; do # it removes its file, which may be the next one's by then
      tries=$((tries + 1))
      sleep 0.1
    done
  fi
  rm -rf "$folder"
}
serve() { # serve PORT...
  if ! sshd=$(command -v sshd) || ! command -v ssh >/dev/null; then
    echo 'port none it has no ssh, or no sshd'
    return
  fi
  cat >"$folder/sshd_config" <<END
HostKey $folder/key
PidFile $folder/sshd.pid
AuthorizedKeysFile $folder/authorized_keys
AuthenticationMethods publickey
AllowUsers $(id -un)
PermitRootLogin forced-commands-only
UsePAM yes
PasswordAuthentication no
UseDNS no
ClientAliveInterval 15
END
  echo "restrict,command=\"/bin/sh $folder/image_copy.sh $folder give\" $(cat "$folder/key.pub")" >"$folder/authorized_keys"
  echo "taco-launch-image $(cat "$folder/key.pub")" >"$folder/known_hosts"
  mkdir -p /run/sshd 2>/dev/null || : # its folder of privilege separation, where the distribution's unit would make it
  said='no port was given'
  for port; do
    hex=$(printf %04X "$port")
    # a port is left to whoever has it, also as the near end of a connection; 06 is TIME_WAIT, which keeps nobody from it
    if grep -q ":$hex [0-9A-F]*:[0-9A-F]* 0[^6] " /proc/net/tcp /proc/net/tcp6 2>/dev/null; then
      said="port $port is in use"
      continue
    fi
    # not as a daemon: that one returns before it listens, and who comes at once is refused
    setsid "$sshd" -D -E "$folder/sshd.log" -f "$folder/sshd_config" -p "$port" </dev/null >/dev/null 2>&1 &
    tries=0
    while [ ! -s "$folder/sshd.pid" ] && runs "$!" && [ "$tries" -lt 200 ]; do # it writes that once it listens
      tries=$((tries + 1))
      sleep 0.1
    done
    # sshd continues without a message where it gets the port of IPv6 alone
    if [ ! -s "$folder/sshd.pid" ]; then
      said=$(cat "$folder/sshd.log" 2>/dev/null || :)
    elif [ -r /proc/net/tcp ] && ! grep -q " 00000000:$hex 00000000:0000 0A " /proc/net/tcp; then
      said="port $port is in use"
    else
      echo "port $port"
      return
    fi
    kill -s KILL "$!" 2>/dev/null || :
    rm -f "$folder/sshd.pid"
  done
  echo "port none $(echo "$said" | tail -n 1)"
}

case $verb in
  begin)
    sha=$1 size=$2 kib=$3 name=$4
    shift 4
    # of a copy that was cut off; one that continues reports every second
    tries=0
    while [ -e "$folder/beat" ] && [ "$(($(date +%s) - $(stat -c %Y "$folder/beat")))" -lt 5 ]; do
      tries=$((tries + 1))
      [ "$tries" -lt 15 ] || fail 'another set-up copies an image to this host'
      sleep 1
    done
    end
    umask 077
    tmp=$(place)
    part=$tmp/taco-launch-image-$sha.part
    for old in "$tmp"/taco-launch-image-*.part; do
      [ "$old" = "$part" ] || rm -f "$old"
    done
    ready=$tmp/taco-launch-image.tar
    if [ -e "$ready" ]; then
      mv -f "$ready" "$part"
    fi
    : >>"$part"
    has=$(size_of "$part")
    if [ "$has" -gt "$size" ]; then
      : >"$part"
      has=0
    fi
    need=$((kib - has / 1024))
    free=$(df -Pk "$tmp" | { read -r _ && read -r _ _ _ free _ && echo "$free"; })
    [ "$free" -ge "$need" ] ||
      fail "$tmp: $((free >> 10)) MiB are free, and the image takes about $((need >> 10)) MiB: docker image prune"
    mkdir -p "$folder"
    while read -r file text; do
      printf %s "$text" | base64 -d >"$folder/$file"
    done
    echo "$name" >"$folder/name"
    echo "$size" >"$folder/size"
    ln -s "$part" "$stream"
    : >"$folder/beat"
    # shellcheck disable=SC2016 # the inner shell's
    setsid /bin/sh -c 'while sleep 2; do
        [ "$(cat "$1/own" 2>/dev/null)" = "$$" ] || exit 0 # the folder is that of a later copy, or of none
        [ -n "$(find "$1/beat" -mmin -2 2>/dev/null)" ] || exec /bin/sh "$1/image_copy.sh" "$1" end
      done' watch "$folder" </dev/null >/dev/null 2>&1 &
    echo "$!" >"$folder/own"
    serve "$@"
    echo "has $has"
    ;;
  has)
    : >"$folder/beat"
    size_of "$stream"
    ;;
  take)
    : >"$folder/beat"
    [ "$(size_of "$stream")" -eq "$1" ] || fail 'another set-up copies an image to this host'
    if [ "${3-}" = gzip ]; then
      gzip -dc >>"$stream"
    else
      cat >>"$stream"
    fi || fail "cannot write $(readlink "$stream"): $(df -Ph "$folder/." "$(readlink "$stream")" | tail -n 1)"
    [ "$(size_of "$stream")" -eq "$(($1 + $2))" ] || fail 'only a part arrived'
    ;;
  pull)
    trap '' PIPE
    user=$(id -un)
    at=$(size_of "$stream")
    rm -f "$folder/code" "$folder/pipe"
    mkfifo "$folder/pipe"
    # ends with the process group, whose leader gets a signal, or by a controller that hears no more
    ssh -F /dev/null -i "$folder/key" -p "$3" -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes \
      -o "UserKnownHostsFile=$folder/known_hosts" -o GlobalKnownHostsFile=/dev/null -o HostKeyAlias=taco-launch-image \
      -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -o LogLevel=ERROR -o Compression=no \
      -o ForwardX11=no -c aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes256-ctr \
      "$user@$2" "$1 $at" </dev/null >"$folder/pipe" 2>"$folder/said" &
    ssh=$!
    # no more than there is: who gives may never end
    {
      head -c "$(($(cat "$folder/size") - at))" <"$folder/pipe" >>"$stream" || :
      echo ended >"$folder/code"
    } &
    until [ -s "$folder/code" ]; do
      : >"$folder/beat"
      if ! echo "has $(size_of "$stream")"; then
        trap '' TERM
        kill -s TERM 0
        exit 1
      fi
      sleep 0.5
    done
    kill -s TERM "$ssh" 2>/dev/null || :
    wait "$ssh" || :
    echo "has $(size_of "$stream")"
    [ "$(size_of "$stream")" -lt "$(cat "$folder/size")" ] || exit 0
    echo "cut $(tail -n 1 "$folder/said")"
    ;;
  check)
    (while [ ! -e "$folder/summed" ] && : >"$folder/beat"; do sleep 1; done) 2>/dev/null &
    beats=$!
    sum=$(sha256sum <"$stream")
    : >"$folder/summed"
    wait "$beats" || :
    rm -f "$folder/summed"
    if [ "${sum%% *}" != "$1" ]; then
      : >"$stream"
      exit 3
    fi
    ;;
  give)
    # shellcheck disable=SC2086 # two words
    set -- ${SSH_ORIGINAL_COMMAND-}
    [ "$#" = 2 ] || fail 'asked for something else'
    [ "$1" = "$(cat "$folder/name")" ] || fail "this is $(cat "$folder/name"), not $1: do both have one address?"
    case $2 in
      *[!0-9]*) fail "$2: not a number" ;;
    esac
    at=$2
    size=$(cat "$folder/size")
    while [ "$at" -lt "$size" ]; do
      has=$(size_of "$stream") # fails at the end of it all
      if [ "$has" -gt "$at" ]; then
        : >"$folder/beat"
        tail -c "+$((at + 1))" "$stream" | head -c "$((has - at))"
        at=$has
      else
        sleep 0.2
      fi
    done
    ;;
  end)
    end
    ;;
  finish)
    end
    tmp=$(place)
    mv -f "$tmp/taco-launch-image-$1.part" "$tmp/taco-launch-image.tar"
    ;;
esac
