# Simulated hardware: the state folder, read and locked. Sourced by the programs beside it.
# shellcheck shell=sh
root="${SIMULATED_HARDWARE_ROOT:-}" # a folder used as /, for tests
state="$root/var/lib/simulated-hardware"
# shellcheck disable=SC2034 # for those who source this
library="$root/usr/lib/simulated-hardware"
# shellcheck disable=SC2034 # likewise
release=$(uname -r)

# fact PATH: prints the fact, `none` where there is no such fact
fact() {
    _value=none
    [ ! -r "$state/$1" ] || read -r _value <"$state/$1" || :
    printf '%s\n' "$_value"
}

# loaded MODULE
loaded() {
    [ -e "$state/module/$1" ]
}

# present gpu|hca: prints those that are on the PCI bus, in order
present() {
    for _folder in "$state/$1"/*/; do
        [ -d "$_folder" ] || continue
        _name=${_folder%/}
        _name=${_name##*/}
        [ "$(fact "$1/$_name/state")" = gone ] || printf '%s\n' "$_name"
    done
}

# alone: until this program ends, no other one changes the state or what is made from it
alone() {
    exec 9>>"$root/run/simulated-hardware/lock"
    flock 9
}

# put FILE TEXT
put() {
    printf '%s\n' "$2" >"$1"
}
