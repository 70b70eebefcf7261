#!/bin/sh
# Brings the NVIDIA container toolkit to a host that has none, or completes one; an installed one is not upgraded.
#
# usage: toolkit_install.sh apt PROXY URL SOURCE LIST KEY             NVIDIA's repository, or a mirror of it
#        toolkit_install.sh rpm PROXY URL SOURCE LIST KEY MANAGER
#        toolkit_install.sh apt-packages FOLDER
#        toolkit_install.sh rpm-packages FOLDER MANAGER
#
# dpkg.sh and packages.sh are prepended to this script. PROXY is a file of lines NAME=VALUE. SOURCE becomes LIST, our file among
# those of the package manager; KEY is our file of the key that signs there. FOLDER holds packages, and in SHA256SUMS those
# that are meant. PROXY, SOURCE and FOLDER are removed afterwards.

# shellcheck disable=SC2034,SC2154 # said is of dpkg.sh, and mirror, named and source are for packages.sh

set -eu

mirror=toolkit.url
# Its other packages come with it.
package=nvidia-container-toolkit

version_of() { # version_of PACKAGE: the version that is there, of dpkg or of rpm; empty without one
  # shellcheck disable=SC2016 # dpkg-query's own
  if there dpkg-query; then
    dpkg-query -W -f '${db:Status-Abbrev}|${Version}\n' "$1" 2>/dev/null | sed -n 's/^ii *|//p'
  else
    rpm -q --queryformat '%{VERSION}-%{RELEASE}\n' "$1" 2>/dev/null || :
  fi
}

from_apt() { # from_apt PROXY URL SOURCE LIST KEY
  url=$2 source=$3
  proxy "$1"
  finish_dpkg
  if ! there update-ca-certificates; then # apt checks the server of an https:// source by them
    update
    install ca-certificates
  fi
  theirs= # apt refuses a second entry whose key is another file
  for uri in "$url/stable/deb/\$(ARCH)" "$url/stable/deb/$(dpkg --print-architecture)"; do
    [ -n "$theirs" ] || theirs=$(named_by_another "$uri" / "$4")
  done
  if [ -n "$theirs" ]; then
    rm -f "$4" "$5"
    echo "$theirs names $url/stable/deb, and is used as it is"
  else
    put_source "$4" ''
  fi
  update
  # its other half may be there already: both are of one version
  base=$(version_of nvidia-container-toolkit-base)
  install "$package${base:+=$base}"
}

from_rpm() { # from_rpm PROXY URL SOURCE LIST KEY MANAGER
  url=$2 source=$3
  proxy "$1"
  put_source "$4" ''
  base=$(version_of nvidia-container-toolkit-base)
  if [ "$6" = zypper ]; then # it takes no key by itself
    run rpm --import "$5" || fail "rpm --import $5: $(last)"
  fi
  rpm_install "$6" "$package${base:+-$base}"
}

way=$1
shift
case $way${2-} in # NVIDIA's own place is what the inventory need not name
  *-packages* | *https://nvidia.github.io/libnvidia-container) ;;
  *) named=yes ;;
esac
case $way in
  apt) from_apt "$@" ;;
  rpm) from_rpm "$@" ;;
  apt-packages) apt_packages "$@" ;;
  rpm-packages) rpm_packages "$@" ;;
esac
for program in nvidia-ctk nvidia-container-runtime nvidia-container-runtime-hook; do
  there "$program" || fail "$program is still not there: $(last)"
done
