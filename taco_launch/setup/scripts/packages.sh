#!/bin/sh
# Has apt-get, dnf, yum or zypper install packages, for the scripts that it is prepended to; dpkg.sh is prepended to this script.
#
# Installed packages are neither upgraded nor removed. Files that set-up put here for a script are removed at its end: $temporary
# and $source. What is fetched goes by the proxy. Where that fails, $mirror is the key of the inventory that names another
# place, and $named is not empty where it does so already. The last line of what a script says is what people see of it where it fails.

# shellcheck disable=SC2154 # said and code are of dpkg.sh

set -eu

export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l ZYPP_LOCK_TIMEOUT=120
umask 022
work=$(mktemp -d)
temporary= # a file or folder that set-up put here
source=    # another
trap 'rm -rf "$work" ${temporary:+"$temporary"} ${source:+"$source"}' EXIT
trap 'exit 143' TERM INT HUP # else dash ends without the one above
sources= # what apt-get said of its sources
tries=5
mirror=
named=

fail() { # fail TEXT...
  echo "error: $*" >&2
  exit 1
}

there() {
  command -v "$1" >/dev/null 2>&1
}

# --- apt --------------------------------------------------------------------------------------------------------------

update() { # a source that is down matters only where a package cannot be installed without it
  locked apt-get -q -o Acquire::Retries=3 update || :
  sources=$said
}

install() { # install [OPTION...] PACKAGE...
  locked apt-get -q -y --no-install-recommends --no-remove --no-upgrade -o Dpkg::Options::=--force-confold \
    -o Acquire::Retries=3 install "$@" ||
    fail "apt-get install: $(errors)$(printf '%s\n' "$sources" |
      sed -nE 's/^[EW]: (Failed to fetch|The repository)/; package source: \1/p' | head -n 1)$(unreached)"
}

named_by_another() { # named_by_another URI SUITE OURS: the file of another that has this source switched on
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    if [ ! -f "$file" ] || [ "$file" = "$3" ]; then
      continue
    fi
    # a line `deb [options] URI SUITE component...`, or fields until an empty line: sources.list(5)
    awk -v uri="$1" -v suite="$2" '
      function is(word) { sub(/\/$/, "", word); return word == uri }
      function finish() { if (by && of && on) found = 1; by = of = 0; on = 1; field = "" }
      BEGIN { on = 1 }
      /^[ \t]*#/ { next }
      $1 == "deb" {
        sub(/\[[^]]*\]/, "")
        if (is($2) && $3 == suite) found = 1
      }
      NF == 0 { finish() }
      /^[A-Za-z-]+:/ { field = tolower($1); sub(/:.*/, "", field); sub(/^[^:]*:/, "") }
      field == "enabled" && tolower($1) ~ /^(no|false|0)$/ { on = 0 }
      field == "uris" { for (i = 1; i <= NF; i++) if (is($i)) by = 1 }
      field == "suites" { for (i = 1; i <= NF; i++) if ($i == suite) of = 1 }
      END { finish(); exit !found }
    ' "$file" || continue
    echo "$file"
    return
  done
}

apt_packages() { # apt_packages FOLDER: without any source; --no-download takes only what lies in the cache of apt
  finish_dpkg
  given "$1" install -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=/dev/null
}

# --- rpm --------------------------------------------------------------------------------------------------------------

rpm_install() { # rpm_install MANAGER [OPTION...] PACKAGE...
  manager=$1
  shift
  if [ "$manager" = zypper ]; then
    run zypper --non-interactive install --no-recommends "$@" || case $code in
      10[0-36]) ;; # it is done, and there is something to be told: zypper(8), exit codes
      *) fail "zypper install: $(errors) (exit code $code)$(unreached)" ;;
    esac
  else
    run "$manager" -y install "$@" || fail "$manager install: $(errors) (exit code $code)$(vault)$(unreached)"
  fi
}

vault() { # where the packages of a release went that is no longer cared for
  case $said in
    *mirrorlist.centos.org* | *'Cannot find a valid baseurl for repo'*)
      echo '; if this is CentOS: its old releases are at vault.centos.org, which /etc/yum.repos.d has to name' ;;
  esac
}

rpm_packages() { # rpm_packages FOLDER MANAGER
  if [ "$2" = zypper ]; then
    given "$1" rpm_install zypper --allow-unsigned-rpm
  else
    given "$1" rpm_install "$2" '--disablerepo=*'
  fi
}

given() { # given FOLDER COMMAND...: has the packages installed that are meant, and no other that lies there
  temporary=$1
  shift
  (cd "$temporary" && sha256sum -c SHA256SUMS >"$work/sums" 2>&1) ||
    fail "the packages of the controller did not arrive whole: run setup again: $(grep -v ': OK$' "$work/sums" | tail -n 1)"
  while read -r _ name; do
    set -- "$@" "$temporary/$name"
  done <"$temporary/SHA256SUMS"
  "$@"
}

# --- both -------------------------------------------------------------------------------------------------------------

put_source() { # put_source LIST SED_SCRIPT: $source becomes our file LIST
  mkdir -p "${1%/*}"
  sed -e "$2" "$source" >"$work/source"
  rm -f "$1.taco-launch"
  cp "$work/source" "$1.taco-launch"
  mv -f "$1.taco-launch" "$1"
}

proxy() { # proxy FILE: for what is fetched from outside
  temporary=$1
  while IFS= read -r variable; do
    export "${variable?}"
  done <"$temporary"
}

fetch() { # fetch URL FILE
  try=1
  until run get "$1" "$2"; do
    most=$tries
    case "$code $said" in
      6\ * | *' 404'* | *'resolve host'*) most=2 ;; # it is not there, or has no such name: time changes that rarely
    esac
    [ "$try" -lt "$most" ] || fail "cannot fetch $1 ($try tries): $(last)$(hint)"
    sleep $((try * 2))
    try=$((try + 1))
  done
}

unreached() { # a hint, if a tool complains about the source at $url
  case "$sources $said" in
    *"${url:-none}"*) hint ;;
  esac
}

hint() {
  printf '\nhint: %s, or does this host take a proxy (docker.proxy in the inventory)?' "$(elsewhere)"
}

elsewhere() { # where another place would be named, or one is that may be wrong
  file='the inventory'
  case ${taco_typed-} in
    *' -i '*) file=${taco_typed#* -i } ;;
  esac
  if [ -n "$named" ]; then
    echo "is it another one: check $mirror in $file"
  else
    echo "is there a mirror ($mirror in the inventory)"
  fi
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
