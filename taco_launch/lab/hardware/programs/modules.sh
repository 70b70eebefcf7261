# Simulated hardware: kernel modules, loaded and unloaded. Sourced after state.sh and sysfs.sh.
# shellcheck shell=sh

# about MODULE KEY: prints what the table says of it; a version or licence of the form @FACT is that fact
about() {
    while read -r _key _text; do
        [ "$_key" = "$2" ] || continue
        case $_text in
            @*) fact "${_text#@}" ;;
            *) printf '%s\n' "$_text" ;;
        esac
    done <"$library/modules/$1"
}

# known MODULE: the table has it
known() {
    [ -f "$library/modules/$1" ]
}

# module_file MODULE: prints where its file lies in the host
module_file() {
    case $1 in
        nvidia_*) _name=$(printf '%s' "$1" | tr _ -) ;; # as NVIDIA names its files
        *) _name=$1 ;;
    esac
    printf '%s\n' "/lib/modules/$release/$(about "$1" folder)/$_name.ko"
}

# installed MODULE
installed() {
    [ -e "$root$(module_file "$1")" ]
}

# install_files: the packages' modules are there, or not
install_files() {
    for _module in "$library"/modules/*; do
        _module=${_module##*/}
        _file="$root$(module_file "$_module")"
        _package=$(fact "$(about "$_module" package)")
        _since=$(about "$_module" since)
        if [ "$_package" = none ] || { [ "${_since:-0}" != 0 ] && [ "${_package%%.*}" -lt "$_since" ]; }; then
            rm -f "$_file"
        elif [ ! -e "$_file" ]; then
            mkdir -p "${_file%/*}"
            echo "simulated kernel module" >"$_file"
        fi
    done
}

# users MODULE: prints the loaded modules that need it, separated by spaces
users() {
    _users=
    for _other in "$state"/module/*; do
        [ -e "$_other" ] || continue
        _other=${_other##*/}
        while read -r _key _text; do # not by `about`: a process for each pair of modules would take most of the time
            [ "$_key" = depends ] || continue
            case " $_text " in
                *" $1 "*) _users="${_users:+$_users }$_other" ;;
            esac
            break
        done <"$library/modules/$_other"
    done
    printf '%s\n' "$_users"
}

# held MODULE: prints how many hold it besides modules: those who have memory registered with it
held() {
    _fact=$(about "$1" used)
    if [ -n "$_fact" ]; then fact "$_fact"; else echo 0; fi
}

# load MODULE: loads this one module. Its dependencies are the caller's affair.
# On a failure it prints strerror's text for the reason and returns 1; what the kernel says of it is in dmesg.
load() {
    ! loaded "$1" || return 0
    if [ ! -w "$state/module" ]; then
        echo "Operation not permitted"
        return 1
    fi
    _failure=$(refused "$1")
    if [ -n "$_failure" ]; then
        printf '%s\n' "$_failure"
        return 1
    fi
    put "$state/module/$1" "$(about "$1" version)"
}

# refused MODULE: prints why the kernel does not take it, in the order in which it looks; nothing where it does
refused() {
    _signed=$(about "$1" signed)
    if [ -n "$_signed" ] && [ "$(fact secure-boot)" = on ] && [ "$(fact "${_signed% *}")" != "${_signed#* }" ]; then
        kernel_says "Loading of unsigned module is rejected"
        echo "Required key not available"
        return
    fi
    _built=$(about "$1" built)
    _against=${_built:+$(fact "$_built")}
    for _need in $(about "$1" depends); do
        if ! loaded "$_need"; then
            [ -z "$_built" ] || kernel_says "$1: Unknown symbol ib_register_peer_memory_client (err -2)"
            echo "Unknown symbol in module"
            return
        fi
    done
    if [ -n "$_built" ] && [ "$_against" != none ] && [ "$_against" != "$(fact module/ib_core)" ]; then
        for _symbol in ib_unregister_peer_memory_client ib_register_peer_memory_client; do
            kernel_says "$1: disagrees about version of symbol $_symbol"
            kernel_says "$1: Unknown symbol $_symbol (err -22)"
        done
        echo "Unknown symbol in module"
        return
    fi
    _peer=$(about "$1" peer)
    if [ "$_against" = none ]; then
        echo "Invalid argument"
    elif [ -n "$_peer" ] && [ -e "$sys/kernel/mm/memory_peers/$_peer" ]; then
        kernel_says "sysfs: cannot create duplicate filename '/kernel/mm/memory_peers/$_peer'"
        echo "Invalid argument"
    elif [ "$1" = nvidia ] && [ -z "$(present gpu)" ]; then
        echo "No such device"
    else
        about "$1" fails | while read -r _fact _bad _text; do
            [ "$(fact "$_fact")" != "$_bad" ] || { printf '%s\n' "$_text" && break; }
        done
    fi
}

# kernel_says TEXT: a line of dmesg
kernel_says() {
    awk -v text="$1" '{printf "[%12.6f] %s\n", $1, text}' /proc/uptime >>"$root/run/simulated-hardware/dmesg"
}

# load_with_needs MODULE: loads what it depends on, then itself. Prints the failure's text and returns 1, as load.
load_with_needs() (
    for _needed in $(about "$1" depends); do
        load_with_needs "$_needed" || exit 1
    done
    load "$1"
)

# unload MODULE: takes it out; while others use it, prints those and returns 1
unload() {
    _users=$(users "$1")
    if [ -n "$_users" ] || [ "$(held "$1")" != 0 ]; then
        printf '%s\n' "$_users"
        return 1
    fi
    rm -f "$state/module/$1"
}

# boot_modules: prints what a boot loads, in order: the hardware's own modules, then those of modules-load.d
boot_modules() {
    _black=" $(cat "$root"/etc/modprobe.d/*.conf 2>/dev/null |
        awk '$1 == "blacklist" {gsub("-", "_", $2); printf "%s ", $2}')"
    for _module in "$library"/modules/*; do
        _module=${_module##*/}
        [ "$(about "$_module" boot)" = yes ] || continue
        installed "$_module" || continue
        case "$_module $_black" in
            *" $_module "*) continue ;;
            nvidia*) [ -n "$(present gpu)" ] || continue ;;
            *) [ -n "$(present hca)" ] || continue ;;
        esac
        printf '%s\n' "$_module"
    done
    cat "$root"/etc/modules "$root"/etc/modules-load.d/*.conf "$root"/usr/lib/modules-load.d/*.conf 2>/dev/null |
        awk '/^[ \t]*[^#; \t]/ {gsub("-", "_", $1); print $1}'
}
