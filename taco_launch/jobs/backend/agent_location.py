"""Where the agent of a host sits - on this machine, on a host, in its training container - and how it is started there."""

import os
import sys
from collections.abc import Mapping

from taco_launch.agent.store.folders import STATE_VARIABLE, state_folder
from taco_launch.agent.store.ownership import require_own, why_not_own
from taco_launch.core.errors import HostError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.hosts import Inventory

# The host's own shell prints one line before anything else: `unready WHAT WORDS` for what is in the way, or `ready` just
# before it starts the agent. Whatever follows comes from the agent, which may run in a container: it is the agent's
# answer, or `unready WHAT WORDS` from a Python that cannot run it, and no such line has anything written or executed.
UNREADY, READY = b"unready ", b"ready\n"
AGENT = "agent"  # the file is missing
_SAY = """unready() { printf 'unready %s %s\\n' "$1" "$(printf %s "${2-}" | tr '\\n' ' ')"; exit; }
whole() { # a zip file ends with its directory's end, of 22 bytes: a disk that was full or lost power leaves a part
  [ -f "$1" ] && [ "$(tail -c 22 "$1" | head -c 2)" = PK ]
}
"""
_END_BYTES, _END = 22, b"PK"
# $1 is the name of the agent's file, $2 the operation. The folder: see agent/store/folders.py, state_folder, and ownership.py, require_own.
_ON_HOST = """uid=$(id -u)
above="-user 0 -o -user $uid"
if [ "$(tr -s ' ' 2>/dev/null </proc/self/uid_map)" != ' 0 0 4294967295' ]; then
  above="$above -o -user $(cat /proc/sys/kernel/overflowuid 2>/dev/null || echo 0)"
fi
closed='! -perm /022'
if [ "$(id -un 2>/dev/null || echo -)" = "$(id -gn 2>/dev/null)" ]; then
  closed="$closed -o ! -perm /002 -group $(id -g)"
fi
must() { # a path, and what find is to test
  path=$1
  shift
  [ -n "$(find "$path" -maxdepth 0 "$@")" ] || unready folder "$(ls -ldn "$path")"
}
own() { # a folder's path with a `.` behind it, so that a link is followed
  [ ! -d "$1" ] || must "$1" \\( -user 0 -o -user "$uid" \\) ! -perm /022
}
way() { # a path that is there, all above it, and all on the way to where links lead
  # shellcheck disable=SC2086 # words
  if [ -L "$1" ]; then
    must "$1" \\( $above \\)
    target=$(readlink "$1")
    case $target in
      /*) way "$target" ;;
      *) way "${1%/*}/$target" ;;
    esac
  else
    must "$1" \\( $above \\) \\( -perm -1000 -o $closed \\)
  fi
  [ "$1" = / ] || { set -- "${1%/*}" && way "${1:-/}"; }
}
state=${TACO_LAUNCH_STATE:-}
if [ -z "$state" ]; then
  case $(id -u),${XDG_STATE_HOME:-} in
    0,*) state=/var/lib/taco-launch ;;
    *,/*) state=$XDG_STATE_HOME/taco-launch ;;
    *) state=$HOME/.local/state/taco-launch ;;
  esac
fi
command -v python3 >/dev/null 2>&1 || unready python3
case $state in
  /*) ;;
  *) state=$PWD/$state ;;
esac
own "$state/."
own "$state/agent/."
for folder in "$state" "$state/agent"; do
  [ ! -d "$folder" ] || way "$folder"
done
ours() { [ -n "$(find "$1" -maxdepth 0 -type f \\( -user 0 -o -user "$(id -u)" \\) ! -perm /022)" ]; }
whole "$state/agent/$1" && ours "$state/agent/$1" || unready agent "$state/agent/$1"
echo ready
exec python3 -I -S "$state/agent/$1" "$2"
"""
# $1 is the container, $2 the agent's path on the host and in the container, $3 the operation.
_IN_CONTAINER = """command -v docker >/dev/null 2>&1 || unready docker
status=$(docker container inspect --format '{{.State.Status}}' "$1" 2>/dev/null) ||
  unready container "$(docker container inspect "$1" 2>&1 >/dev/null | tail -n 1)"
[ "$status" = running ] || unready stopped "$status"
whole "$2" || unready agent "$2"
echo ready
# what a container prints on stderr may go to a terminal: without control characters; one that prints without end is cut off,
# as nothing else would end this when the connection is lost
{
  docker exec -i "$1" /bin/sh -c \\
    'command -v python3 >/dev/null 2>&1 || { echo unready python3; exit; }; exec python3 -I -S "$@"' sh "$2" "$3" \\
    2>&1 >&3 3>&- | { head -c 65536 | tr -d '\\000-\\010\\013-\\037\\177' >&2; head -c 16777216 >/dev/null; } 3>&-
} 3>&1
"""
_TURN_SECONDS = 30.0


@dataclass(frozen=True)
class AgentLocation:
    """A place for the agent.

    `script` starts it, given `args`, its path (`folder` and the name of its file) and the operation, as root with
    `sudo`. `inherit` says whose environment and folder a job gets: those that the agent is started in, or else the
    caller's. A follower is asked to end its answer after `turn` seconds: a process in a container outlives the
    `docker exec` that a lost connection ends. On this machine there is no script: `python` starts it.
    """

    script: str = ""
    args: tuple[str, ...] = ()
    folder: str = ""
    sudo: bool = False
    inherit: bool = True
    turn: float | None = _TURN_SECONDS
    container: str = ""
    python: str = ""

    def argv(self, agent: str, op: str) -> tuple[str, ...]:
        """Return the argv of an operation; `agent` is the name of the agent's file."""
        if self.python:
            return (self.python, "-I", "-S", self.folder + agent, op)
        return ("/bin/sh", "-c", _SAY + self.script, "agent", *self.args, self.folder + agent, op)

    def destination(self, host: str, agent: str, told: str) -> str:
        """Return where the agent's file is to be written; `told` is the path that the host has told.

        That is only read where the folder depends on the user there, who then writes it.

        Raises:
            HostError: the host's path is not one of an agent.
        """
        if self.folder:
            return self.folder + agent
        if not (
            told.startswith("/") and told.endswith(f"/agent/{agent}") and "/../" not in told and told.isprintable()
        ):
            raise HostError(f"{host}: it names an agent's path that cannot be right: {told[:200]!r}")
        return told

    def missing(self, agent: str) -> str:
        """Return the path of the agent's file where this machine itself can tell that it is missing, or only partly there."""
        path = self.folder + agent
        return "" if not self.python or _is_whole(path) else path

    def refused(self, host: str, what: str, words: str, setup: str) -> HostError:
        """Return why the agent cannot be started; `setup` is what is typed to have the host set up."""
        part = f"has no module {words}: its Python installation is incomplete"
        if not self.container and what == "module":
            return HostError(
                f"{host}: its python3 {part}", hint="install the complete Python package there: apt-get install python3"
            )
        if not self.container and what == "folder":
            mode, _links, owner, *_more, path = (*words.split(maxsplit=8), *[""] * 9)[:9]  # as `ls -ldn` has it
            path = path.removesuffix("/.")
            return HostError(
                f"{host}: another user can decide what is in the state folder: {path} belongs to user {owner}, mode {mode}",
                hint=f"on {host}: chmod go-w {path}, or set TACO_LAUNCH_STATE=FOLDER in the login's environment",
            )
        if not self.container:
            told = "there is no python3" if what == "python3" else f"its python3 is Python {words}"
            return HostError(f"{host}: {told}", hint="install Python 3.8 or newer there")
        there = f"the container {self.container}"
        reasons = {
            "docker": "there is no docker",
            "container": f"there is no container {self.container}"
            if "no such" in words.lower()
            else f"docker: {words}",
            "stopped": f"{there} is not running: it is {words}",
            "python3": f"{there} has no python3",
            "module": f"the python3 of {there} {part}",
            "python": f"the python3 of {there} is Python {words}, and 3.8 is needed",
        }
        reason = reasons.get(what, f"the agent cannot be started: {what} {words}")
        records = (
            f"; records of earlier jobs, if any, are in {paths.CONTAINERS} on {host}" if what == "container" else ""
        )
        return HostError(f"{host}: {reason}", hint=f"to set the hosts up: {setup}{records}")


def here(environ: Mapping[str, str], uid: int) -> AgentLocation:
    """Return the location on this machine itself, of its user `uid` with this environment.

    Raises:
        UsageError: its state folder is another user's, or others can write it.
    """
    agents = require_own(state_folder(environ, uid) / "agent", uid, "the agent's folder", STATE_VARIABLE)
    return AgentLocation(folder=f"{agents}/", inherit=False, turn=None, python=sys.executable)


def _is_whole(path: str) -> bool:
    """Return whether a zip file is there with its end, and no other user can change it, as `whole` and `ours` do in a shell."""
    try:
        with open(path, "rb") as file:
            if why_not_own(os.fstat(file.fileno()), os.geteuid()):
                return False
            file.seek(-_END_BYTES, os.SEEK_END)
            return file.read(len(_END)) == _END
    except OSError:
        return False


def on_host() -> AgentLocation:
    """Return the location on a host without a container, of the user who logs in."""
    return AgentLocation(_ON_HOST)


def in_container(name: str) -> AgentLocation:
    """Return the location in a running container."""
    return AgentLocation(_IN_CONTAINER, (name,), f"{paths.AGENT}/", sudo=True, container=name)


def of(inventory: Inventory, environ: Mapping[str, str], uid: int) -> AgentLocation:
    """Return the location on the head of an inventory; `environ` and `uid` are those of whoever asks on this machine."""
    if inventory.container is not None:
        return in_container(paths.container(inventory.cluster))
    head = next(host for host in inventory.hosts if host.name == inventory.head)
    return here(environ, uid) if head.connection == "local" else on_host()
