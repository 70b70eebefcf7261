#!/bin/sh
# Gives dockerd new settings: daemon.json is checked and replaced, then the engine takes them, or the old ones are back.
#
# usage: docker_settings.sh reload|restart ALLOWED FOLDER CONFIG SHA256 PART WANTED FILE...
#
# ALLOWED is `yes` where running containers may be stopped. FOLDER gets a mark, `reload` or `restart`, which stays until
# the engine has taken what was changed. It holds FILE...: `daemon.json`, if it is to be replaced, and `adding`, what that
# adds, a line for `added`; and `proxy.conf` and `proxy.new`, if PART, a part of docker.service, and `proxy.env`, which
# that names, are to be replaced. CONFIG is /etc/docker/daemon.json, SHA256 is of what was looked at, or `absent`. Where
# WANTED is `no`, PART and `proxy.env` are removed. dockerd.sh is prepended to this script.

set -eu

export LC_ALL=C
umask 022
how=$1 allowed=$2 folder=$3 config=$4 looked_at=$5 part=$6 wanted=$7
shift 7
[ ! -L "$config" ] || config=$(readlink -f "$config")

fail() { # fail TEXT...
  echo "error: $*" >&2
  exit 1
}

give_up() { # nothing has been changed; a mark is of an earlier set-up, whose changes the engine has still to take
  rm -f "$folder/daemon.json" "$folder/adding" "$folder/proxy.conf" "$folder/proxy.new" "$folder/before"
}

mark() { # from here on something has been changed
  (umask 077 && mkdir -p "$folder" && : >"$folder/$how")
}

check() { # whether an engine that can tell beforehand would start with a daemon.json
  if dockerd --help 2>&1 | grep -q -e '--validate'; then
    said=$(dockerd --validate --config-file "$1" 2>&1) || {
      rm -f "$1"
      give_up
      fail "dockerd would not start with the new daemon.json, and the old one stays: $(printf %s "$said" | tr '\n' ' ')"
    }
  fi
}

replace() {
  now=absent
  [ ! -e "$config" ] || now=$(sha256sum <"$config")
  if [ "${now%% *}" != "$looked_at" ]; then
    give_up
    fail "$config is not as it was looked at, and stays as it is: it changed meanwhile (run setup again), or it holds" \
      "carriage returns or bytes that are no UTF-8 (take them out)"
  fi
  mkdir -p "${config%/*}"
  rm -f "$config.taco-launch" "$folder/before"
  if [ -e "$config" ]; then # its owner and mode stay
    cp -p "$config" "$folder/before"
    cp -p "$config" "$config.taco-launch"
  fi
  cat "$folder/daemon.json" >"$config.taco-launch"
  check "$config.taco-launch"
  mark
  cat "$folder/adding" >>"$folder/added"
  rm -f "$folder/adding"
  mv -f "$config.taco-launch" "$config"
  rm -f "$folder/daemon.json"
}

may_restart() { # somebody may have started a container since the host was looked at
  names=$(docker ps --format '{{.Names}}' 2>/dev/null | tr '\n' ' ') || names=
  if [ -n "$names" ] && [ "$allowed" != yes ]; then
    give_up
    fail "docker would have to be restarted, and containers have been started meanwhile ($names); stop them, or run" \
      "setup again with --disrupt docker"
  fi
}

restart() {
  systemctl reset-failed docker >/dev/null 2>&1 || :
  systemctl restart docker >/dev/null 2>&1 && answers
}

recover() { # with the old settings; to reload never stops a container
  if [ "$how" = restart ] || [ "$allowed" = yes ]; then
    restart
  else
    systemctl reload docker >/dev/null 2>&1 && answers
  fi
}

put_back() { # the engine does not start with what is new
  why=$(complaint) || :
  if [ -n "$replaced" ]; then
    if [ -e "$folder/before" ]; then
      cp -p "$folder/before" "$config.taco-launch"
      mv -f "$config.taco-launch" "$config"
    else
      rm -f "$config"
    fi
    sed '$d' "$folder/added" >"$folder/added.new"
    mv -f "$folder/added.new" "$folder/added"
    if recover; then
      rm -f "$folder/before" "$folder/$how"
      fail "the engine does not start with the new daemon.json, and runs with the old one again: $why"
    fi
    [ "$how" = restart ] || [ "$allowed" = yes ] ||
      fail "the engine gives no answer since it was to take the new daemon.json; the old one is back, and the engine was" \
        "not restarted, which would stop containers: look at it, or systemctl restart docker on the host: $why"
    fail "the engine starts neither with the new daemon.json nor with the old one, which is back: $why"
  fi
  fail "the engine does not start: ${why:-journalctl -u docker}"
}

for file in daemon.json adding proxy.conf proxy.new; do
  case " $* " in
    *" $file "*) ;;
    *) rm -f "$folder/$file" ;; # of an earlier set-up, which was interrupted
  esac
done
[ "$how" = reload ] || may_restart
replaced=
if [ -e "$folder/daemon.json" ]; then
  replaced=yes
  replace
fi
mark
if [ -e "$folder/proxy.conf" ]; then
  mv -f "$folder/proxy.new" "$folder/proxy.env"
  mkdir -p "${part%/*}"
  cp "$folder/proxy.conf" "$part.taco-launch"
  mv -f "$part.taco-launch" "$part"
  rm -f "$folder/proxy.conf"
elif [ "$wanted" = no ]; then
  rm -f "$part" "$folder/proxy.env"
fi
if [ "$how" = restart ]; then
  systemctl daemon-reload # for PART; containers are stopped anyway
  restart || put_back
elif systemctl is-active --quiet docker; then
  systemctl reload docker
  sleep 1
  answers || put_back
fi
rm -f "$folder/before" "$folder/reload" "$folder/restart"
