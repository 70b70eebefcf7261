# Simulated hardware: makes /proc, /sys and /dev say what the state says. Sourced after state.sh, before modules.sh.
# shellcheck shell=sh
sys="$root/sys"
pci="$sys/bus/pci/devices"
# What is written here lies in overlays and tmpfs of this container only: see mounts.sh.

# show: everything again, from the state
show() {
    _cpus_0=$(cpus_of 0) # asked once: every device below has one of them
    _cpus_1=$(cpus_of 1)
    show_modules
    show_pci
    show_driver
    show_hcas
    show_nodes
}

show_modules() {
    mkdir -p "$sys/module"
    for _module in "$library"/modules/*; do
        _module=${_module##*/}
        loaded "$_module" || rm -rf "$sys/module/$_module"
        about "$_module" sys | while read -r _path _content; do
            if loaded "$_module"; then
                mkdir -p "$root${_path%/*}"
                [ "$_content" != @version ] || _content=$(fact "module/$_module")
                put "$root$_path" "$_content"
            else
                served "$_path" || rm -f "$root$_path"
                rmdir "$root${_path%/*}" 2>/dev/null || :
            fi
        done
    done
    for _module in "$state"/module/*; do
        [ -e "$_module" ] || continue
        _module=${_module##*/}
        _users=$(users "$_module")
        _folder="$sys/module/$_module"
        rm -rf "$_folder"
        mkdir -p "$_folder/holders" "$_folder/parameters"
        put "$_folder/version" "$(fact "module/$_module")"
        put "$_folder/coresize" "$(about "$_module" size)"
        put "$_folder/initstate" live
        # shellcheck disable=SC2086 # one word per user
        set -- $_users
        put "$_folder/refcnt" $(($# + $(held "$_module")))
        for _user; do
            ln -s "../../$_user" "$_folder/holders/$_user"
        done
    done
    # Where the kernel has no modules there is no /proc/modules either, and nothing that this could lie over.
    list_modules >"$root/run/simulated-hardware/modules"
}

# served PATH: a loaded module has this file; two modules may bring the same one
served() (
    for _other in "$state"/module/*; do
        [ ! -e "$_other" ] || ! grep -q "^sys $1 " "$library/modules/${_other##*/}" || exit 0
    done
    exit 1
)

# list_modules: prints /proc/modules
list_modules() {
    for _module in "$state"/module/*; do
        [ -e "$_module" ] || continue
        _module=${_module##*/}
        _users=$(users "$_module")
        # shellcheck disable=SC2086 # one word per user
        set -- $_users
        _list=
        [ $# = 0 ] || _list="$(printf '%s,' "$@")"
        printf '%s %s %s %s Live 0x0000000000000000 (OE)\n' "$_module" "$(about "$_module" size)" \
            $(($# + $(held "$_module"))) "${_list:--}"
    done
}

# speed GENERATION: prints a PCIe link speed as sysfs has it
speed() {
    case $1 in
        1) echo "2.5 GT/s PCIe" ;;
        2) echo "5.0 GT/s PCIe" ;;
        3) echo "8.0 GT/s PCIe" ;;
        4) echo "16.0 GT/s PCIe" ;;
        *) echo "32.0 GT/s PCIe" ;;
    esac
}

# config CLASS VENDOR DEVICE CHILD: prints the first 64 bytes of a device's configuration space, which lspci reads;
# CHILD is the bus below a bridge, 0 for a device
config() {
    # shellcheck disable=SC2046 # one word per byte
    _bytes=$(printf '\\%03o' $(($2 & 255)) $(($2 >> 8)) $(($3 & 255)) $(($3 >> 8)) 6 0 16 0 \
        1 $(($1 & 255)) $((($1 >> 8) & 255)) $(($1 >> 16)) 0 0 $(($4 > 0)) 0 \
        0 0 0 0 0 0 0 0 0 "$(($4))" "$(($4))" 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0)
    # shellcheck disable=SC2059 # it is a format: every byte is an escape
    printf "$_bytes"
}

# with_acs: completes the configuration space of a bridge, read from stdin, by a PCI Express capability and Access
# Control Services that are switched on (SrcValid, ReqRedir, CmpltRedir, UpstreamFwd): 4096 bytes, which root may read
with_acs() {
    head -c 52
    printf '\100'
    head -c 11 /dev/zero
    printf '\020\000\142\000'
    head -c 188 /dev/zero
    printf '\015\000\001\000\037\000\035\000'
    head -c 3832 /dev/zero
}

# pci_device PATH NUMA CLASS VENDOR DEVICE GENERATION WIDTH [CHILD]: one device or bridge
pci_device() {
    _folder="$sys/devices/$1"
    mkdir -p "$_folder"
    ln -sfn "../../../devices/$1" "$pci/${1##*/}"
    put "$_folder/numa_node" "$2"
    put "$_folder/class" "$3"
    put "$_folder/vendor" "$4"
    put "$_folder/device" "$5"
    _speed=$(speed "$6")
    put "$_folder/current_link_speed" "$_speed"
    put "$_folder/max_link_speed" "$_speed"
    put "$_folder/current_link_width" "$7"
    put "$_folder/max_link_width" "$7"
    put "$_folder/uevent" "PCI_SLOT_NAME=${1##*/}"
    if [ "$2" = 0 ]; then _cpus=$_cpus_0; else _cpus=$_cpus_1; fi
    put "$_folder/local_cpulist" "$_cpus"
    put "$_folder/irq" 0
    : >"$_folder/resource"
    if [ -n "${8:-}" ] && [ "$_acs" = on ]; then
        config "$3" "$4" "$5" "$8" | with_acs >"$_folder/config"
    else
        config "$3" "$4" "$5" "${8:-0}" >"$_folder/config"
    fi
    if [ "$_iommu" != none ]; then
        mkdir -p "$_folder/iommu_group"
        put "$_folder/iommu_group/type" "$_iommu"
    fi
}

# bridges PATH NUMA GENERATION WIDTH: the bridges above a device
bridges() {
    _above=${1%/*}
    _child=${1##*/0000:}
    while [ "${_above#*/}" != "$_above" ]; do
        [ -e "$pci/${_above##*/}" ] || pci_device "$_above" "$2" 0x060400 0x10b5 0x9797 "$3" "$4" "0x${_child%%:*}"
        _child=${_above##*/0000:}
        _above=${_above%/*}
    done
}

show_pci() {
    for _root in "$state"/*/*/path; do
        [ ! -r "$_root" ] || { read -r _path <"$_root" && rm -rf "$sys/devices/${_path%%/*}"; }
    done
    mkdir -p "$pci"
    _acs=$(fact acs)
    _iommu=$(fact iommu)
    for _link in "$pci"/*; do
        [ ! -L "$_link" ] || rm -f "$_link"
    done
    for _index in $(present gpu); do
        _gpu="gpu/$_index"
        _path=$(fact "$_gpu/path")
        _id=$(fact "$_gpu/device-id")
        _folder="$sys/devices/$_path"
        bridges "$_path" "$(fact "$_gpu/numa")" "$(fact "$_gpu/link-gen-max")" "$(fact "$_gpu/link-width-max")"
        pci_device "$_path" "$(fact "$_gpu/numa")" 0x030200 0x10de "$(lower "0x$(echo "$_id" | cut -c3-6)")" \
            "$(fact "$_gpu/link-gen-max")" "$(fact "$_gpu/link-width-max")"
        _sub=$(fact "$_gpu/subsystem")
        put "$_folder/subsystem_device" "$(lower "0x$(echo "$_sub" | cut -c3-6)")"
        put "$_folder/subsystem_vendor" 0x10de
        put "$_folder/current_link_speed" "$(speed "$(fact "$_gpu/link-gen")")"
        put "$_folder/current_link_width" "$(fact "$_gpu/link-width")"
        ! loaded nvidia || driven "$_folder" nvidia
    done
    for _index in $(present nvswitch); do
        _switch="nvswitch/$_index"
        _path=$(fact "$_switch/path")
        bridges "$_path" "$(fact "$_switch/numa")" 4 2
        pci_device "$_path" "$(fact "$_switch/numa")" 0x068000 0x10de "$(fact "$_switch/device-id")" 4 2
    done
    for _name in $(present hca); do
        _hca="hca/$_name"
        _path=$(fact "$_hca/path")
        bridges "$_path" "$(fact "$_hca/numa")" "$(fact "$_hca/link-gen")" "$(fact "$_hca/link-width")"
        _class=0x020700
        [ "$(fact "$_hca/layer")" = InfiniBand ] || _class=0x020000
        pci_device "$_path" "$(fact "$_hca/numa")" $_class 0x15b3 "$(fact "$_hca/device-id")" \
            "$(fact "$_hca/link-gen")" "$(fact "$_hca/link-width")"
        ! loaded mlx5_core || driven "$sys/devices/$_path" mlx5_core
    done
}

lower() {
    printf '%s\n' "$1" | tr A-F a-f
}

# driven FOLDER DRIVER: the device's `driver` link
driven() {
    mkdir -p "$sys/bus/pci/drivers/$2"
    ln -sfn "$sys/bus/pci/drivers/$2" "$1/driver"
}

# show_driver: /proc/driver/nvidia and /dev/nvidia*
show_driver() {
    _proc="$root/proc/driver/nvidia"
    rm -rf "$_proc"
    rm -f "$root"/dev/nvidia*
    loaded nvidia || return 0
    _version=$(fact module/nvidia)
    _kind="NVIDIA UNIX x86_64 Kernel Module"
    [ "$(fact driver-license)" = NVIDIA ] || _kind="NVIDIA UNIX Open Kernel Module for x86_64"
    mkdir -p "$_proc/gpus"
    put "$_proc/version" "NVRM version: $_kind  $_version  simulated
GCC version:  simulated"
    node nvidiactl
    _minor=0
    for _index in $(present gpu); do
        _path=$(fact "gpu/$_index/path")
        mkdir "$_proc/gpus/${_path##*/}"
        printf '%s \t %s\n' Model: "$(fact "gpu/$_index/name")" IRQ: 0 "GPU UUID:" "$(fact "gpu/$_index/uuid")" \
            "Video BIOS:" "$(fact "gpu/$_index/vbios")" "Bus Type:" PCIe "DMA Size:" "47 bits" \
            "Bus Location:" "${_path##*/}" "Device Minor:" $_minor >"$_proc/gpus/${_path##*/}/information"
        node "nvidia$_minor"
        _minor=$((_minor + 1))
    done
    ! loaded nvidia_modeset || node nvidia-modeset
    ! loaded nvidia_uvm || { node nvidia-uvm && node nvidia-uvm-tools; }
}

# node NAME: a character device below /dev. It is /dev/null's (1:3), and never the number of a real driver: the machine
# below may have real GPUs. Without the right to make devices it is a plain file.
node() {
    mkdir -p "$root/dev"
    [ -e "$root/dev/$1" ] || mknod -m 666 "$root/dev/$1" c 1 3 2>/dev/null || : >"$root/dev/$1"
}

# cpus_of NODE: prints the list of CPUs of a NUMA node. The machine's own CPUs are shared out over two nodes.
cpus_of() {
    _online=0
    [ ! -r "$sys/devices/system/cpu/online" ] || read -r _online <"$sys/devices/system/cpu/online"
    printf '%s\n' "$_online" | awk -F, -v node="$1" -f "$library/cpus.awk"
}

show_nodes() {
    _nodes="$sys/devices/system/node"
    _memory=$(awk '$1 == "MemTotal:" {print int($2 / 2)}' /proc/meminfo)
    for _node in 0 1; do
        mkdir -p "$_nodes/node$_node"
        put "$_nodes/node$_node/cpulist" "$(cpus_of $_node)"
        put "$_nodes/node$_node/cpumap" "$(cpus_of $_node | awk -F, -v mask=1 -f "$library/cpus.awk")"
        put "$_nodes/node$_node/meminfo" "Node $_node MemTotal:       $_memory kB
Node $_node MemFree:        $_memory kB"
    done
    put "$_nodes/node0/distance" "10 21"
    put "$_nodes/node1/distance" "21 10"
    for _which in online possible has_cpu has_memory has_normal_memory; do
        put "$_nodes/$_which" 0-1
    done
}
