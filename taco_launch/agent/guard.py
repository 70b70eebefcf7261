"""`agent guard`: one per host of a job: knows its ranks, gives them their environment, and ends all that is the job's.

It listens on a Unix socket in the job's folder. The supervisor connects to it and says `supervise`; every rank
connects and says `register`. When the supervisor is gone for good, the guard ends the job on this host.
"""

import selectors
import socket
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from taco_launch.agent import facts, processes, records, recovery
from taco_launch.agent.folders import JobFolder
from taco_launch.agent.protocol import Line
from taco_launch.errors import HostError

_TICK = 0.5
# A supervisor that started a guard and then died before it connected leaves nothing behind for longer than this.
_FIRST_CONTACT_SECONDS = 30.0


def main(folder: JobFolder) -> int:
    """Guard the job until its supervisor says `end`, or is gone."""
    with folder.listen() as server:
        _Guard(folder, server).run()
    return 0


class _Guard:
    def __init__(self, folder: JobFolder, server: socket.socket) -> None:
        self._folder = folder
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ, None)
        self._supervisor: Optional[Line] = None
        self._supervised = False
        self._job_id = ""
        self._welcome: Dict[str, Any] = {}
        self._host_loss_timeout = _FIRST_CONTACT_SECONDS
        self._heard = time.monotonic()
        self._ranks: Dict[Line, int] = {}
        self._roots: Set[Tuple[int, int]] = set()
        self._terminating = False
        self._done = False

    def run(self) -> None:
        while not self._done:
            for key, _mask in self._selector.select(_TICK):
                if isinstance(key.data, Line):
                    self._hear(key.data)
                else:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
            silent = time.monotonic() - self._heard > self._host_loss_timeout
            if silent or (self._supervised and self._supervisor is None):
                self._alone(silent=silent)

    def _accept(self, server: socket.socket) -> None:
        connection, _address = server.accept()
        line = Line(connection)
        self._selector.register(connection, selectors.EVENT_READ, line)

    def _hear(self, line: Line) -> None:
        if line.fileno() < 0:  # lost a moment ago, on another's account
            return
        messages = line.receive()
        for message in messages or ():
            self._act(line, message)
        if messages is None:
            self._lost(line)

    def _act(self, line: Line, message: Dict[str, Any]) -> None:
        op = message["op"]
        if line is self._supervisor:
            self._heard = time.monotonic()
        if op == "supervise":
            self._supervisor, self._supervised = line, True
            self._job_id = message["job_id"]
            self._host_loss_timeout = message["host_loss_timeout"]
            line.send({"op": "facts", **_facts(message)})
        elif op == "prepare":
            self._welcome = {"op": "welcome", **message["welcome"]}
        elif op == "launched":
            self._roots.add((message["root"][0], message["root"][1]))
        elif op == "register":
            self._ranks[line] = message["rank"]
            self._roots.update((pid, start) for pid, start in message["roots"])
            line.send(self._welcome)
            if self._terminating:
                line.send({"op": "terminate"})
            self._tell({"op": "started", "rank": message["rank"], "roots": message["roots"]})
        elif op == "exit":
            self._ranks.pop(line, None)
            self._tell(message)
        elif op in ("terminate", "release"):
            self._terminating = True
            for rank in list(self._lines()):
                rank.send(message)
        elif op == "end":
            self._roots.update((pid, start) for pid, start in message["roots"])
            self._end()

    def _lines(self) -> List[Line]:
        """Give every rank's connection, also those that have told their end and wait to be released."""
        data = (key.data for key in self._selector.get_map().values())
        return [line for line in data if isinstance(line, Line) and line is not self._supervisor]

    def _tell(self, message: Dict[str, Any]) -> None:
        if self._supervisor is not None:
            self._supervisor.send(message)

    def _lost(self, line: Line) -> None:
        self._selector.unregister(line.sock)
        line.close()
        if line is self._supervisor:
            self._supervisor = None
        rank = self._ranks.pop(line, None)
        if rank is not None:  # it said nothing of an end: its wrapper was killed
            self._tell({"op": "exit", "rank": rank, "exit_code": None, "reason": ""})

    def _end(self) -> None:
        """End all that belongs to the job here, prove it, say so."""
        for line in self._lines():  # what the ranks have said already comes before the end
            line.sock.setblocking(False)
            self._hear(line)
        left = processes.end(self._job_id, self._roots)
        self._tell({"op": "ended", "left": [entry.pid for entry in left.found], "unknown": left.unknown})
        self._done = True

    def _alone(self, *, silent: bool) -> None:
        """End the job when its supervisor is gone: at once when it is dead, else when it is silent for too long."""
        lock = records.try_lock(self._folder)
        if lock is not None:
            recovery.close(self._folder, lock, tuple(self._roots))
        elif silent:
            processes.end(self._job_id, self._roots)
            reason = f"its guard heard nothing of the supervisor for {self._host_loss_timeout:g} s and ended its ranks"
            self._tell({"op": "gave-up", "reason": reason})
        self._done = lock is not None or silent


def _facts(message: Dict[str, Any]) -> Dict[str, Any]:
    try:
        found = facts.host(count_slots=message["count_slots"]) if message["look"] else {}
        port = facts.free_port(message["ports"])
    except HostError as error:
        return {"error": f"{error.message}\nhint: {error.hint}"}
    return {"host": found, "port": port, "boot": facts.boot_id()}
