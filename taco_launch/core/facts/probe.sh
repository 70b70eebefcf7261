#!/bin/sh
# Looks at one host, in one round trip, and changes nothing: what each tool says stands between markers of its own.
#
# usage: /bin/sh -s -- NONCE [SUBJECT...] <probe.sh
#
# Subjects: system network rdma docker image gpu topology; without one, all of these, those that may hang last. `made`,
# what set-up left on the host, and `health`, what only a health check reads, are asked by name only.
# The answer, which taco_launch/core/facts/text/sections.py reads:
#   NONCE probe 1 SECONDS.NANOSECONDS      this host's clock when the probe started
#   NONCE begin NAME
#   ...what the command says, and a newline...
#   NONCE end NAME EXIT_CODE               127: there is no such tool, 124: it took too long
#   NONCE err TEXT                         a line for each line of its stderr
#   NONCE done SECONDS.NANOSECONDS
#
# For the systems between CentOS 7.6 and today's, under dash, busybox and bash: text forms of tools only, no python to
# look at a host, no temporary files but gcm's log (a full or read-only disk is a fact to be told), few processes. Where `image` is to
# look into a container, taco_launch/core/facts/text/sections.py sets taco_launch_container to its name and taco_launch_probe to this
# text; for `made` it sets taco_launch_cluster, and for `system` taco_launch_data_root.

set -u

probe() { # probe NONCE [SUBJECT...]
  nonce=$1
  shift
  unset GREP_OPTIONS GREP_COLOR CDPATH NHC_RM
  LC_ALL=C
  PATH=${PATH-}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin
  PATH=$PATH:/usr/local/cuda/bin:/opt/mellanox/bin:/usr/local/openmpi/bin:/opt/openmpi/bin:/usr/lib64/openmpi/bin
  export LC_ALL PATH
  newline='
'
  exec 3>&1
  if [ "${1-}" = inside ]; then # the container: its sections stand within the answer of its host
    prepare
    look_inside
    shift
    for program in "$@"; do
      "look_at_$program" container
    done
    return
  fi
  if [ $# = 0 ]; then
    set -- system network rdma docker image gpu topology
  fi
  for subject in "$@"; do
    case $subject in
      system | network | rdma | docker | image | gpu | topology | made | health) ;;
      *)
        echo "probe: no such subject: $subject" >&2
        exit 2
        ;;
    esac
  done
  stamp 'probe 1'
  prepare
  section_of host.simulated cat /etc/taco-launch/simulated
  for subject in "$@"; do
    "look_at_$subject"
  done
  [ -z "${looked-}" ] || look_again
  stamp 'done'
}

# --- how a command is run ---------------------------------------------------------------------------------------------

stamp() { # stamp WORDS: a marker with the clock of this host; bash 5 and busybox have it themselves, in microseconds
  if [ -n "${EPOCHREALTIME-}" ]; then
    echo "$nonce $1 ${EPOCHREALTIME}000"
  else
    date "+$nonce $1 %s.%N"
  fi
}

prepare() { # what this user may do, and whether there is a timeout that takes -k (old busybox's does not)
  timeout=yes
  uid=$(timeout -k 1 5 id -u 2>/dev/null </dev/null) || {
    timeout=
    uid=$(id -u 2>/dev/null)
  }
  access=user
  sudo=
  if [ "$uid" = 0 ]; then
    access=root
  elif sudo -n true </dev/null >/dev/null 2>&1; then
    access=sudo
    sudo='sudo -n env LC_ALL=C'
  fi
}

section() { # section NAME [limited SECONDS] [root] COMMAND [ARGUMENT...]; then $code and $complaints are its own
  title=$1
  shift
  tool=$1
  if [ "$1" = limited ]; then
    tool=$3
    [ "$3" != root ] || tool=$4
  fi
  if there "$tool"; then
    begin "$title"
    complaints=$("$@" 2>&1 >&3 3>&- </dev/null)
    code=$?
    finish "$title" "$code" "$complaints"
  else # a subshell that only says so would cost as much as a tool
    code=127
    complaints="$tool: not found"
    refuse "$title" "$code" "$complaints"
  fi
}

section_of() { # section_of NAME COMMAND FILE: no process where there is no such file, and that can be seen
  if [ -e "$3" ] || { [ -e "${3%/*}" ] && [ ! -x "${3%/*}" ]; }; then
    section "$@"
  else
    refuse "$1" 1 "$2: $3: No such file or directory"
  fi
}

section_of_systemd() { # section_of_systemd NAME COMMAND [ARGUMENT...]: no process where neither it nor a bus runs
  title=$1
  shift
  if [ -d /run/systemd/system ] || [ -S /run/dbus/system_bus_socket ] || ! there "$1"; then
    section "$title" limited 5 "$@"
  else # in the words of systemctl
    refuse "$title" 1 'System has not been booted with systemd as init system (PID 1)'
  fi
}

section_here() { # section_here NAME FUNCTION: in this very shell, for builtins that read nothing and never complain
  begin "$1"
  "$2"
  finish "$1" "$?" ''
}

refuse() { # refuse NAME EXIT_CODE STDERR: a section without an answer
  begin "$1"
  finish "$@"
}

begin() { # begin NAME
  printf '%s begin %s\n' "$nonce" "$1"
}

finish() { # finish NAME EXIT_CODE STDERR: the newline before it may complete a last line
  printf '\n%s end %s %s\n' "$nonce" "$1" "$2"
  set -f
  IFS=$newline
  for complaint in $3; do
    printf '%s err %s\n' "$nonce" "$complaint"
  done
  unset IFS
  set +f
}

there() { # there COMMAND
  command -v "$1" >/dev/null 2>&1
}

# `root` and `limited` take the place of the subshell that a section is run in: no command follows them.

root() { # root COMMAND [ARGUMENT...]: as root where that is allowed
  if ! there "$1"; then
    echo "$1: not found" >&2
    return 127
  fi
  # shellcheck disable=SC2086 # words
  exec $sudo "$@"
}

limited() { # limited SECONDS [root] COMMAND [ARGUMENT...]: for what can hang
  limit=$1
  shift
  as=
  if [ "$1" = root ]; then
    as=$sudo
    shift
  fi
  if ! there "$1"; then
    echo "$1: not found" >&2
    return 127
  fi
  if [ -n "$timeout" ]; then
    # timeout comes after sudo: it may not end what belongs to root
    # shellcheck disable=SC2086
    exec $as timeout -k 2 "$limit" "$@"
  fi
  # shellcheck disable=SC2086
  $as "$@" &
  command=$!
  (
    sleeper=
    trap 'kill $sleeper; exit' TERM
    sleep "$limit" &
    sleeper=$!
    wait "$sleeper"
    # shellcheck disable=SC2086
    $as kill -9 "$command"
  ) >/dev/null 2>&1 &
  watchdog=$!
  wait "$command"
  command=$?
  kill "$watchdog" 2>/dev/null
  [ "$command" != 137 ] || return 124
  return "$command"
}

# --- system -----------------------------------------------------------------------------------------------------------

look_at_system() {
  section_here system.shell system_shell
  section system.uname uname -nrm
  section system.files grep -aH '' /etc/os-release /etc/centos-release /proc/meminfo /proc/uptime \
    /proc/self/limits /proc/1/comm /sys/fs/selinux/enforce /sys/devices/system/cpu/online
  section system.numa grep -aHE '^[0-9,-]*$|MemTotal' /sys/devices/system/node/node[0-9]*/cpulist \
    /sys/devices/system/node/node[0-9]*/meminfo
  if there lscpu; then
    section system.cpu lscpu
  else
    section system.cpu system_cpu
  fi
  section system.disks system_disks
  system_xfs
  section system.virtualization systemd-detect-virt
  section_of_systemd system.logind busctl --no-pager get-property org.freedesktop.login1 /org/freedesktop/login1 \
    org.freedesktop.login1.Manager KillUserProcesses RemoveIPC
  section system.logind_conf grep -aHE '^#?[[:space:]]*(KillUserProcesses|RemoveIPC)' /etc/systemd/logind.conf \
    /usr/lib/systemd/logind.conf /etc/systemd/logind.conf.d/*.conf /run/systemd/logind.conf.d/*.conf \
    /usr/lib/systemd/logind.conf.d/*.conf
  section_of_systemd system.clock timedatectl
}

system_shell() { # what costs no process
  echo "access $access"
  packages_by=none
  for name in apt-get dnf yum zypper apk pacman; do
    if there "$name"; then
      packages_by=$name
      break
    fi
  done
  echo "packages $packages_by"
  [ ! -d /run/systemd/system ] || echo "init systemd"
}

system_cpu() { # in lscpu's words
  awk -F ':[ \t]*' '
    { sub(/[ \t]+$/, "", $1) }
    $1 == "model name" && name == "" { name = $2 }
    $1 == "physical id" { socket = $2; sockets[socket] = 1 }
    $1 == "core id" { cores[socket, $2] = 1 }
    END {
      for (each in sockets) s++
      for (each in cores) c++
      if (name != "" && s) printf "Model name: %s\nSocket(s): %d\nCore(s) per socket: %d\n", name, s, c / s
    }' /proc/cpuinfo
}

system_disks() { # the requested folders, then a line of df for each
  asked=
  images= # where docker keeps them; taco_launch_data_root is where it is to
  if [ -r /etc/docker/daemon.json ]; then
    images=$(sed -n 's/.*"data-root"[[:space:]]*:[[:space:]]*"\(\/[^"\\]*\)".*/\1/p' /etc/docker/daemon.json)
  fi
  for folder in / /tmp /dev/shm /var/lib/docker /var/lib/taco-launch "${HOME:-/}" "${images:-/}" \
    "${taco_launch_data_root:-/}"; do
    while [ ! -d "$folder" ]; do # what is not there yet will lie where its parent lies
      folder=${folder%/*}
      [ -n "$folder" ] || folder=/
    done
    case "$newline$asked$newline" in
      *"$newline$folder$newline"*) ;;
      *) asked=$asked${asked:+$newline}$folder ;;
    esac
  done
  set -f
  IFS=$newline
  # shellcheck disable=SC2086
  set -- $asked
  unset IFS
  printf 'asked %s\n' "$@"
  limited 10 df -PkT "$@"
}

system_xfs() { # MOUNT ftype=0|1 of each XFS, once for each device: without the types of files overlay2 cannot work
  set --
  seen=' '
  while read -r device mount type _; do
    case $type$seen in
      xfs*" $device "*) ;;
      xfs*) set -- "$@" "$mount" && seen="$seen$device " ;;
    esac
  done </proc/mounts
  if [ $# = 0 ]; then
    refuse system.xfs 127 ''
  elif there xfs_info; then
    section system.xfs system_xfs_info "$@"
  else
    refuse system.xfs 127 'xfs_info: not found'
  fi
}

system_xfs_info() { # system_xfs_info MOUNT...
  for mount in "$@"; do
    (limited 5 xfs_info "$mount") | sed -n "s#.*\\(ftype=[01]\\).*#$mount \\1#p"
  done
}

# --- network ----------------------------------------------------------------------------------------------------------

look_at_network() {
  section network.connection network_connection
  # speed cannot be read of an interface that is down: -s
  section network.interfaces grep -asH '' /sys/class/net/*/ifindex /sys/class/net/*/iflink /sys/class/net/*/type \
    /sys/class/net/*/operstate /sys/class/net/*/mtu /sys/class/net/*/address /sys/class/net/*/speed \
    /sys/class/net/*/uevent /sys/class/net/*/master/ifindex /sys/class/net/*/bonding/mode \
    /sys/class/net/*/bridge/stp_state /sys/class/net/*/device/uevent /sys/class/net/*/device/numa_node
  section network.addresses ip -o addr
  section network.qdiscs tc qdisc show
  section network.routes grep -aHE '^[^[:space:]]+[[:space:]]00000000[[:space:]]|^0{32} 00 ' /proc/net/route \
    /proc/net/ipv6_route
  section network.files grep -aH '' /proc/net/bonding/* /proc/sys/net/ipv4/ip_local_port_range /etc/ufw/ufw.conf
  section network.listeners network_listeners
  section_of_systemd network.firewalld systemctl is-active firewalld
  section network.nft limited 5 root nft list ruleset
  nft=$code
  section network.iptables network_iptables
}

network_connection() { # the addresses and ports of this connection: the other end's, then ours
  connection=${SSH_CONNECTION-}
  process=$PPID
  # sudo takes the variable away, and has it itself
  while [ -z "$connection" ] && [ -n "${SUDO_COMMAND-}" ] && [ "$process" -gt 1 ]; do
    connection=$(tr '\0' '\n' <"/proc/$process/environ" | grep '^SSH_CONNECTION=') || connection=
    connection=${connection#*=}
    parent=0
    while read -r key value; do
      [ "$key" != PPid: ] || parent=$value
    done <"/proc/$process/status"
    process=$parent
  done
  echo "$connection"
}

network_listeners() {
  if there ss; then
    root ss -ltnp
  else
    cat /proc/net/tcp >/dev/null || return
    grep -aHs ' 0A ' /proc/net/tcp /proc/net/tcp6 || return 0
  fi
}

network_iptables() { # the rules that nft does not show; asking for a table that nothing uses would load its module
  tables=$(root cat /proc/net/ip_tables_names) || tables=
  case "$newline$tables$newline" in
    *"${newline}filter$newline"*)
      if there iptables-legacy; then
        limited 5 root iptables-legacy -S
      else
        limited 5 root iptables -S
      fi
      ;;
    *)
      [ "$nft" = 127 ] && there iptables || return 0
      case $(iptables -V) in
        *nf_tables*) limited 5 root iptables -S ;;
      esac
      ;;
  esac
}

# --- docker -----------------------------------------------------------------------------------------------------------

find_engine() { # $engine: the word for `limited` that reaches the engine, root or none
  engine=root
  if [ -w /var/run/docker.sock ] || [ -n "${DOCKER_HOST-}" ] || [ -S "${XDG_RUNTIME_DIR-}/docker.sock" ]; then
    engine=
  fi
}

look_at_docker() {
  find_engine
  if there docker && engine_sleeps; then
    code=1
    refuse docker.info 1 'Cannot connect to the Docker daemon: it does not run, and docker.socket would start it'
  else
    # shellcheck disable=SC2086 # root, or nothing
    section docker.info limited 20 $engine docker info --format '{{json .}}'
  fi
  if [ "$code" = 0 ]; then
    section docker.containers docker_containers
    # shellcheck disable=SC2086
    section docker.images limited 20 $engine docker images --digests --no-trunc \
      --format '{{.Repository}} {{.Tag}} {{.ID}} {{.Digest}} {{.Size}}'
  fi
  section_of docker.config cat /etc/docker/daemon.json
  if there nvidia-container-cli && ! there nvidia-ctk; then
    section docker.toolkit nvidia-container-cli --version
  else
    section docker.toolkit nvidia-ctk --version
  fi
  section_here docker.toolkit_programs toolkit_programs
  section docker.cdi cdi_devices
}

engine_sleeps() { # whether systemd listens in place of the engine, and would start it where it is asked anything
  [ -z "${DOCKER_HOST-}" ] && [ -d /run/systemd/system ] && there systemctl &&
    [ "$(limited 5 systemctl show -p SubState docker.socket 2>/dev/null)" = SubState=listening ]
}

toolkit_programs() { # the older name of the hook is the last one
  for program in nvidia-ctk nvidia-container-runtime nvidia-container-runtime-hook nvidia-container-toolkit; do
    ! there "$program" || echo "$program"
  done
}

cdi_devices() { # `FILE:kind: KIND` and `FILE:name: NAME` of each device, as YAML or JSON has it
  set --
  for file in /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json; do
    [ ! -e "$file" ] || set -- "$@" "$file"
  done
  [ $# = 0 ] || grep -aHoE '(^|[{,[:space:]-])"?(kind|name)"?:[[:space:]]*"?[A-Za-z0-9._/:-]+' "$@"
}

docker_containers() { # inspect, since the labels that ps shows cannot be told apart where a value holds a comma
  # shellcheck disable=SC2086
  identities=$(limited 20 $engine docker ps -aq --no-trunc) || return
  # shellcheck disable=SC2086
  [ -z "$identities" ] ||
    limited 20 $engine docker container inspect \
      --format '{{json .Name}} {{json .Config.Image}} {{json .State.Status}} {{json .Config.Labels}}' $identities
}

# --- gpu --------------------------------------------------------------------------------------------------------------

look_at_gpu() {
  section_here gpu.board gpu_board
  if [ -n "$gpus" ] && there lspci; then
    section gpu.acs gpu_acs
  else
    refuse gpu.acs 127 "${gpus:+lspci: not found}"
  fi
  section_of gpu.driver_loaded cat /proc/driver/nvidia/version
  section gpu.driver_installed modinfo -F version nvidia
  if [ "$code" = 0 ]; then
    section gpu.license modinfo -F license nvidia
  else # there is no such module
    refuse gpu.license "$code" "$complaints"
  fi
  section_of_systemd gpu.fabric_manager systemctl show -p LoadState -p ActiveState nvidia-fabricmanager
  section gpu.fabric_version limited 5 nv-fabricmanager --version
  ask_smi gpu.list smi -L
  ask_smi gpu.query gpu_query
  ask_smi gpu.remapped smi --query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure --format=csv
  ask_smi gpu.processes smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv
  ask_smi gpu.smi smi
}

ask_smi() { # ask_smi NAME COMMAND [ARGUMENT...]: a section of nvidia-smi, which is not waited for twice
  if there nvidia-smi; then
    section "$@"
    [ "$code" != 124 ] || hung=yes
  else
    section "$1" nvidia-smi
  fi
}

smi() { # smi [ARGUMENT...]: a driver that is not kept loaded may take most of that time
  if [ -n "${hung-}" ]; then
    echo 'nvidia-smi has given no answer before, and is not asked again' >&2
    return 124
  fi
  limited 30 nvidia-smi "$@"
}

gpu_query() { # drivers before 450 know no MIG, later ones may rename a field: the whole query is refused with exit code 2
  fields=index,uuid,name,pci.bus_id,memory.total,memory.used,ecc.errors.uncorrected.volatile.total,driver_version
  more=persistence_mode,ecc.mode.current,temperature.gpu,pcie.link.width.current,pcie.link.width.max
  for reasons in throttle event; do
    (smi "--query-gpu=$fields,mig.mode.current,clocks_${reasons}_reasons.active,$more" --format=csv)
    code=$?
    [ "$code" = 2 ] || return "$code"
  done
  smi "--query-gpu=$fields" --format=csv
}

gpu_board() { # gpu ADDRESS none|untold|TYPE OF ITS IOMMU GROUP; nvswitch ADDRESS; option WORD of the kernel command line
  gpus=
  for device in /sys/bus/pci/devices/*; do
    value_of "$device/vendor"
    [ "$value" = 0x10de ] || continue
    value_of "$device/class"
    case $value in
      0x03*)
        gpus=yes
        value=none
        if [ -e "$device/iommu_group" ]; then
          value_of "$device/iommu_group/type" # it does not exist before Linux 4.11
        fi
        echo "gpu ${device##*/} ${value:-untold}"
        ;;
      0x0680*) echo "nvswitch ${device##*/}" ;;
    esac
  done
  [ -n "$gpus" ] || return 0
  value_of /proc/cmdline
  set -f
  for word in $value; do
    case $word in
      iommu=* | iommu.passthrough=*) echo "option $word" ;;
    esac
  done
  set +f
}

gpu_acs() { # of each PCI bridge its address, and what it says of Access Control Services, which root alone may see
  limited 10 root lspci -Dnvvv -d ::0604 | grep -aE '^[0-9a-f]|ACSCtl:|access denied'
}

# --- topology ---------------------------------------------------------------------------------------------------------

look_at_topology() {
  section topology.pci topology_pci
  ask_smi topology.matrix smi topo -m
}

topology_pci() { # KIND NAME PATH NUMA_NODE SPEED MAX_SPEED WIDTH MAX_WIDTH, tabs between; no process for any of it
  for device in /sys/bus/pci/devices/*; do
    value_of "$device/vendor"
    [ "$value" = 0x10de ] || continue
    value_of "$device/class"
    case $value in
      0x03*) pci_line gpu "${device##*/}" "$device" ;;
    esac
  done
  pci_hcas
}

pci_hcas() {
  for device in /sys/class/infiniband/*/device; do
    name=${device%/device}
    [ ! -e "$device" ] || pci_line hca "${name##*/}" "$device"
  done
}

pci_line() { # pci_line KIND NAME FOLDER
  cd -P "$3" || return
  printf '%s\t%s\t%s' "$1" "$2" "$PWD"
  for file in numa_node current_link_speed max_link_speed current_link_width max_link_width; do
    value_of "$file"
    printf '\t%s' "$value"
  done
  echo
}

value_of() { # value_of FILE: its first line, in $value; empty where it cannot be read
  value=
  # shellcheck disable=SC2015 # what read returns says whether there is a newline, not whether there is a value
  [ -r "$1" ] && read -r value 2>/dev/null <"$1" || :
}

# --- rdma -------------------------------------------------------------------------------------------------------------

look_at_rdma() {
  how=section
  [ -e /sys/class/infiniband ] || how=section_here # there is nothing to be said, or complained of
  "$how" rdma.sysfs rdma_sysfs
  "$how" rdma.netdevs rdma_netdevs
  section rdma.ofed ofed_info -s
  section_here rdma.adapters rdma_adapters
  if [ -n "$adapters" ]; then
    section rdma.mlx5_core modinfo -F version mlx5_core
  fi
  "$how" rdma.pci pci_hcas
  if [ -r /proc/modules ]; then
    section rdma.modules cat /proc/modules
  else # the kernel takes no modules
    section rdma.modules lsmod
  fi
  section rdma.peermem rdma_peermem
  section rdma.comes_back rdma_comes_back
  section_of rdma.devices ls /dev/infiniband
}

rdma_sysfs() { # FILE:LINE; of the GID tables, which have up to 256 slots, only what is in use
  set -- /sys/class/infiniband/*/ports
  [ -e "$1" ] || return 0
  grep -aH '' /sys/class/infiniband/*/node_guid /sys/class/infiniband/*/hca_type /sys/class/infiniband/*/fw_ver \
    /sys/class/infiniband/*/ports/*/state /sys/class/infiniband/*/ports/*/phys_state \
    /sys/class/infiniband/*/ports/*/rate /sys/class/infiniband/*/ports/*/link_layer
  grep -aHvE '^(fe80|0000)(:0000){7}$' /sys/class/infiniband/*/ports/*/gids/* | while IFS= read -r line; do
    printf '%s\n' "$line"
    for attribute in types ndevs; do
      file=${line%%:*}
      file=${file%/gids/*}/gid_attrs/$attribute/${file##*/}
      value_of "$file"
      if [ -n "$value" ]; then
        printf '%s:%s\n' "$file" "$value"
      else
        echo "$file: cannot be read" >&2
      fi
    done
  done
  return 0
}

rdma_netdevs() { # HCA INTERFACE, a line for each interface of its PCI device
  for interface in /sys/class/infiniband/*/device/net/*; do
    [ -e "$interface" ] || continue
    hca=${interface%/device/net/*}
    echo "${hca##*/} ${interface##*/}"
  done
}

rdma_adapters() { # adapter ADDRESS; loaded VERSION, empty where the module in the kernel names none
  adapters=
  for device in /sys/bus/pci/devices/*; do
    value_of "$device/vendor"
    [ "$value" = 0x15b3 ] || continue
    value_of "$device/class"
    case $value in
      0x02*)
        adapters=yes
        echo "adapter ${device##*/}"
        ;;
    esac
  done
  if [ -d /sys/module/mlx5_core ]; then
    value_of /sys/module/mlx5_core/version
    echo "loaded $value"
  fi
}

rdma_peermem() {
  value_of /proc/sys/kernel/osrelease
  echo "kernel $value"
  headers=no
  [ ! -e "/lib/modules/$value/build" ] || headers=yes # a link that leads nowhere where they were removed
  echo "headers $headers"
  value_of /proc/driver/nvidia/version
  echo "driver $value"
  [ -z "$value${gpus-}" ] || rdma_secure_boot # gpus: of look_at_gpu; it may be what keeps their driver out
  for client in /sys/kernel/mm/memory_peers/*; do
    [ ! -d "$client" ] || echo "client ${client##*/}"
  done
  for module in nvidia_peermem nv_peer_mem; do
    [ ! -d "/sys/module/$module" ] || echo "loaded $module"
    if ! there modinfo; then
      echo "modinfo: not found" >&2
    elif words=$(modinfo -F filename "$module" 2>&1); then
      echo "exists $module"
    else
      echo "missing $module $words"
    fi
  done
}

rdma_secure_boot() { # in the words of mokutil, else the bytes of the variable
  variable=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
  words=
  if there mokutil; then
    words=$(mokutil --sb-state 2>&1)
  elif [ -r "$variable" ]; then
    words=$(od -An -tu1 "$variable")
  elif [ ! -d /sys/firmware/efi ]; then
    words='no EFI'
  fi
  # shellcheck disable=SC2086 # on one line
  echo secureboot $words
}

rdma_comes_back() { # FILE:LINE of what names the module at boot, and whether the old module's own service is enabled
  module='(nvidia[-_]peermem|nv_peer_mem)'
  set --
  for file in /etc/rc.local /etc/rc.d/rc.local; do # of which systemd runs what may be run
    [ ! -x "$file" ] || [ $# != 0 ] || set -- "$file"
  done
  words="$module|softdep[[:space:]]+nvidia[[:space:]].*post:.*$module|(blacklist|install)[[:space:]]+$module"
  grep -aHsE "^[[:space:]]*($words|[^#]*(insmod|modprobe)[[:space:]].*$module)" "$@" \
    /etc/modules /etc/modules-load.d/*.conf /run/modules-load.d/*.conf /usr/local/lib/modules-load.d/*.conf \
    /usr/lib/modules-load.d/*.conf /lib/modules-load.d/*.conf \
    /etc/modprobe.d/*.conf /run/modprobe.d/*.conf /usr/lib/modprobe.d/*.conf /lib/modprobe.d/*.conf
  there systemctl || return 0
  state=
  for file in /etc/init.d/nv_peer_mem /etc/systemd/system/nv_peer_mem.service /run/systemd/system/nv_peer_mem.service \
    /usr/local/lib/systemd/system/nv_peer_mem.service /usr/lib/systemd/system/nv_peer_mem.service \
    /lib/systemd/system/nv_peer_mem.service; do
    [ ! -e "$file" ] || state=unknown
  done
  [ -z "$state" ] || state=$(limited 5 systemctl is-enabled nv_peer_mem 2>/dev/null)
  echo "nv_peer_mem.service $state"
}

# --- health: what only a health check reads ---------------------------------------------------------------------------

look_at_health() { # the first look at counters; the second one follows after all subjects
  section health.before health_counters
  value_of /proc/uptime
  looked=${value%%.*}
  section health.xids health_xids
  section health.memory grep -asH '' /sys/devices/system/edac/mc/mc*/ce_count /sys/devices/system/edac/mc/mc*/ue_count
  section health.mounts grep -aE '^[^ ]+ [^ ]+ (ext[234]|xfs|btrfs) ' /proc/mounts
  section health.inodes health_inodes
  section health.drain root cat /var/lib/taco-launch/agent/drain.json
  ask_smi health.nvlink smi nvlink -s
  ask_smi health.nvlink_errors smi nvlink -e
  pages=index,retired_pages.double_bit.count,retired_pages.pending
  ask_smi health.gpus smi "--query-gpu=$pages,pcie.link.gen.current,pcie.link.gen.max,pstate" --format=csv
  # the verdicts of the site's own programs, read alone: DCGM's watches are not turned on, and NHC marks no node. In its
  # detached mode NHC would show an earlier verdict, and start itself again without these settings. Its watchdog ends
  # it 4 seconds after its time.
  look_at_dcgm health
  look_at_nhc health
  look_at_gcm health
  missing= # what the host does not have, the container may have
  there dcgmi || missing=dcgm
  there nhc || missing="$missing nhc"
  there health_checks || missing="$missing gcm"
}

look_at_dcgm() { # look_at_dcgm health|container
  section "$1.dcgm" limited 5 dcgmi health -c
}

look_at_nhc() { # look_at_nhc health|container
  section "$1.nhc" limited 26 root nhc -l - -v -t 20 MARK_OFFLINE=0 DETACHED_MODE=0
}

# gcm has no verdict on a host as a whole. A site's file has a table for each check that it runs, with what it expects of
# its hosts; run are those that only read, and are right beside jobs. Not run are tests (diag, check-nccl, cuda), and
# checks that end processes, trace them, clear the BMC's log or ask other hosts.
gcm_file=/etc/fb-healthchecks/config.toml
gcm_checks=' check-blockdev check-dcgmi.nvlink check-ethlink check-hca check-ib.check-ib-interfaces
  check-ib.check-iblink check-ib.check-ibstat check-node.check-module check-node.uptime check-nvidia-smi check-pci
  check-process.check-running-process check-process.check-zombie check-processor.check-buddyinfo
  check-processor.check-clocksource check-processor.check-mem-size check-processor.cpufreq-governor
  check-processor.processor-freq check-sensors check-service.package-version check-service.service-status
  check-storage.check-mountpoint check-storage.directory-exists check-storage.disk-size check-storage.disk-usage
  check-storage.file-exists check-storage.mounted-directory check-syslogs.io-errors check-syslogs.link-flaps
  check-syslogs.xid '
gcm_of_gpus=' gpu_num clock_freq gpu_temperature gpu_retired_pages ecc_uncorrected_volatile_total
  ecc_corrected_volatile_total vbios_mismatch row_remap row_remap_pending row_remap_failed '

look_at_gcm() { # look_at_gcm health|container
  if there health_checks; then
    section "$1.gcm" gcm_run
  else
    refuse "$1.gcm" 127 'health_checks: not found'
  fi
}

gcm_run() { # of each check `run NAME`, what it prints, and `exit CODE`; 15 seconds for all of them
  lines=$(root cat "$gcm_file") || return
  lines=$(printf '%s\n' "$lines" | gcm_lines)
  value_of /proc/uptime
  until=$((${value%%.*} + 15))
  set -f
  IFS=$newline
  for line in $lines; do
    unset IFS
    echo "run ${line%% -c *}"
    value_of /proc/uptime
    if [ "${value%%.*}" -lt "$until" ]; then
      gcm_check
    else
      printf 'not run: the checks before it took 15 s\nexit 124\n'
    fi
  done
}

gcm_check() { # one check: a sink is given, since that of the file would publish it, and a folder, since gcm keeps a log
  folder=$(mktemp -d 2>&1) || {
    printf '%s\nexit 1\n' "$folder"
    return
  }
  # shellcheck disable=SC2086 # words
  (limited 8 root "$(command -v health_checks)" --config "$gcm_file" $line --verbose-out --log-folder "$folder" \
    --sink file --sink-opt "file_path=$folder/records") 2>&1
  printf '\nexit %s\n' "$?"
  (root rm -rf "$folder")
}

gcm_lines() { # a line for each table [health_checks.NAME.NAME] that may be run; check-nvidia-smi with its own checks
  CHECKS=$gcm_checks GPUS=$gcm_of_gpus awk '
    function put() { if (name != "" && (name != "check-nvidia-smi" || more != "")) print words more }
    BEGIN { checks = ENVIRON["CHECKS"]; gpus = ENVIRON["GPUS"]; gsub("\n", " ", checks); gsub("\n", " ", gpus) }
    /^[ \t]*\[[^][]*\][ \t]*(#.*)?$/ {
      put(); name = more = ""; listed = 0
      words = $0
      if (!sub(/^[ \t]*\[[ \t]*health_checks\./, "", words)) next
      sub(/[ \t]*\].*/, "", words)
      if (index(checks, " " words " ")) name = words
      sub(/\./, " ", words)
      next
    }
    name != "check-nvidia-smi" { next }
    /^[ \t]*check[ \t]*=/ { listed = 1 }
    listed {
      text = $0
      while (match(text, /["\047][a-z_]+["\047]/)) {
        one = substr(text, RSTART + 1, RLENGTH - 2)
        if (index(gpus, " " one " ")) more = more " -c " one
        text = substr(text, RSTART + RLENGTH)
      }
      if (/\]/) listed = 0
    }
    END { put() }'
}

look_again() { # 3 seconds after the first look, or later
  value_of /proc/uptime
  passed=$((${value%%.*} - looked))
  [ "$passed" -ge 3 ] || sleep $((3 - passed))
  section health.after health_counters
}

health_counters() {
  grep -asH '' /proc/uptime /sys/class/infiniband/*/ports/*/counters/[!m]* \
    /sys/class/infiniband/*/ports/*/hw_counters/* /sys/class/net/*/carrier_changes \
    /sys/class/net/*/statistics/[rt]x_errors /sys/class/net/*/statistics/[rt]x_dropped
}

health_xids() { # since the boot: of the kernel buffer, which may have wrapped, and of the journal where one is kept
  kept=
  told=$(limited 5 root dmesg)
  said=$?
  if [ -d /run/systemd/system ] && there journalctl; then
    kept=$(limited 5 root journalctl -k -b -q --no-pager -o short-monotonic 2>/dev/null)
    [ -z "$kept" ] || said=0
  fi
  printf '%s\n' "$told" "$kept" | grep -aE 'NVRM: Xid \('
  if [ -z "$kept" ]; then
    first=$(printf '%s\n' "$told" | sed -n '1s/^\[ *\([0-9]*\)\..*/\1/p')
    [ "${first:-0}" -lt 600 ] || echo "log starts at $first"
  fi
  return "$said"
}

health_inodes() {
  set -f
  IFS=$newline
  # shellcheck disable=SC2046 # a mount a line
  set -- $(awk '$3 ~ /^(ext[234]|xfs|btrfs)$/ && !($1 in seen) { seen[$1]; print $2 }' /proc/mounts)
  unset IFS
  set +f
  [ $# = 0 ] || limited 10 df -PiT "$@"
}

# --- made: what set-up left here, and what it builds on ----------------------------------------------------------------

look_at_made() {
  name=${taco_launch_cluster-}
  unit=taco-launch-$name
  firewall=taco-launch_${name}_firewall
  cluster=/var/lib/taco-launch/clusters/$name
  case $name in
    *@*) # CLUSTER@VARIANT, as core/model/host/paths.py has it
      unit=taco-launch.${name#*@}.${name%%@*}
      firewall=taco-launch.firewall.${name#*@}.${name%%@*}
      cluster=/var/lib/taco-launch/clusters/${name%%@*}/variants/${name#*@}
      ;;
  esac
  section made.files made_files
  section made.keys root grep -aH '' "$cluster/ssh/host_key.pub" "$cluster/ssh/key.pub"
  section_here made.devices made_devices
  section made.limits grep -aHE '^(CapBnd|Max locked memory)' /proc/1/status /proc/1/limits
  section_of_systemd made.units systemctl show -p Id -p ActiveState -p UnitFileState -p ExecStart \
    "$unit.service" docker.service
  section made.at_boot made_at_boot "$unit.service" docker.service
  section made.package made_package
  section_of made.engine made_engine /run/docker.pid
  section_of made.daemon_json cat /etc/docker/daemon.json
  section_of made.hosts cat /etc/hosts
  section made.machine made_machine
  section made.slurm made_slurm
}

made_machine() { # what no two machines share, and containers of one machine neither
  cat /proc/sys/kernel/random/boot_id && readlink /proc/self/ns/pid && uname -n
}

made_slurm() { # `UNIT ENABLED ACTIVE` of installed services, `PATH CLUSTER` of settings, `cgroup 2`
  [ ! -e /sys/fs/cgroup/cgroup.controllers ] || echo 'cgroup 2'
  for each in munge slurmctld slurmd; do
    if there "$each"; then
      echo "$each.service $(limited 5 systemctl is-enabled "$each" 2>/dev/null) $(limited 5 systemctl is-active "$each" 2>/dev/null)"
    fi
  done
  for each in slurm gres cgroup; do
    if [ -e "/etc/slurm/$each.conf" ]; then
      owner=$(root sed -n '1s/^# by taco-launch setup, cluster //p' "/etc/slurm/$each.conf")
      echo "/etc/slurm/$each.conf ${owner:--}"
    fi
  done
}

made_files() { # MODE|KIND|PATH of each, the target of links, the SHA256 of files; of other clusters their folder
  state=/var/lib/taco-launch
  etc=/etc/taco-launch
  above=${cluster%/variants/*}
  set --
  for place in "$state" "$etc" "/etc/systemd/system/$unit.service" \
    "/etc/systemd/system/$firewall.service" \
    "/etc/systemd/system/taco-launch."*".$name.service" \
    /etc/systemd/system/docker.service.d /etc/modules-load.d/taco-launch-peermem.conf \
    /etc/modprobe.d/taco-launch-peermem.conf /etc/munge/munge.key \
    /etc/slurm/slurm.conf /etc/slurm/gres.conf /etc/slurm/cgroup.conf; do
    [ ! -e "$place" ] || set -- "$@" "$place"
  done
  [ $# -gt 0 ] || return 0
  # shellcheck disable=SC2016 # the inner shell's
  root find "$@" \( -path "$state/clusters/*/*" ! -path "$cluster" ! -path "$cluster/*" ! -path "$above/variants" -o -path "$etc/*/*" ! -path "$etc/$name/*" ! -path "$etc/$name@*/*" -o \
    -path "$state/*" ! -path "$state/clusters*" ! -path "$state/agent*" ! -path "$state/docker*" \) -prune -o -exec stat -c '%a|%F|%n' {} + -type l -exec \
    /bin/sh -c 'for link; do echo "$link -> $(readlink "$link")"; done' sh {} + -o -type f -exec sha256sum {} +
}

made_at_boot() { # made_at_boot UNIT...: `UNIT STATE` of each, by its files as they are now
  there systemctl || return 0
  for each; do
    echo "$each $(limited 5 systemctl is-enabled "$each" 2>/dev/null)"
  done
}

made_engine() { # made_engine PID_FILE: the command line of the engine that runs, a word a line
  value_of "$1"
  tr '\0' '\n' <"/proc/$value/cmdline"
}

made_devices() {
  for device in /dev/infiniband/* /dev/nvidia*; do
    [ ! -e "$device" ] || [ -d "$device" ] || echo "$device"
  done
}

made_package() { # `ii NAME VERSION` of what the engine came from, where it is a package
  if there dpkg-query; then
    # shellcheck disable=SC2016 # dpkg-query's own
    dpkg-query -W -f '${db:Status-Abbrev}${Package} ${Version}\n' docker.io docker-ce moby-engine \
      nvidia-container-toolkit nvidia-container-toolkit-base nvidia-docker2 2>/dev/null
  else
    rpm -q --queryformat 'ii %{NAME} %{VERSION}\n' docker-ce docker docker-engine moby-engine \
      nvidia-container-toolkit nvidia-container-toolkit-base nvidia-docker2
  fi
  [ $? != 127 ]
}

# --- image: what is inside the container, or on the host itself -------------------------------------------------------

look_at_image() {
  if [ -z "${taco_launch_container-}" ]; then
    section image.where echo host
    look_inside
    return
  fi
  find_engine
  # shellcheck disable=SC2086,SC2154 # taco_launch_probe: see above
  complaints=$(printf '%s\n' "$taco_launch_probe" |
    limited 90 $engine docker exec -i "$taco_launch_container" /bin/sh -s -- "$nonce" inside ${missing-} 2>&1 >&3 3>&-)
  code=$?
  begin image.where
  printf %s "$taco_launch_container"
  finish image.where "$code" "$complaints"
}

look_inside() {
  section_here image.found image_found
  section image.files grep -aH '' /etc/nccl.conf /proc/self/limits
  section image.mpirun limited 10 mpirun --version
  section image.ucx ucx_info -v
  section image.cuda image_cuda
  section_here image.libraries image_libraries
  section image.python limited 20 python3 -Bc "$packages"
  section image.shm df -PkT /dev/shm
}

image_found() { # where programs are
  for name in mpirun sshd; do
    if there "$name"; then
      printf '%s ' "$name"
      command -v "$name"
    fi
  done
}

image_cuda() { # the toolkit's own files, its compiler, or what an image of NVIDIA's has in its environment
  folder=${CUDA_HOME:-/usr/local/cuda}
  if [ -r "$folder/version.json" ]; then
    exec cat "$folder/version.json"
  elif [ -r "$folder/version.txt" ]; then
    exec cat "$folder/version.txt"
  elif there nvcc; then
    exec nvcc --version
  elif [ -n "${CUDA_VERSION-}" ]; then
    echo "CUDA Version $CUDA_VERSION"
  else
    echo "$folder: No such file or directory" >&2
    return 1
  fi
}

image_libraries() { # NCCL and UCX tell their version in their file names, or not at all; verbs load what has such names
  set -f
  IFS=:
  # shellcheck disable=SC2086
  set -- /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /usr/local/lib /usr/local/lib64 /usr/local/cuda/lib64 \
    /usr/local/nccl/lib ${LD_LIBRARY_PATH-}
  unset IFS
  set +f
  for pattern in "$@"; do
    # shellcheck disable=SC2086
    for folder in $pattern; do
      for library in "$folder"/libnccl.so.* "$folder"/libucp.so.* "$folder"/libibverbs.so.* "$folder"/lib*-rdmav*.so \
        "$folder"/libibverbs/lib*-rdmav*.so; do
        [ ! -e "$library" ] || echo "$library"
      done
    done
  done
}

# What is installed, in the order in which python would find it. Nothing of it is imported: torch takes seconds, and
# even re would take as long as python itself. What Horovod was built with shows in the names of the classes that its
# library holds.
packages='
import os, sys
del sys.path[0]
print("version %d.%d.%d" % sys.version_info[:3])
for folder in sys.path:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        continue
    for name in names:
        stem, _, kind = name.rpartition(".")
        package, _, rest = stem.partition("-")
        version, lower = rest.partition("-")[0], package.lower()
        known = lower in ("torch", "horovod", "lightcc", "light_cc") or lower.startswith("nvidia_nccl_")
        if known and version and kind.lower() in ("dist-info", "egg-info", "egg"):
            print("package %s %s" % (package, version))
    if "horovod" not in names:
        continue
    import glob, mmap
    for name in sorted(glob.glob(os.path.join(folder, "horovod", "*", "mpi_lib*.so"))):
        print("library %s" % name)
        with open(name, "rb") as file:
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            for word in ("12MPIAllreduceE", "13GlooAllreduceE", "13NCCLAllreduceE", "12DDLAllreduceE",
                         "12CCLAllreduceE", "LIGHT_2D_ALLREDUCE"):
                if held.find(word.encode()) >= 0:
                    print("holds %s" % word)
'

probe "$@"
