# shellcheck shell=bash
# Steps: how they are checked, run, shown and interrupted, and what is said when one fails.
#
# A step is a title, a check that says whether it is done already, and a function that does it with its output in a log.
# The caller sets `steps`, their number, calls `begin`, and calls `step` outside of any condition, since bash ignores
# `set -e` inside one. Written to: .venv and .cache in the checkout, and the wheel cache.

unset CDPATH
[[ -n ${HOME:-} ]] || unset HOME

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)
LOGS=$ROOT/.cache/logs
CACHE=   # of wheels
steps=0  # how many there will be
number=0 # of the current one
job=     # the process group of what runs now
detail=  # what a check has to say about a step that is done
grows=   # the folder that the current step fills, if any
grown=   # its size as it was at the second `measured` of that step
measured=-1

terminal= # not empty: stdout is one
if [[ -t 1 && ${TERM:-dumb} != dumb ]]; then terminal=yes; fi

paint() { # paint COLOUR_NUMBER TEXT
  if [[ -n $terminal && -z ${NO_COLOR:-} ]]; then
    printf '\e[%sm%s\e[0m' "$1" "$2"
  else
    printf '%s' "$2"
  fi
}

spin() { # spin LABEL LOG SECONDS: one picture of a step that runs
  local width said text frames="|/-\\"
  width=$(stty size 2>/dev/null </dev/tty | cut -d ' ' -f 2) || width=
  ((width > 0)) || width=80 # some terminals do not know
  # a compiler's long lines say less than make's last "[ 42%] Building ..."
  said=$(tail -c 60000 -- "$2" | tr '\r' '\n' | tr -dc '[:print:]\n' |
    awk 'NF { last = $0 } /^ *\[ *[0-9]+%\]/ { share = $0 } END { print (share != "" ? share : last) }')
  if [[ -n $grows ]] && ((measured < 0 || $3 >= measured + 3)); then # it takes a moment
    measured=$3 grown="$({ du -sm -- "$grows" || true; } 2>/dev/null | cut -f 1) MB in ${grows##*/}  " # files may vanish
  fi
  text="$1 ${frames:$(($3 % 4)):1} $3 s  $grown$said"
  printf '\r\e[K%s' "${text:0:width-1}"
}

step() { # step TITLE DONE_WORD CHECK FUNCTION
  local title=$1 word=$2 check=$3 run=$4 label log started told status=0 again=
  number=$((number + 1))
  label="[$number/$steps] $title ..."
  log=$LOGS/$number-${run//_/-}.log
  printf '%s ' "$label"
  detail="already there"
  if "$check"; then
    printf '%s\n' "$detail"
    return
  fi
  started=$SECONDS told=0 measured=-1 grown=
  : >"$log"
  # A group of its own, so that an interruption ends all of it; without the lock, which a daemon would keep.
  set -m
  (
    set -e
    "$run"
  ) >>"$log" 2>&1 </dev/null 9>&- &
  job=$!
  set +m
  if [[ -n $terminal ]]; then
    again=$'\r\e[K'"$label "
    while kill -0 "$job" 2>/dev/null; do
      spin "$label" "$log" $((SECONDS - started))
      sleep 0.3
    done
  else
    while kill -0 "$job" 2>/dev/null; do # without a terminal now and then how long it has taken, on the same line
      sleep 0.3
      if ((SECONDS - started >= told + 30)); then
        told=$((SECONDS - started))
        printf '%s s ... ' "$told"
      fi
    done
  fi
  wait "$job" 2>/dev/null || status=$?
  job=
  if ((status)); then
    printf '%s%s\n' "$again" "$(paint 31 "failed after $((SECONDS - started)) s")"
    fail "$title" "$log"
  fi
  printf '%s%s\n' "$again" "$(paint 32 "$word in $((SECONDS - started)) s")"
}

fail() { # fail TITLE LOG
  local errors
  errors=$(grep -aE -m 3 ' error: |CMake Error|^E: ' -- "$2" | cut -c 1-300) || errors=
  {
    printf '\n%s: this step failed: %s\n' "${0##*/}" "$1"
    if [[ -n $errors ]]; then # pip prints much after what a compiler said
      printf 'its first errors:\n%s\n' "$errors" | sed '2,$s/^ */  | /'
    fi
    printf 'its last lines:\n'
    tr '\r' '\n' <"$2" | sed '/^next: /d; /^ *$/d' | tail -n 15 | sed 's/^/  | /'
    printf 'its log: %s\nnext: %s\n' "$2" "$(next_step "$2")"
  } >&2
  exit 1
}

refuse() { # refuse WHAT NEXT: before any step
  printf '%s: %s\nnext: %s\n' "${0##*/}" "$1" "$2" >&2
  exit 1
}

next_step() { # next_step LOG: the step's own advice (its line `next: ...`), or that for what its log shows
  local log=$1 again="then run $0 again: what is done is skipped"
  says() { grep -qiE -- "$1" "$log"; }
  if says '^next: '; then
    sed -n 's/^next: //p' "$log" | tail -n 1
  elif says '^hint: '; then
    echo "$(sed -n 's/^hint: //p' "$log" | tail -n 1) (taco-launch is in $ROOT/.venv/bin), $again"
  elif says 'no space left on device|disk quota exceeded'; then
    echo "the disk is full (df -h '$ROOT' '$CACHE' '${TMPDIR:-/tmp}'): make room, $again"
  elif says 'could not get lock|unable to acquire the dpkg|unable to lock'; then
    echo "another apt or dpkg is at work (ps -C apt-get,apt,dpkg,unattended-upgr): let it finish, $again"
  elif says 'dpkg was interrupted'; then
    echo "an earlier installation was cut short: run dpkg --configure -a as root, $again"
  elif says "could ?n.t resolve|failure resolving|name or service not known|network is unreachable|connection (timed out|refused)|NewConnectionError|max retries exceeded|ProxyError|SSLError"; then
    echo "the network, or the source that pip or apt is set to use, cannot be reached: try pip config list" \
      "and apt-get update, $again"
  elif says 'unable to locate package|has no installation candidate'; then
    echo "apt does not offer it: on Ubuntu enable the component universe (add-apt-repository universe), $again"
  elif says 'no matching distribution found'; then
    echo "pip found no build of it for this Python on $(uname -m): its source cannot be reached (pip config list)," \
      "or has none: choose another Python (TACO_LAUNCH_PYTHON=/usr/bin/python3), $again"
  elif says 'killed signal|cannot allocate memory|out of memory|MemoryError'; then
    echo "memory ran out: close programs or add swap, or set MAKEFLAGS=-j1, $again"
  elif says 'permission denied|operation not permitted'; then
    echo "something here belongs to another user (find '$ROOT' '$CACHE' ! -user $(id -un)): chown it," \
      "or use a copy of your own, $again"
  else
    echo "read the log, put right what it names, $again"
  fi
}

interrupted() { # interrupted EXIT_CODE
  local signal
  trap '' INT TERM HUP
  if [[ -n $job ]]; then
    # INT first: pip cleans up, and taco-launch stops its job. What sudo runs hears only root.
    for signal in INT TERM KILL; do
      kill "-$signal" -- "-$job" 2>/dev/null || true
      ((EUID == 0)) || sudo -n kill "-$signal" -- "-$job" 2>/dev/null || true
      for _ in {1..50}; do
        kill -0 -- "-$job" 2>/dev/null || break 2
        sleep 0.2
      done
    done
  fi
  printf '\n%s: interrupted; run it again and it goes on from here\n' "${0##*/}" >&2
  exit "$1"
}

begin() { # folders, one run at a time, signals
  local named=${TACO_LAUNCH_WHEEL_CACHE:-} home=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
  is_mine() { mkdir -p -- "$1" 2>/dev/null && [[ -w $1 ]]; }
  is_mine "$LOGS" || refuse "cannot write in $ROOT" "run this as its owner, or in a copy that belongs to $(id -un)"
  exec 9>"$ROOT/.cache/lock"
  flock -n 9 || refuse "another scripts/quickstart or scripts/test is at work in $ROOT" "let it finish"
  CACHE=${named:-$home/taco-launch/wheels}
  if [[ -n $named ]]; then
    is_mine "$CACHE" || refuse "cannot write in TACO_LAUNCH_WHEEL_CACHE=$CACHE" "name another folder, or none"
  elif [[ $home != /* ]] || ! is_mine "$CACHE"; then
    CACHE=$ROOT/.cache/wheels # no home of one's own
    mkdir -p -- "$CACHE"
  fi
  CACHE=$(cd -- "$CACHE" && pwd -P)
  trap 'interrupted 130' INT
  trap 'interrupted 143' TERM
  trap 'interrupted 129' HUP
}
