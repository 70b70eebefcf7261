#!/bin/sh
# Brings a Docker Engine to a host that has none; nothing that is there is upgraded or removed for it.
#
# usage: docker_install.sh apt
#        docker_install.sh rpm MANAGER PACKAGE
#        docker_install.sh apt-docker PROXY URL SOURCE LIST KEY            Docker's own repository
#        docker_install.sh rpm-docker PROXY URL SOURCE LIST MANAGER
#        docker_install.sh script PROXY URL SHA256
#        docker_install.sh apt-packages FOLDER
#        docker_install.sh rpm-packages FOLDER MANAGER
#
# dpkg.sh and packages.sh are prepended to this script. PROXY is a file of lines NAME=VALUE. SOURCE becomes LIST, our file
# among those of the package manager, once DISTRIBUTION and CODENAME or RELEASE are filled in; KEY is our file of the key that
# signs there. FOLDER holds packages, and in SHA256SUMS those that are meant. PROXY, SOURCE and FOLDER are removed afterwards.

# shellcheck disable=SC2034,SC2154 # said, code and work are of those in front, and mirror and source are for them

set -eu

mirror=docker.url

# --- apt --------------------------------------------------------------------------------------------------------------

apt() {
  finish_dpkg
  update
  set -- docker.io iptables ca-certificates
  if apt-cache show docker-cli >/dev/null 2>&1; then # Debian 13 has the client in a package of its own
    set -- "$@" docker-cli
  fi
  install "$@"
}

apt_docker() { # apt_docker PROXY URL SOURCE LIST KEY
  url=$2 source=$3
  proxy "$1"
  family_of_debian
  finish_dpkg
  if ! there update-ca-certificates; then # apt checks the server of an https:// source by them
    update
    install ca-certificates
  fi
  theirs=$(named_by_another "$url/linux/$family" "$codename" "$4")
  if [ -n "$theirs" ]; then # apt refuses a second entry whose key is another file
    rm -f "$4" "$5"
    echo "$theirs names $url/linux/$family $codename, and is used as it is"
  else
    put_source "$4" "s#DISTRIBUTION#$family#;s#CODENAME#$codename#"
  fi
  update
  install docker-ce docker-ce-cli containerd.io iptables ca-certificates
}

family_of_debian() { # $family and $codename, as Docker's repository has them
  family='' codename=''
  # shellcheck source=/dev/null
  . /etc/os-release
  case " $ID ${ID_LIKE-} " in
    ' debian '* | ' ubuntu '* | ' raspbian '*) family=$ID codename=${VERSION_CODENAME-} ;;
    *' ubuntu '*) family=ubuntu codename=${UBUNTU_CODENAME-} ;;
    *' debian '*) family=debian codename=${DEBIAN_CODENAME-${VERSION_CODENAME-}} ;;
  esac
  [ -n "$codename" ] || nothing_for_it
}

# --- rpm --------------------------------------------------------------------------------------------------------------

rpm_docker() { # rpm_docker PROXY URL SOURCE LIST MANAGER
  url=$2 source=$3 manager=$5
  proxy "$1"
  # shellcheck source=/dev/null
  . /etc/os-release
  family=centos release=$(rpm -E '%{?rhel}')
  case $ID in
    fedora) family=fedora release=$(rpm -E '%{?fedora}') ;;
    rhel) family=rhel ;;
  esac
  [ -n "$release" ] || nothing_for_it
  put_source "$4" "s#DISTRIBUTION#$family#;s#RELEASE#$release#"
  rpm_install "$manager" docker-ce docker-ce-cli containerd.io
}

# --- from elsewhere ---------------------------------------------------------------------------------------------------

nothing_for_it() {
  # shellcheck disable=SC2153 # of os-release
  fail "Docker's repository has nothing for $ID ${VERSION_ID-}: take another docker.source in the inventory"
}

script() { # script PROXY URL SHA256
  url=$2 wanted=$3
  proxy "$1"
  fetch "$url" "$work/get-docker"
  sum=$(sha256sum <"$work/get-docker")
  sum=${sum%% *}
  [ "$sum" = "$wanted" ] ||
    fail "$url has the SHA-256 $sum, and docker.sha256 in the inventory is $wanted: it was not run"
  if there apt-get; then
    finish_dpkg
    locked apt-get -q check || fail "apt-get check: $(errors)"
  fi
  run sh "$work/get-docker" || fail "$url: $(last) (exit code $code)"
}

way=$1
shift
case $way in
  apt) apt ;;
  rpm) rpm_install "$@" ;;
  apt-docker) apt_docker "$@" ;;
  rpm-docker) rpm_docker "$@" ;;
  script) script "$@" ;;
  apt-packages) apt_packages "$@" ;;
  rpm-packages) rpm_packages "$@" ;;
esac
if ! there dockerd || ! there docker; then
  fail "docker is still not there: $(last)"
fi
systemctl daemon-reload
