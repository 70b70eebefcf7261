#!/bin/sh
# Brings a Docker Engine to a host that has none; nothing that is there is upgraded or removed for it.
#
# usage: docker_install.sh apt
#        docker_install.sh rpm MANAGER PACKAGE
#        docker_install.sh apt-docker PROXY URL            Docker's own repository
#        docker_install.sh rpm-docker PROXY URL MANAGER
#        docker_install.sh script PROXY URL SHA256
#        docker_install.sh apt-packages FOLDER
#        docker_install.sh rpm-packages FOLDER MANAGER
#
# PROXY is a file of lines NAME=VALUE, FOLDER holds packages: both are removed afterwards.
# The last line of what it says is what people see of it where it fails.

set -eu

export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l ZYPP_LOCK_TIMEOUT=120
umask 022
work=$(mktemp -d)
temporary= # a file or folder that set-up put here
trap 'rm -rf "$work" "$temporary"' EXIT
trap 'exit 143' TERM INT HUP # else dash ends without the one above
said=$work/said # what the last tool said
sources=$work/sources
: >"$said"
: >"$sources"
seconds=120 # for a lock that another program holds
tries=5

fail() { # fail TEXT...
  echo "error: $*" >&2
  exit 1
}

errors() { # of what a tool said, what tells why, on one line
  grep -hE '^(E|[Ee]rror|dpkg: error|Problem|No package|Cannot)[^A-Za-z]|[Nn]o space|No provider|rror:' "$said" |
    awk '!seen[$0]++ && n++ < 3 { sub(/^E: /, ""); printf "%s%s", (n > 1 ? "; " : ""), $0 }' | tr -s '\t ' ' '
  if grep -qiE 'no space left|enough free space|insufficient space' "$said"; then
    df -Ph / /var | awk 'NR > 1 && !seen[$6]++ { printf "; free on %s: %s", $6, $4 }'
  fi
}

run() { # run COMMAND...: its words are kept, and its exit code given
  code=0
  "$@" >"$said" 2>&1 </dev/null || code=$?
  cat "$said"
  return "$code"
}

there() {
  command -v "$1" >/dev/null 2>&1
}

# --- apt --------------------------------------------------------------------------------------------------------------

locked() { # locked COMMAND...: waits for whoever holds the locks of apt and dpkg, in words old ones have too
  waited=0
  until run "$@"; do
    grep -qE 'Could not get lock|locked by another process' "$said" || return 1
    [ "$waited" -lt "$seconds" ] || fail "another program has held the lock of apt for $seconds s: $(errors) -" \
      "wait for its end, then run setup again (who it is: ps -ef | grep -E 'apt|dpkg')"
    waited=$((waited + 5))
    sleep 5
  done
}

finish_dpkg() { # what was cut off in the middle of an installation is finished first
  if [ -n "$(dpkg --audit)" ] || ls /var/lib/dpkg/updates/[0-9]* >/dev/null 2>&1; then
    locked dpkg --force-confold --configure -a || fail "dpkg --configure -a: $(errors)"
  fi
}

update() { # a source that is down matters only where what is to be installed cannot be had
  locked apt-get -q -o Acquire::Retries=3 update || :
  grep -E '^[EW]: ' "$said" >"$sources" || :
}

install() { # install [OPTION...] PACKAGE...
  locked apt-get -q -y --no-install-recommends --no-remove --no-upgrade -o Dpkg::Options::=--force-confold \
    -o Acquire::Retries=3 install "$@" ||
    fail "apt-get install: $(errors)$(sed -n 's/^[EW]: \(Failed to fetch\)/; package source: \1/p' "$sources" | head -n 1)"
}

apt() {
  finish_dpkg
  update
  set -- docker.io iptables ca-certificates
  if apt-cache show docker-cli >/dev/null 2>&1; then # Debian 13 has the client in a package of its own
    set -- "$@" docker-cli
  fi
  install "$@"
}

apt_docker() { # apt_docker PROXY URL
  url=$2
  proxy "$1"
  family_of_debian
  finish_dpkg
  if ! there curl && ! there wget; then
    update
    install ca-certificates curl
  fi
  fetch_key "$url/linux/$family/gpg" /etc/apt/keyrings/docker.asc
  architecture=$(dpkg --print-architecture)
  echo "deb [arch=$architecture signed-by=/etc/apt/keyrings/docker.asc] $url/linux/$family $codename stable" \
    >/etc/apt/sources.list.d/docker.list
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

apt_packages() { # apt_packages FOLDER
  temporary=$1
  finish_dpkg
  install --no-download "$temporary"/*.deb
}

# --- rpm --------------------------------------------------------------------------------------------------------------

rpm_install() { # rpm_install MANAGER [OPTION...] PACKAGE...
  manager=$1
  shift
  if [ "$manager" = zypper ]; then
    run zypper --non-interactive install --no-recommends "$@" || case $code in
      10[0-36]) ;; # it is done, and there is something to be told: zypper(8), exit codes
      *) fail "zypper install: $(errors) (exit code $code)" ;;
    esac
  else
    run "$manager" -y install "$@" || fail "$manager install: $(errors) (exit code $code)"
  fi
}

rpm_docker() { # rpm_docker PROXY URL MANAGER
  url=$2 manager=$3
  proxy "$1"
  # shellcheck source=/dev/null
  . /etc/os-release
  family=centos release=$(rpm -E '%{?rhel}')
  case $ID in
    fedora) family=fedora release=$(rpm -E '%{?fedora}') ;;
    rhel) family=rhel ;;
  esac
  [ -n "$release" ] || nothing_for_it
  fetch_key "$url/linux/$family/gpg" /etc/pki/rpm-gpg/docker.asc
  cat >/etc/yum.repos.d/docker-ce.repo <<END
[docker-ce-stable]
name=Docker CE
baseurl=$url/linux/$family/$release/\$basearch/stable
enabled=1
gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/docker.asc
END
  rpm_install "$manager" docker-ce docker-ce-cli containerd.io
}

rpm_packages() { # rpm_packages FOLDER MANAGER
  temporary=$1
  if [ "$2" = zypper ]; then
    rpm_install zypper --allow-unsigned-rpm "$temporary"/*.rpm
  else
    rpm_install "$2" '--disablerepo=*' "$temporary"/*.rpm
  fi
}

# --- from elsewhere ---------------------------------------------------------------------------------------------------

proxy() { # proxy FILE: for what is fetched from outside
  temporary=$1
  while IFS= read -r variable; do
    export "${variable?}"
  done <"$temporary"
}

nothing_for_it() {
  # shellcheck disable=SC2153 # of os-release
  fail "Docker's repository has nothing for $ID ${VERSION_ID-}: take another docker.source in the inventory"
}

fetch() { # fetch URL FILE
  try=1
  until run get "$1" "$2"; do
    [ "$try" -lt "$tries" ] || fail "cannot fetch $1 ($tries tries): $(tail -n 1 "$said"); does this host take a proxy" \
      "(docker.proxy in the inventory), or is there a mirror (docker.url)?"
    sleep $((try * 2))
    try=$((try + 1))
  done
}

get() { # get URL FILE
  if there curl; then
    curl -fsSL --connect-timeout 20 --max-time 300 -o "$2" "$1"
  elif there wget; then
    wget -nv -T 20 -t 1 -O "$2" "$1"
  else
    echo 'there is neither curl nor wget'
    return 1
  fi
}

fetch_key() { # fetch_key URL FILE
  fetch "$1" "$work/key"
  grep -q 'BEGIN PGP PUBLIC KEY BLOCK' "$work/key" || fail "$1 is no PGP key"
  mkdir -p "${2%/*}"
  cat "$work/key" >"$2"
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
  run sh "$work/get-docker" || fail "$url: $(tail -n 1 "$said") (exit code $code)"
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
  fail "docker is still not there: $(tail -n 1 "$said")"
fi
systemctl daemon-reload
