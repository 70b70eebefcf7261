# Simulated hardware: where in a container things can be put below /sys and /proc. Sourced by simulated-hardware.
# shellcheck shell=sh

# Overlays lie over the real folders, what is written stays in a tmpfs of this container: nothing reaches the machine.
# Interfaces come and go, which an overlay does not see: their folders are the real ones again.
cover() {
    _run=/run/simulated-hardware
    ! mountpoint -q "$_run/real" || return 0
    mkdir -p "$_run/real"
    mount -t tmpfs -o mode=755 simulated-hardware /run/simulated-hardware
    mkdir -p "$_run/real" "$_run/inner"
    mount --bind /sys "$_run/real"
    hide
    for _part in class bus devices module kernel/mm; do
        mkdir -p "$_run/upper/$_part" "$_run/work/$_part"
        mount -t overlay -o "lowerdir=/sys/$_part,upperdir=$_run/upper/$_part,workdir=$_run/work/$_part" \
            simulated-hardware "/sys/$_part"
    done
    mount --bind "$_run/real/class/net" /sys/class/net
    mount --bind "$_run/real/devices/virtual/net" /sys/devices/virtual/net
    : >"$_run/modules"
    [ ! -e /proc/modules ] || mount --bind "$_run/modules" /proc/modules
    mount -t tmpfs -o mode=755 simulated-hardware /proc/driver
}

# hide: what the machine has of these kinds is not the host's. An overlay takes a 0:0 character device for "not there".
hide() {
    mkdir -p "$_run/upper/bus/pci/devices" "$_run/upper/devices/system" "$_run/upper/class" "$_run/upper/module"
    mknod "$_run/upper/devices/system/node" c 0 0
    for _device in /sys/bus/pci/devices/*; do
        [ ! -e "$_device" ] || mknod "$_run/upper/bus/pci/devices/${_device##*/}" c 0 0
    done
    for _path in "$state"/*/*/path; do
        [ -r "$_path" ] || continue
        read -r _path <"$_path"
        _path=${_path%%/*}
        [ -e "/sys/devices/$_path" ] || continue
        [ -e "$_run/upper/devices/$_path" ] || mknod "$_run/upper/devices/$_path" c 0 0
    done
    for _class in infiniband infiniband_verbs; do
        [ ! -e "/sys/class/$_class" ] || mknod "$_run/upper/class/$_class" c 0 0
    done
    for _module in "$library"/modules/*; do
        _module=${_module##*/}
        [ ! -e "/sys/module/$_module" ] || mknod "$_run/upper/module/$_module" c 0 0
    done
}

# bond NAME: eth0 takes the name of a bond and is described as one; few small machines have bonding.
bond() {
    [ -e "/sys/class/net/$1" ] || rename "$1"
    _run=/run/simulated-hardware
    ! mountpoint -q "/sys/devices/virtual/net/$1" || return 0
    _mac=$(cat "/sys/class/net/$1/address")
    _speed=$(awk '{print $1}' "$state"/hca/mlx5_bond_0/rate)
    _upper="$_run/upper/$1"
    mkdir -p "$_upper/bonding" "$_run/work/$1" "$_run/net/bonding"
    put "$_upper/speed" $((_speed * 1000))
    put "$_upper/bonding/mode" "802.3ad 4"
    put "$_upper/bonding/xmit_hash_policy" "layer3+4 1"
    put "$_upper/bonding/miimon" 100
    put "$_upper/bonding/mii_status" up
    put "$_upper/bonding/slaves" "ens1f0 ens1f1"
    mount -t overlay -o "lowerdir=/sys/devices/virtual/net/$1,upperdir=$_upper,workdir=$_run/work/$1" \
        simulated-hardware "/sys/devices/virtual/net/$1"
    {
        printf 'Ethernet Channel Bonding Driver: v3.7.1 (simulated)\n\n'
        printf '%s\n' "Bonding Mode: IEEE 802.3ad Dynamic link aggregation" "Transmit Hash Policy: layer3+4 (1)" \
            "MII Status: up" "MII Polling Interval (ms): 100" "Up Delay (ms): 0" "Down Delay (ms): 0"
        for _slave in ens1f0 ens1f1; do
            printf '\n%s\n' "Slave Interface: $_slave"
            printf '%s\n' "MII Status: up" "Speed: $((_speed * 500)) Mbps" "Duplex: full" "Link Failure Count: 0" \
                "Permanent HW addr: $_mac" "Slave queue ID: 0"
        done
    } >"$_run/net/bonding/$1"
    perl "$library/proc-net.pl" "$_run/net"
}

# rename NAME: eth0 becomes NAME. Kernels before 6.2 rename only what is down, and forget its routes with that.
rename() {
    ! ip link set dev eth0 name "$1" 2>/dev/null || return 0
    _routes=$(ip -4 route show dev eth0)
    ip link set dev eth0 down
    ip link set dev eth0 name "$1"
    ip link set dev "$1" up
    # direct routes first: the others need them
    { printf '%s\n' "$_routes" | grep -v via && printf '%s\n' "$_routes" | grep via; } | while read -r _route; do
        # shellcheck disable=SC2086 # a route is words
        ip -4 route replace $_route dev "$1" 2>/dev/null || echo "route not restored: $_route" >&2
    done
}
