"""Measure the hosts of a job, one rank on each: `python3 -m program PLAN`, where PLAN is JSON (see plan.py).

Rank 0 tells the others what to measure, and prints what comes of it: lines of JSON that begin with `@check `. It requires
Python 3.8 and its standard library, since it runs in training images.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .gpu_programs import PROGRAM_SECONDS, programs
from .host import local
from .network import ANSWER_SECONDS, DataPort, listen, own_address, ping, rdma_device, send, write_bw

PATIENCE = 60.0
_RECHECK_SECONDS, _AGAIN = 60.0, 5
# As judge.py has it.
_SLOW = 0.7
# As plan.py has it.
_VARIABLE = "TACO_CHECK_TOKEN"
_GREETING_BYTES = 4096
# Of ib_write_bw, with no range of ports.
_WRITE_BW_PORT = 18515


def say(**values: Any) -> None:
    """Print one line for the controller."""
    print("@check " + json.dumps(values), flush=True)


def _lines(sock: socket.socket) -> Iterator[Dict[str, Any]]:
    with sock.makefile("r", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _put(sock: socket.socket, values: Dict[str, Any]) -> None:
    sock.sendall(json.dumps(values).encode() + b"\n")


OPERATIONS: Dict[str, Callable[..., Dict[str, Any]]] = {
    "local": local, "ping": ping, "programs": programs, "send": send, "write_bw": write_bw,
}  # fmt: skip


def work(rank: int, address: str, port: int, token: str, ports: Optional[List[int]]) -> None:
    """Do what rank 0 asks for, until it closes the connection; listen on `ports` alone if given."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            control = socket.create_connection((address, port), timeout=ANSWER_SECONDS)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    with control:
        control.settimeout(None)
        own, why = own_address(control.getsockname()[0])
        data = DataPort(own, token, ports)
        greeting = {
            "rank": rank, "token": token, "to": [own, data.port], "by": why, "cores": len(os.sched_getaffinity(0)),
            "rdma": rdma_device(), "write_bw_port": _write_bw_port(own, ports),
        }  # fmt: skip
        _put(control, greeting)
        for message in _lines(control):
            try:
                answer = OPERATIONS[message.pop("do")](**message)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                answer = {"problem": str(error) or type(error).__name__}
            _put(control, answer)


def _write_bw_port(address: str, ports: Optional[List[int]]) -> int:
    if ports is None:
        return _WRITE_BW_PORT
    with listen(address, ports) as free:
        return int(free.getsockname()[1])


def _greeting(connection: socket.socket) -> Dict[str, Any]:
    """Read the first line of a connection, in ANSWER_SECONDS in all; return {} if it is not that of a rank.

    Raises:
        OSError: it did not come in time.
        ValueError: it is not JSON.
    """
    data, end = b"", time.monotonic() + ANSWER_SECONDS
    while not data.endswith(b"\n") and len(data) < _GREETING_BYTES:
        connection.settimeout(max(0.01, end - time.monotonic()))
        piece = connection.recv(_GREETING_BYTES - len(data))
        if not piece or time.monotonic() > end:
            raise OSError("the connection ended early, or sent too slowly")
        data += piece
    about = json.loads(data)
    return about if isinstance(about, dict) else {}


class Ranks:
    """Rank 0's connections to all ranks."""

    def __init__(self, listener: socket.socket, size: int, token: str) -> None:
        """Wait until every rank has connected.

        Raises:
            OSError: a rank did not connect in time.
        """
        self._links: Dict[int, Tuple[socket.socket, Iterator[Dict[str, Any]]]] = {}
        self.about: Dict[int, Dict[str, Any]] = {}
        self.token = token
        end = time.monotonic() + PATIENCE
        listener.settimeout(0.1)
        while len(self._links) < size:
            if time.monotonic() > end:
                missing = ", ".join(str(rank) for rank in range(size) if rank not in self._links)
                raise OSError(f"ranks {missing} did not reach rank 0 within {PATIENCE:g} s")
            with contextlib.suppress(socket.timeout):
                connection, _ = listener.accept()
                # A thread each: a stray connection that is silent must not delay the ranks.
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        """Add a rank's connection; close any other."""
        about: Dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            about = _greeting(connection)
        if about.get("token") != self.token:
            connection.close()
            return
        connection.settimeout(4 * PROGRAM_SECONDS)
        self.about[about["rank"]] = about
        self._links[about["rank"]] = (connection, _lines(connection))

    def ask(self, rank: int, do: str, **values: Any) -> Dict[str, Any]:
        """Have a rank do something; return what it answers, {"problem": ...} where it fails."""
        connection, lines = self._links[rank]
        try:
            _put(connection, {"do": do, **values})
            return next(lines)
        except (OSError, ValueError, StopIteration) as error:
            return {"problem": f"rank {rank} does not answer: {error}"}

    def direction(self, sender: int, receiver: int, plan: Dict[str, Any]) -> Dict[str, Any]:
        """Measure one direction once."""
        to = self.about[receiver]["to"]
        if not (self.about[sender]["rdma"] and self.about[receiver]["rdma"]):
            return self.ask(sender, "send", to=to, token=self.token, seconds=plan["seconds"], streams=plan["streams"])
        with ThreadPoolExecutor(1) as pool:
            port = self.about[receiver]["write_bw_port"]
            server = pool.submit(self.ask, receiver, "write_bw", port=port)
            time.sleep(0.5)
            answer = self.ask(sender, "write_bw", port=port, address=to[0])
            return server.result() if "problem" in server.result() else answer


class Results:
    """Every value that was measured, by what it is of; printed once all is done."""

    def __init__(self, cores: Optional[Dict[int, int]] = None) -> None:
        """Hold nothing yet; `cores` of each rank tell its kind of host."""
        self._cores = cores or {}
        self.rates: Dict[Tuple[Any, ...], List[float]] = {}
        self.more: Dict[Tuple[Any, ...], Dict[str, Any]] = {}

    def add(self, key: Tuple[Any, ...], answer: Dict[str, Any]) -> None:
        """Add an answer to a direction, or to a value of a host."""
        more = self.more.setdefault(key, {})
        more.update({name: value for name, value in answer.items() if name not in ("rate", "resent")})
        if "resent" in answer:
            more.setdefault("resent", []).append(answer["resent"])
        if "rate" in answer:
            self.rates.setdefault(key, []).append(answer["rate"])

    def slow(self) -> List[Tuple[Any, ...]]:
        """Return what looks slow, and is measured again alone: less than _SLOW of the fast quarter of its kind."""
        slow = []
        for kind in dict.fromkeys(map(self._kind, self.rates)):
            of_kind = {key: values for key, values in self.rates.items() if self._kind(key) == kind}
            usual = sorted(median(values) for values in of_kind.values())[(3 * len(of_kind)) // 4]
            slow += [key for key, values in of_kind.items() if max(values) < _SLOW * usual]
        return slow

    def _kind(self, key: Tuple[Any, ...]) -> Tuple[Any, ...]:
        """Return what a value is compared within: directions, or one thing of hosts with as many cores."""
        return (key[0], self._cores.get(key[1]) if len(key) == 2 else None)

    def control(self, key: Tuple[Any, ...], slow: List[Tuple[Any, ...]]) -> Tuple[Any, ...]:
        """Return one that is not slow to compare with, of other hosts if there is one."""
        usual = [each for each in self.rates if self._kind(each) == self._kind(key) and each not in slow]
        return min(usual, key=lambda each: len(set(each[1:]) & set(key[1:])))

    def show(self) -> None:
        """Print all of it."""
        for key, more in self.more.items():
            say(key=list(key), values=self.rates.get(key, []), **more)


def pairs(ranks: Ranks, plan: Dict[str, Any], results: Results) -> None:
    """Measure the pairs of each round side by side, both directions of a pair in turns."""

    def pair(ends: List[int]) -> None:
        first, second = ends
        results.add(("pair", first, second), ranks.ask(first, "ping", to=ranks.about[second]["to"], token=ranks.token))
        for _ in range(plan["repeats"]):
            for sender, receiver in ((first, second), (second, first)):
                key = ("network rate", sender, receiver)
                if "problem" not in results.more.get(key, {}):
                    results.add(key, ranks.direction(sender, receiver, plan))

    for number, pairs_of_round in enumerate(plan["rounds"], 1):
        say(step=f"round {number} of {len(plan['rounds'])} of pairs")
        with ThreadPoolExecutor(len(pairs_of_round)) as pool:
            list(pool.map(pair, pairs_of_round))


def alone(ranks: Ranks, plan: Dict[str, Any], results: Results) -> None:
    """Measure what looks slow again, in turns with a usual one of its kind and with nothing beside it."""
    slow = [key for key in results.slow() if len(key) == 3 or key[0] in _KIND_OF]
    end = time.monotonic() + _RECHECK_SECONDS
    for number, key in enumerate(slow, 1):
        say(step=f"{number} of {len(slow)} slow values once more, alone")
        control = results.control(key, slow)
        for _ in range(_AGAIN):
            for name, each in (("again", key), ("control", control)):
                if time.monotonic() > end:
                    return
                answer = (
                    ranks.direction(each[1], each[2], plan)
                    if len(each) == 3
                    else ranks.ask(each[1], "local", kind=_KIND_OF[each[0]], seconds=plan["seconds"])
                )
                rate = answer.get("rate", answer.get(each[0]))
                if rate is not None:
                    results.more[key].setdefault(name, []).append(rate)


_KIND_OF = {
    "CPU rate": "CPU", "CPU rate, one core": "core", "memory copy": "memory", "disk write": "disk", "disk read": "disk",
}  # fmt: skip


def _add_local(results: Results, rank: int, answer: Dict[str, Any]) -> None:
    for name, value in answer.items():
        values = {"problem": value} if name == "problem" else {"rate": value}
        results.add(("problem" if name == "problem" else name, rank), values)


def hosts(ranks: Ranks, plan: Dict[str, Any], results: Results) -> None:
    """Measure all hosts side by side."""
    steps = [("local", {"kind": kind, "seconds": plan["seconds"]}) for kind in plan["hosts"]]
    for do, values in [*(step for step in steps for _ in range(plan["repeats"])), ("programs", {})]:
        say(step=f"all hosts: {values.get('kind', 'GPUs')}")
        with ThreadPoolExecutor(len(ranks.about)) as pool:
            answers = pool.map(lambda rank, do=do, values=values: (rank, ranks.ask(rank, do, **values)), ranks.about)
        for rank, answer in answers:
            if do == "local" or "problem" in answer:
                _add_local(results, rank, answer)
            else:
                results.add(("programs", rank), {"programs": answer})
                for name, value in ((name, rate) for each in answer.values() if each for name, rate in each[2].items()):
                    results.add((name, rank), {"rate": value})


def lead(listener: socket.socket, size: int, token: str, plan: Dict[str, Any]) -> None:
    """Measure by a plan, as rank 0."""
    ranks = Ranks(listener, size, token)
    results = Results({rank: about["cores"] for rank, about in ranks.about.items()})
    for rank, about in sorted(ranks.about.items()):
        say(rank=rank, address=about["to"][0], by=about["by"], cores=about["cores"], rdma=about["rdma"])
    if plan["hosts"]:
        hosts(ranks, plan, results)
    if plan["rounds"]:
        pairs(ranks, plan, results)
    alone(ranks, plan, results)
    results.show()
    say(end=len(results.more))


def main(plan: Dict[str, Any]) -> None:
    """Run as one rank of the job."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    token, ports = os.environ[_VARIABLE], plan["ports"]
    if rank:
        work(rank, address, port, token, ports)
        return
    with socket.create_server(("", port), backlog=size + 8) as listener:
        threading.Thread(target=work, args=(0, address, port, token, ports), daemon=True).start()
        lead(listener, size, token, plan)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
