#!/bin/sh
# Brings nv_peer_mem to a host: dkms builds it for the kernel that runs, from a package of the sources that the host has;
# dpkg.sh, packages.sh and reload.sh are prepended to this script.
#
# usage: peermem_install.sh MANAGER PACKAGE LAST HEADERS MARK [FOLDER]
#
# FOLDER holds packages of the controller, which are taken instead (scripts/packages.sh: given).
# LAST is the last release that this host's OFED can be used with (1.1), empty where any can. HEADERS is what people are
# told where there are no headers of the kernel, and a line `hint: ` with what is to be done. MARK is a file that says that
# set-up brought it, empty where the host had it before.

# shellcheck disable=SC2154 # said and code are of dpkg.sh

set -eu
manager=$1
package=$2
last_release=$3
headers=$4
mark=$5
folder=${6-}
kernel=$(uname -r)
module=nvidia-peer-memory # as dkms knows it
next=                     # what to do where it fails
begun=                    # the package is being installed

fail() { # fail TEXT...: a package that could not be built would be in the way of every other one
  reason=$(why)
  [ -z "$begun" ] || take_back >/dev/null 2>&1 || :
  echo "error: $*${reason:+; dkms: $reason}${next:+: $next}" >&2
  exit 1
}

why() { # what the build said last
  if [ -n "$begun" ]; then
    cat "/var/lib/dkms/$module"/*/build/make.log 2>/dev/null | grep -E 'rror[:!]|-E-|No rule|Cannot' | tail -n 1
  fi
}

take_back() {
  # shellcheck disable=SC2016 # dpkg-query's own
  if [ "$manager" = apt-get ] && [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$package")" != 'ii ' ]; then
    run apt-get -q -y purge "$package"
  fi
}

with_headers() {
  [ ! -e "/lib/modules/$kernel/build" ] || return 0
  next=$headers
  case $manager in
    apt-get) install "linux-headers-$kernel" ;;
    zypper) rpm_install zypper "kernel-${kernel##*-}-devel" ;;
    *)
      case $kernel in
        *uek*) rpm_install "$manager" "kernel-uek-devel-$kernel" ;;
        *) rpm_install "$manager" "kernel-devel-$kernel" ;;
      esac
      ;;
  esac
  [ -e "/lib/modules/$kernel/build" ] || fail "the headers that were installed are not those of the kernel $kernel"
  next=
}

versions() { # versions PACKAGE: that a source has
  apt-cache madison "$1" | awk -F '|' '{ gsub(/[ \t]/, "", $2); print $2 }'
}

newest() { # newest PACKAGE: from 1.0-9 on, and no newer than $last_release
  newest=
  for each in $(versions "$1"); do
    dpkg --compare-versions "$each" ge 1.0-9 || continue
    [ -z "$last_release" ] || dpkg --compare-versions "$each" lt "$last_release.999" || continue
    [ -z "$newest" ] || dpkg --compare-versions "$each" gt "$newest" || continue
    newest=$each
  done
  echo "$newest"
}

from_apt() {
  version=$(newest "$package")
  [ -n "$version" ] ||
    fail "no package source of this host has $package from 1.0-9 on${last_release:+ (up to $last_release)}
hint: name one in /etc/apt/sources.list.d, or another package: peermem.package in the inventory"
  set -- "$package=$version"
  service=${package%-dkms}
  if [ "$service" != "$package" ] && versions "$service" | grep -qxF -e "$version"; then
    set -- "$@" "$service=$version" # of the same version
  fi
  begun=yes
  install "$@"
}

from_rpm() {
  begun=yes
  if [ -z "$last_release" ]; then
    rpm_install "$manager" "$package"
  elif [ "$manager" = zypper ]; then
    rpm_install zypper "$package<$last_release.999"
  else
    rpm_install "$manager" "$package-$last_release*"
  fi
}

built() {
  modinfo -F filename nv_peer_mem >/dev/null 2>&1
}

if [ -n "$folder" ]; then
  undisturbed "installing $package"
  begun=yes
  if [ "$manager" = apt-get ]; then
    apt_packages "$folder"
  else
    rpm_packages "$folder" "$manager"
  fi
  [ -e "/lib/modules/$kernel/build" ] || next=$headers
else
  if [ "$manager" = apt-get ]; then
    finish_dpkg
    update
  fi
  with_headers
fi
known= # to dkms already: for another kernel, or half built
if there dkms; then
  known=$(dkms status | sed -n "s#^${module}[/,] *\\([^,: ]*\\).*#\\1#p" | tail -n 1)
fi
if built; then
  :
elif [ -n "$known" ]; then
  [ -n "$folder" ] || mark= # the package was there before
  begun=yes
  run dkms install -m "$module" -v "$known" -k "$kernel" || fail "dkms install $module/$known: $(errors)"
elif [ -z "$folder" ]; then
  undisturbed "installing $package"
  if [ "$manager" = apt-get ]; then
    from_apt
  else
    from_rpm
  fi
fi
built ||
  fail "$package is installed, and there is no module nv_peer_mem for the kernel $kernel: $(last)"
if [ -n "$mark" ]; then
  (umask 077 && mkdir -p "${mark%/*}" && : >"$mark")
fi
