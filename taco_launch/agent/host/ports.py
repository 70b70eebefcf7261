"""TCP ports of this host: one that is free, which somebody listens on and who, and whether another host's is reached."""

import contextlib
import errno
import os
import pwd
import re
import socket
import sys
from pathlib import Path
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence, Set

from taco_launch.agent.host import processes
from taco_launch.core.errors import HostError

# The kernel gives any port that is free; another job may have it, and not listen there yet.
_TRIES = 64
_REACH_SECONDS = 3.0
# proc(5), /proc/net/tcp: number, local address and port, remote ones, state (TCP_LISTEN of the kernel's tcp_states.h),
# queues, timer, retransmits, user, timeout, inode.
_LISTENS = re.compile(
    r" *\d+: (?P<address>[0-9A-F]+):(?P<port>[0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A \S+ \S+ \S+"
    r" +(?P<uid>\d+) +\d+ (?P<inode>\d+)"
)
# 127.0.0.1 as that file has it: in the order of this machine's bytes.
_LOOPBACK = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}"


class _Listener(NamedTuple):
    port: int
    uid: int
    file: str  # what a descriptor of it leads to
    address: str


def free(allowed: Optional[Sequence[int]], is_leased: Callable[[int], bool]) -> int:
    """Return a TCP port that is free now, for the ranks' rendezvous, of the `allowed` (first, last) if there are such.

    None that another job has (`is_leased`), which may not listen there yet. The last ones first, as mpirun and MPI begin
    with the first; at another of their second half each time, for two jobs that start together would be given the same.

    Raises:
        HostError: all allowed ports are taken.
    """
    candidates: List[int] = [0] * _TRIES
    if allowed is not None:
        candidates = list(range(allowed[1], allowed[0] - 1, -1))
        skip = int.from_bytes(os.urandom(4), "big") % ((len(candidates) + 1) // 2)
        candidates = candidates[skip:] + candidates[:skip]
    for port in candidates:
        with contextlib.suppress(OSError):
            found = _bound(port)
            if not is_leased(found):
                return found
    which = "port" if allowed is None else f"port from {allowed[0]} to {allowed[1]}"
    raise HostError(
        f"no {which} is free on {socket.gethostname()}",
        hint="widen network.port_range in the inventory, or list the processes that listen on ports: ss -ltnp",
    )


def _bound(port: int) -> int:
    """Return the port, or any for 0, that nobody has on any address of this host: both families could bind it.

    Raises:
        OSError: somebody has it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", port))
        port = int(probe.getsockname()[1])
        try:
            with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as other:
                other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                other.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # any other: this host has no IPv6
                raise
    return port


def listening_ports(allowed: Optional[Sequence[int]]) -> List[int]:
    """Return those of the `allowed` TCP ports (first, last) that somebody listens on, none where any may be taken."""
    if allowed is None:
        return []
    return sorted({each.port for each in _listeners() if allowed[0] <= each.port <= allowed[1]})


def heard(ports: Sequence[int]) -> List[int]:
    """Return those of the TCP ports that somebody listens on."""
    return [port for port in listening_ports((min(ports), max(ports))) if port in ports] if ports else []


def listener(port: int) -> str:
    """Return who listens on a TCP port: `process 4711 (python3 of ann)`; "" where nobody does."""
    found = [each for each in _listeners() if each.port == port]
    if not found:
        return ""
    sockets = {each.file for each in found}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if sockets & _open_files(int(process.name)):
                name = (process / "comm").read_text("utf-8", "replace").strip()
                return f"process {process.name} ({name} of {_user(process.stat().st_uid)})"
    return f"a process of {_user(found[0].uid)}"


def listened_on(root: int) -> int:
    """Return the first port of 127.0.0.1 that a process or one below it listens on; 0 where there is none.

    The socket itself tells it: an answer on a port does not say whose it is.
    """
    pids = (root, *(each.pid for each in processes.descendants(root)))
    own = set().union(*map(_open_files, pids))
    return next((each.port for each in _listeners() if each.address == _LOOPBACK and each.file in own), 0)


def unreachable(address: str, port: int, *, listens: bool = False) -> str:
    """Return why a port of another host cannot be reached from here; "" where it can. By default no process listens on it yet.

    A host that is reached refuses the connection then; a firewall or router on the way drops it or returns an error.
    """
    try:
        with socket.create_connection((address, port), _REACH_SECONDS):
            return "" if listens else "another process already listens on that port"
    except socket.timeout:
        return f"no answer within {_REACH_SECONDS:g} s: a firewall may block the port"
    except OSError as error:
        return "" if error.errno == errno.ECONNREFUSED and not listens else error.strerror or str(error)


def _listeners() -> Iterator[_Listener]:
    for family in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{family}", encoding="ascii") as lines:
            for match in filter(None, map(_LISTENS.match, lines)):
                file = f"socket:[{match['inode']}]"
                yield _Listener(int(match["port"], 16), int(match["uid"]), file, match["address"])


def _open_files(pid: int) -> Set[str]:
    """Return what the descriptors of a process lead to; nothing where it has ended, or is another user's."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # it was closed
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
