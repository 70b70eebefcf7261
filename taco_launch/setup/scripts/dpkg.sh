#!/bin/sh
# Runs package managers for the scripts that it is prepended to: their words are kept, a lock is waited for, and what was
# cut off in the middle of an installation is finished. Those scripts have a function `fail`.

said= # what the last tool said
seconds=120 # for a lock that another program holds

run() { # run COMMAND...: its words are kept, and its exit code given
  code=0
  said=$("$@" 2>&1 </dev/null) || code=$?
  printf '%s\n' "$said"
  return "$code"
}

last() { # the last line of that
  printf '%s\n' "$said" | tail -n 1
}

errors() { # of what a tool said, what tells why, on one line; else its last line
  told=$(printf '%s\n' "$said" |
    grep -E '^(E|[Ee]rror|dpkg: error|Problem|No package|Cannot)[^A-Za-z]|[Nn]o space|No provider|rror:' |
    awk '!seen[$0]++ && n++ < 3 { sub(/^E: /, ""); printf "%s%s", (n > 1 ? "; " : ""), $0 }' | tr -s '\t ' ' ')
  printf %s "${told:-$(last)}"
  case $said in
    *[Nn]'o space left'* | *'enough free space'* | *[Ii]'nsufficient space'*)
      df -Ph / /var | awk 'NR > 1 && !seen[$6]++ { printf "; free on %s: %s", $6, $4 }'
      ;;
  esac
}

locked() { # locked COMMAND...: waits for whoever holds the locks of apt and dpkg, in words old ones have too
  waited=0
  until run "$@"; do
    case $said in
      *'Could not get lock'* | *'locked by another process'*) ;;
      *) return 1 ;;
    esac
    [ "$waited" -lt "$seconds" ] || fail "another program has held the lock of apt for $seconds s: $(errors) -" \
      "wait for its end, then run setup again (who it is: ps -ef | grep -E 'apt|dpkg')"
    waited=$((waited + 5))
    sleep 5
  done
}

finish_dpkg() { # where there is no dpkg, nothing of it was cut off
  command -v dpkg >/dev/null 2>&1 || return 0
  if [ -n "$(dpkg --audit)" ] || ls /var/lib/dpkg/updates/[0-9]* >/dev/null 2>&1; then
    locked dpkg --force-confold --configure -a || fail "dpkg --configure -a: $(errors)"
  fi
}
