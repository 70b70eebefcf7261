# Simulated hardware: /sys/class/infiniband and /dev/infiniband. Sourced after sysfs.sh.
# shellcheck shell=sh

# What the kernel's InfiniBand core says (drivers/infiniband/core/sysfs.c): an unused slot of the GID table reads as
# zeros, its type and its interface as EINVAL. Reading the speed of lo is EINVAL too: these slots are links to that.
slots() {
    perl -e '
        my ($port, $slots, @used) = @ARGV;
        for my $slot (0 .. $slots - 1) {
            my ($gid, $type, $netdev) = split / /, $used[$slot] // "", 3;
            my %text = ("gids" => $gid // "0000:" x 7 . "0000");
            @text{"gid_attrs/types", "gid_attrs/ndevs"} = ($type, $netdev);
            for my $folder (keys %text) {
                my ($file, $line) = ("$port/$folder/$slot", $text{$folder} // "");
                if ($line eq "") { symlink "/sys/class/net/lo/speed", $file or die "$file: $!\n"; next }
                open my $out, ">", $file or die "$file: $!\n";
                $line =~ s/_/ /g if $folder eq "gid_attrs/types";
                print $out "$line\n";
            }
        }' "$@"
}

# gids NAME: prints the used slots, `GID TYPE NETDEV` each, spaces of the type as _
gids() {
    _netdev=$(fact "hca/$1/netdev")
    if [ "$_netdev" = none ]; then
        echo "fe80:0000:0000:0000:$(fact "hca/$1/guid") IB/RoCE_v1"
        return
    fi
    _link=$(link_local "$_netdev")
    for _type in IB/RoCE_v1 RoCE_v2; do
        echo "$_link $_type $_netdev"
    done
    for _address in $(addresses "$_netdev"); do
        for _type in IB/RoCE_v1 RoCE_v2; do
            echo "$(mapped "$_address") $_type $_netdev"
        done
    done
}

# link_local INTERFACE: prints the fe80 address of its MAC (EUI-64, RFC 4291 appendix A) in sysfs's form
link_local() {
    _mac=02:00:00:00:00:00
    [ ! -r "$sys/class/net/$1/address" ] || read -r _mac <"$sys/class/net/$1/address"
    # shellcheck disable=SC2046 # one word per byte
    set -- $(printf '%s' "$_mac" | tr : ' ')
    printf 'fe80:0000:0000:0000:%02x%s:%sff:fe%s:%s%s\n' $((0x$1 ^ 2)) "$2" "$3" "$4" "$5" "$6"
}

# addresses INTERFACE: prints its IPv4 addresses
addresses() {
    if [ -r "$root/run/simulated-hardware/addresses" ]; then
        cat "$root/run/simulated-hardware/addresses"
    else
        ip -4 -o addr show dev "$1" scope global 2>/dev/null | awk '{sub("/.*", "", $4); print $4}'
    fi
}

# mapped ADDRESS: prints an IPv4 address as a GID
mapped() {
    # shellcheck disable=SC2046,SC2183 # one word per byte
    printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' $(printf '%s' "$1" | tr . ' ')
}

show_hcas() {
    _class="$sys/class/infiniband"
    rm -rf "$_class" "$sys/class/infiniband_verbs" "$root/dev/infiniband"
    loaded mlx5_ib || return 0
    [ -n "$(present hca)" ] || return 0
    mkdir -p "$_class" "$sys/class/infiniband_verbs" "$root/dev/infiniband"
    ! loaded rdma_cm || node infiniband/rdma_cm
    _number=0
    for _name in $(present hca); do
        show_hca "$_name"
        ! loaded ib_umad || node "infiniband/umad$_number"
        if loaded ib_uverbs; then
            node "infiniband/uverbs$_number"
            mkdir "$sys/class/infiniband_verbs/uverbs$_number"
            put "$sys/class/infiniband_verbs/uverbs$_number/ibdev" "$_name"
        fi
        _number=$((_number + 1))
    done
}

# show_hca NAME
show_hca() {
    _path=$(fact "hca/$1/path")
    _hca="$sys/devices/$_path/infiniband/$1"
    _port="$_hca/ports/1"
    _guid=$(fact "hca/$1/guid")
    _layer=$(fact "hca/$1/layer")
    _rate=$(fact "hca/$1/rate")
    _lid=$(fact "hca/$1/lid")
    mkdir -p "$_port/gids" "$_port/gid_attrs/types" "$_port/gid_attrs/ndevs" "$_port/counters" \
        "$_port/hw_counters" "$_port/pkeys" "$sys/devices/$_path/net"
    ln -s "../../devices/$_path/infiniband/$1" "$_class/$1"
    ln -s "../../../${_path##*/}" "$_hca/device"
    put "$_hca/node_guid" "$_guid"
    put "$_hca/sys_image_guid" "$_guid"
    put "$_hca/node_type" "1: CA"
    put "$_hca/node_desc" "$(uname -n) $1"
    put "$_hca/hca_type" "$(fact "hca/$1/type")"
    put "$_hca/fw_ver" "$(fact "hca/$1/firmware")"
    put "$_hca/board_id" "$(fact "hca/$1/board")"
    put "$_hca/hw_rev" 0
    case $(fact "hca/$1/state") in
        ACTIVE) _state="4: ACTIVE" _phys="5: LinkUp" ;;
        INIT) _state="2: INIT" _phys="5: LinkUp" _lid=0 ;;
        *)
            # what mlx5 ports say without a link
            _state="1: DOWN" _phys="2: Polling" _rate="10 Gb/sec (4X SDR)" _lid=0
            [ "$_layer" = InfiniBand ] || _phys="3: Disabled" _rate="40 Gb/sec (4X QDR)"
            ;;
    esac
    put "$_port/state" "$_state"
    put "$_port/phys_state" "$_phys"
    put "$_port/rate" "$_rate"
    put "$_port/link_layer" "$_layer"
    put "$_port/lid" "$(printf '0x%x' "$_lid")"
    put "$_port/lid_mask_count" 0
    put "$_port/sm_lid" "$(printf '0x%x' $((_lid > 0)))"
    put "$_port/sm_sl" 0
    put "$_port/cap_mask" 0x2651e848
    put "$_port/pkeys/0" 0xffff
    for _counter in port_rcv_data port_xmit_data port_rcv_errors symbol_error link_downed link_error_recovery \
        local_link_integrity_errors port_xmit_discards; do
        put "$_port/counters/$_counter" 0
    done
    for _counter in local_ack_timeout_err out_of_sequence packet_seq_err rx_icrc_encapsulated np_cnp_sent \
        rp_cnp_handled; do
        put "$_port/hw_counters/$_counter" 0
    done
    _slots=8
    [ "$_layer" = InfiniBand ] || _slots=256
    _used=$(gids "$1")
    _ifs=$IFS
    IFS='
'
    # shellcheck disable=SC2086 # one argument per line
    slots "$_port" $_slots $_used
    IFS=$_ifs
    _netdev=$(fact "hca/$1/netdev")
    [ "$_netdev" = none ] || ln -sfn "/sys/class/net/$_netdev" "$sys/devices/$_path/net/$_netdev"
}
