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
    printf '%s\n' "/lib/modules/$release/$(about "$1" folder)/$(printf '%s' "$1" | tr _ -).ko"
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
        if [ "$(fact "$(about "$_module" package)")" = none ]; then
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
        for _need in $(about "$_other" depends); do
            [ "$_need" != "$1" ] || _users="${_users:+$_users }$_other"
        done
    done
    printf '%s\n' "$_users"
}

# load MODULE: loads this one module. Its dependencies are the caller's affair.
# On a failure it prints strerror's text for the reason and returns 1.
load() {
    ! loaded "$1" || return 0
    if [ ! -w "$state/module" ]; then
        echo "Operation not permitted"
        return 1
    fi
    for _need in $(about "$1" depends); do
        if ! loaded "$_need"; then
            echo "Unknown symbol in module"
            return 1
        fi
    done
    _failure=$(about "$1" fails | while read -r _fact _bad _text; do
        [ "$(fact "$_fact")" != "$_bad" ] || { printf '%s\n' "$_text" && break; }
    done)
    [ "$1" != nvidia ] || [ -n "$(present gpu)" ] || _failure="No such device"
    if [ -n "$_failure" ]; then
        printf '%s\n' "$_failure"
        return 1
    fi
    put "$state/module/$1" "$(about "$1" version)"
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
    if [ -n "$_users" ]; then
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
