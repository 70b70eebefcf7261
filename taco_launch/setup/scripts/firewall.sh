#!/bin/sh
# Lets the hosts of a cluster through this host's firewall, and takes that back.
#
# usage: firewall.sh apply FOLDER UNIT      what FOLDER/firewall.new asks for: now, at every boot, and whenever the
#                                           firewall is made again
#        firewall.sh open FOLDER UNIT       what UNIT does then: it runs this script from FOLDER, of the cluster's name
#        firewall.sh remove FOLDER UNIT     nothing any more
#
# `firewall` (and firewall.new) hold lines of `host ADDRESS` and `port FIRST[-LAST]`. Our rules carry the mark
# taco-launch:CLUSTER; firewalld, whose rules cannot, gets the very same ones again.

set -eu

action=$1
folder=$2
unit=$3
cluster=${folder##*/}
mark=taco-launch:$cluster
newline='
'

wanted() { # wanted KIND FILE: what it lists
  sed -n "s/^$1 \([0-9.-]*\)\$/\1/p" "$2"
}

joined() { # joined SEPARATOR: the lines of the input as one
  paste -s -d "$1" -
}

firewalld_runs() {
  [ "$(systemctl is-active firewalld 2>/dev/null)" = active ]
}

ufw_runs() {
  grep -qiE "^ENABLED=[\"']?yes" /etc/ufw/ufw.conf 2>/dev/null
}

# --- firewalld --------------------------------------------------------------------------------------------------------

firewalld_rules() { # firewalld_rules add|remove FILE
  set -- "$1" "$(wanted host "$2")" "$(wanted port "$2")"
  IFS=$newline
  for host in $2; do
    for port in $3; do
      echo "--$1-rich-rule=rule family=ipv4 source address=$host port port=$port protocol=tcp accept"
    done
  done
  unset IFS
}

firewalld_all() { # firewalld_all add|remove FILE: now and for good, in every zone that an interface is in
  rules=$(firewalld_rules "$1" "$2")
  zones=$(firewall-cmd --get-active-zones | sed -n 's/^\([^[:space:]]*\).*/\1/p')
  default=$(firewall-cmd --get-default-zone)
  for zone in $(printf '%s\n' "$zones" "$default" | sort -u); do
    IFS=$newline
    # shellcheck disable=SC2086 # one word for each line
    set -- $rules
    unset IFS
    firewall-cmd --quiet --zone="$zone" "$@"
    firewall-cmd --quiet --permanent --zone="$zone" "$@"
  done
}

# --- ufw --------------------------------------------------------------------------------------------------------------

ufw_all() { # ufw_all add|remove FILE
  ports=$(wanted port "$2" | tr - : | joined ,)
  for host in $(wanted host "$2"); do
    if [ "$1" = remove ]; then
      ufw --force delete allow proto tcp from "$host" to any port "$ports" >/dev/null 2>&1 || :
    elif ! ufw prepend allow proto tcp from "$host" to any port "$ports" comment "$mark" >/dev/null 2>&1; then
      ufw allow proto tcp from "$host" to any port "$ports" comment "$mark" >/dev/null # before 0.36
    fi
  done
}

# --- the kernel's own rules -------------------------------------------------------------------------------------------

nft_chains() { # FAMILY TABLE CHAIN of every chain that incoming packets begin in, but for those of iptables
  nft list ruleset 2>/dev/null | awk '
    $1 == "table" { family = $2; table = $3 }
    $1 == "chain" { chain = $2 }
    / hook input / && (family == "ip" || family == "inet") && !(family == "ip" && chain == "INPUT") {
      print family, table, chain
    }'
}

nft_open() { # nft_open FILE
  hosts=$(wanted host "$1" | joined ,)
  ports=$(wanted port "$1" | joined ,)
  nft_chains | while read -r family table chain; do
    nft insert rule "$family" "$table" "$chain" ip saddr "{ $hosts }" tcp dport "{ $ports }" accept comment "\"$mark\""
  done
}

nft_close() {
  nft_chains | while read -r family table chain; do
    nft -a list chain "$family" "$table" "$chain" | sed -n "s/.* comment \"$mark\" .*# handle \([0-9]*\)\$/\1/p" |
      while read -r handle; do
        nft delete rule "$family" "$table" "$chain" handle "$handle"
      done
  done
}

legacy() { # whether the rules are those of the older kind of iptables, beside which there is the newer
  grep -qsx filter /proc/net/ip_tables_names && command -v iptables-legacy >/dev/null
}

iptables_here() {
  if legacy; then
    iptables-legacy -w "$@"
  else
    iptables -w "$@"
  fi
}

iptables_open() { # iptables_open FILE: where there are rules at all; asking for a table would load its module
  if ! command -v iptables >/dev/null || { ! legacy && ! iptables -S INPUT 2>/dev/null | grep -qE '^-A|^-P INPUT DROP'; }; then
    return 0
  fi
  hosts=$(wanted host "$1" | joined ,)
  ports=$(wanted port "$1" | tr - : | joined ,)
  iptables_here -I INPUT -p tcp -s "$hosts" -m multiport --dports "$ports" -m comment --comment "$mark" -j ACCEPT
}

iptables_close() {
  command -v iptables >/dev/null || return 0
  iptables_here -S INPUT 2>/dev/null | grep -F -e "--comment \"$mark\" " -e "--comment $mark " | sed 's/^-A //; s/"//g' |
    while read -r rule; do
      # shellcheck disable=SC2086 # words of iptables itself, none with blanks
      iptables_here -D $rule
    done
}

# --- what is requested -------------------------------------------------------------------------------------------------

open() { # open FILE
  if firewalld_runs; then
    firewalld_all add "$1"
  elif ufw_runs; then
    ufw_all add "$1"
  else
    ! command -v nft >/dev/null || nft_open "$1"
    iptables_open "$1"
  fi
}

close() { # close FILE
  if firewalld_runs; then
    firewalld_all remove "$1"
  elif ufw_runs; then
    ufw_all remove "$1"
  fi
  ! command -v nft >/dev/null || nft_close
  iptables_close
}

asked=$folder/firewall
[ ! -e "$asked.new" ] || asked=$asked.new

case $action in
  apply)
    [ ! -e "$folder/firewall" ] || close "$folder/firewall"
    close "$asked"
    open "$asked"
    reload_units "$unit"
    systemctl --quiet enable --no-reload "$unit"
    systemctl restart "$unit" # what restarts a firewall restarts this with it
    mv -f "$folder/firewall.new" "$folder/firewall"
    ;;
  open)
    close "$asked"
    open "$asked"
    ;;
  remove)
    for file in "$folder/firewall" "$folder/firewall.new"; do
      if [ -f "$file" ] && [ ! -L "$file" ]; then
        close "$file"
      fi
    done
    if [ -f "/etc/systemd/system/$unit" ]; then
      systemctl --quiet disable --no-reload --now "$unit"
      rm -f "/etc/systemd/system/$unit"
      reload_units ''
    fi
    rm -f "$folder/firewall" "$folder/firewall.new" "$folder/firewall.sh"
    ;;
  *)
    echo "usage: firewall.sh apply|open|remove FOLDER UNIT" >&2
    exit 2
    ;;
esac
