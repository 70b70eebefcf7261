#!/bin/sh
# Has systemd read its units again, for the scripts that it is prepended to, and no running container lose its GPUs by that.
#
# `systemctl daemon-reload` sets the devices of every scope again that systemd keeps: those that it knows of, not those that
# NVIDIA's hook gave a container afterwards. Such a container's GPUs fail from then on ("Failed to initialize NVML: Unknown
# Error"). It keeps them where it is privileged, where they came by CDI, and where docker keeps cgroups itself (cgroupfs).
# `systemctl enable` and `disable` do the same without --no-reload.

# as if nobody had enabled or disabled a unit: systemd from 255 on then says of all units that they are to be read again
export SYSTEMCTL_INSTALL_CLIENT_SIDE=1

gpu_containers() { # names of the running containers that would lose their GPUs
  [ "$(docker info --format '{{.CgroupDriver}}' 2>/dev/null)" != systemd ] || hook_containers
}

hook_containers() { # names of the running containers to which the toolkit's hook gave GPUs
  identities=$(docker ps -q --no-trunc 2>/dev/null) || return 0
  [ -n "$identities" ] || return 0
  template='{{.Name}} {{.HostConfig.Privileged}} {{.HostConfig.Runtime}}'
  template=$template'{{range .HostConfig.DeviceRequests}} request={{.Driver}}{{end}}{{range .Config.Env}} {{.}}{{end}}'
  # shellcheck disable=SC2086 # a word each; one that went meanwhile is no matter
  docker container inspect --format "$template" $identities 2>/dev/null |
    awk '$2 == "false" {
      visible = by_hook = 0
      for (i = 4; i <= NF; i++) {
        if ($i ~ /^request=/ && $i != "request=cdi") by_hook = 1
        if ($i ~ /^NVIDIA_VISIBLE_DEVICES=./ && $i !~ /=(void|none)$/) visible = 1
      }
      if (by_hook || (visible && $3 ~ /^nvidia/)) print substr($1, 2)
    }'
}

undisturbed() { # undisturbed WHAT [NAME]: fails where WHAT, which has systemd read its units again, would take GPUs from
  # containers; NAME is no matter
  lost=$(gpu_containers | grep -vFx -e "${2-}" | tr '\n' ' ')
  [ -n "$lost" ] || return 0
  steps=
  for each in $lost; do
    case $each in
      taco-launch-*) steps="$steps; systemctl stop $each" ;;
      *) steps="$steps; docker stop $each" ;;
    esac
  done
  echo "error: $1 has systemd read its units again, which takes the GPUs from ${lost% }
hint: when no job runs there:${steps#;}; then run this again, and start them again" >&2
  exit 1
}

reload_needed() { # reload_needed UNIT: systemd has not read its file as it is now
  [ -n "$1" ] || return 1
  case $(systemctl show -p LoadState -p NeedDaemonReload "$1" 2>/dev/null | tr '\n' ' ') in
    *LoadState=loaded*NeedDaemonReload=no* | *NeedDaemonReload=no*LoadState=loaded*) return 1 ;;
  esac
}

reload_units() { # reload_units UNIT: fails where UNIT (empty: none) cannot start without, and a container would lose GPUs
  if [ -n "$1" ] && ! reload_needed "$1"; then
    return 0 # a unit that is new, or as it was
  fi
  lost=$(gpu_containers | tr '\n' ' ')
  if [ -z "$lost" ]; then
    systemctl daemon-reload
  elif reload_needed "$1"; then
    lost=${lost% }
    echo "error: for $1 systemd has to read its units again (daemon-reload), which takes the GPUs from containers that" \
      "run: $lost; stop them when nothing needs them (docker stop $lost), then run this again" >&2
    return 1
  fi
}
