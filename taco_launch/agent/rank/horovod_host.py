"""`agent horovod`: starts the ranks of one host of an elastic Horovod job, as the driver on the first host orders.

The driver (horovod_driver.py) is Horovod's own, in a process of the user's Python, which has Horovod. Each host keeps a
connection to it: while the host is connected, Horovod counts its slots. A host whose ranks have failed offers them again.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from taco_launch.agent.host import processes
from taco_launch.agent.processes import agent_program
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import FAILED, SIGNAL_BASE
from taco_launch.core.launch.command_line.env import JOB_ID
from taco_launch.core.launch.light_program import is_python
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.horovod_messages import (
    EndWorker,
    JobEnded,
    OfferSlots,
    StartWorker,
    WithdrawSlots,
    WorkerEnded,
)
from taco_launch.core.protocol.message import Message

# The driver has to import Horovod first, from a shared file system perhaps.
_MEET_SECONDS = 120.0
# A rank that Horovod has removed has so long to end after TERM, as under horovodrun (safe_shell_exec.py,
# GRACEFUL_TERMINATION_TIME_S, is 5).
_END_SECONDS = 10.0
_TICK_MS = 500
# When the job is over the driver waits for the hosts to go, for half as long (horovod_driver.py, _LAST_SECONDS).
_DRIVER_SECONDS = 10.0
# A driver whose host has lost its power sends no more: keepalive(7) finds that after _IDLE + _PROBES * _INTERVAL seconds.
_IDLE, _INTERVAL, _PROBES = 5, 5, 4
_TORCH_INTERFACE = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915  # netdevice(7): struct ifreq is the name in 16 bytes, then a sockaddr_in with the address at 20


class Sizes(NamedTuple):
    """The least and the most hosts of the job, its hosts when it starts, and the slots of each host."""

    least: int
    most: int
    first: int
    slots: int


def read_sizes(word: str) -> Sizes:
    """Read LEAST:MOST:FIRST:SLOTS."""
    return Sizes(*map(int, word.split(":")))


def main(folder: JobFolder, driver: str, address: str, sizes: str, is_first: int, command: Sequence[str]) -> int:
    """Serve the driver at `driver` (ADDRESS:PORT) until the job ends, and return its exit code.

    `address` is this host's own; with `is_first` 1 the driver runs here. `sizes` are those of `Sizes`, joined by colons.
    """
    processes.become_subreaper()
    meeting, _, port = driver.rpartition(":")
    own = None
    if is_first:
        words = (_python(command), str(folder.agent), "horovod-driver", meeting, port, sizes)
        own = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    interface = os.environ.get(_TORCH_INTERFACE, "").partition(",")[0] or _interface_of(address)
    if not interface:
        return _say(f"no network interface has the address {address}, by which the other hosts reach this one")
    sock = _connect(meeting, int(port), own)
    if sock is None:
        if own is not None and own.poll() is not None:
            return own.returncode if own.returncode > 0 else FAILED  # it has reported why
        return _say(f"Horovod's driver on the first host does not answer at {driver}")
    host = _Host(folder, JsonConnection(sock), command, interface, driver=own.pid if own is not None else 0)
    code = host.run(OfferSlots(job=os.environ.get(JOB_ID, ""), address=address, slots=read_sizes(sizes).slots))
    sock.close()
    if own is not None:
        if host.is_over:  # this host may be the first that was told: the driver tells the others, and then ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                own.wait(_DRIVER_SECONDS)
        own.terminate()
        own.wait()
    return code


def keep_alive(sock: socket.socket) -> None:
    """Have a connection break within half a minute where the other host is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (_IDLE + _INTERVAL * _PROBES))


def _python(command: Sequence[str]) -> str:
    """Return the Python that has Horovod: the program's own, or else the one on PATH."""
    return command[0] if is_python(command[0]) else "python3"


def _interface_of(address: str) -> str:
    """Return the interface with this IPv4 address, "" where none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _number, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address
                answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == socket.gethostbyname(address):
                    return name
    return ""


def _connect(address: str, port: int, driver: "Optional[subprocess.Popen[bytes]]") -> Optional[socket.socket]:
    """Connect to the driver, None where it does not answer, or has ended here."""
    until = time.monotonic() + _MEET_SECONDS
    while time.monotonic() < until and (driver is None or driver.poll() is None):
        try:
            sock = socket.create_connection((address, port), timeout=_IDLE)
        except OSError:
            time.sleep(0.2)
            continue
        sock.settimeout(None)
        keep_alive(sock)
        return sock
    return None


def _say(why: str) -> int:
    sys.stderr.write(f"taco-launch: {why}\n")
    return FAILED


class _Host:
    """The ranks of this host while the driver has them run."""

    def __init__(
        self, folder: JobFolder, line: JsonConnection, command: Sequence[str], interface: str, *, driver: int
    ) -> None:
        self._folder, self._line, self._command, self._interface = folder, line, command, interface
        self._driver = driver  # its process here, 0 where it runs on another host
        self._running: Dict[int, subprocess.Popen[bytes]] = {}  # by slot
        self._kill_at: Dict[int, float] = {}  # slots whose ranks were told to end
        self._failed: Set[int] = set()  # slots whose ranks have failed since the last offer
        self._code = 0  # of the first that failed
        self._is_leaving = self._has_withdrawn = False
        self._end: Optional[int] = None  # the job's exit code

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, and this host was told or has lost the driver."""
        return self._end is not None

    def run(self, offer: OfferSlots) -> int:
        """Offer the slots until the job ends or this host leaves it; return the exit code."""
        wakeup, wake = os.pipe()
        for end in (wakeup, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, self._leave)
        poll = select.poll()
        poll.register(wakeup, select.POLLIN)
        poll.register(self._line, select.POLLIN)
        self._line.send(offer)
        while self._running or (self._end is None and not self._is_leaving):
            ready = [descriptor for descriptor, _event in poll.poll(_TICK_MS)]
            if wakeup in ready:
                os.read(wakeup, 4096)
            if self._line.fileno() in ready and not self._obey():
                poll.unregister(self._line)
                self._lose_driver()
            if self._is_leaving and not self._has_withdrawn:
                self._has_withdrawn = True
                self._line.send(WithdrawSlots())
            self._reap()
            self._kill()
            if self._failed and not self._running and not self._is_leaving and self._end is None:
                self._failed.clear()
                self._line.send(offer)
        return self._end if self._end is not None else self._code

    def _leave(self, _number: int, _frame: object) -> None:
        self._is_leaving = True

    def _lose_driver(self) -> None:
        """End the ranks: without the driver they cannot find each other again."""
        if self._end is None and not self._is_leaving:
            self._end = _say("the connection to Horovod's driver on the first host broke")
            for slot in self._running:
                self._tell_to_end(slot)

    def _obey(self) -> bool:
        """Do what the driver orders; return whether it is still there."""
        messages: Optional[List[Message]] = self._line.receive()
        for message in messages or ():
            if isinstance(message, StartWorker):
                self._start(message.slot, message.environment)
            elif isinstance(message, EndWorker):
                self._tell_to_end(message.slot)
            elif isinstance(message, JobEnded):
                self._end = message.exit_code
        return messages is not None

    def _start(self, slot: int, given: Mapping[str, str]) -> None:
        if slot in self._running or self._is_leaving:
            self._line.send(WorkerEnded(slot=slot, exit_code=FAILED))
            return
        of_horovod = {**given, "HOROVOD_GLOO_IFACE": self._interface}
        of_torch = {"RANK": given["HOROVOD_RANK"], "LOCAL_RANK": str(slot), "WORLD_SIZE": given["HOROVOD_SIZE"]}
        self._running[slot] = subprocess.Popen(
            (*agent_program.wrapper(self._folder.agent, "rank", self._folder.path), *self._command),
            env={**os.environ, **of_torch, **of_horovod},
        )

    def _tell_to_end(self, slot: int) -> None:
        if slot in self._running and slot not in self._kill_at:
            self._kill_at[slot] = time.monotonic() + _END_SECONDS
            self._signal(slot, signal.SIGTERM)

    def _kill(self) -> None:
        for slot, due in self._kill_at.items():
            if time.monotonic() > due:
                self._signal(slot, signal.SIGKILL)

    def _signal(self, slot: int, number: int) -> None:
        """Send a signal to a rank: its wrapper leads a group of its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running[slot].pid, number)

    def _reap(self) -> None:
        for slot, child in list(self._running.items()):
            code = child.poll()
            if code is None:
                continue
            del self._running[slot]
            told_to_end = self._kill_at.pop(slot, None) is not None
            code = SIGNAL_BASE - code if code < 0 else code
            if (
                code == SIGNAL_BASE + signal.SIGTERM and not told_to_end
            ):  # the job is ending, or this host is to leave it
                self._is_leaving = True
            if code:
                self._failed.add(slot)
                self._code = self._code or code
            self._line.send(WorkerEnded(slot=slot, exit_code=code))
        with contextlib.suppress(ChildProcessError):  # orphans of ranks came to this process
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        known = {self._driver, *(child.pid for child in self._running.values())}
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in known:
                return
            os.waitpid(ended.si_pid, 0)
