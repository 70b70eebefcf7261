#!/usr/bin/env python3
"""Measures what one job's supervisor costs as its hosts grow, without the hosts.

A program in the place of ssh hands the supervisor's socket to this process, which answers as the guards of all hosts would:
after --connect seconds, with no work for this machine. The agent, its supervisor, the head's guard, the events and the logs
are the real ones.
"""

from __future__ import annotations

import argparse
import array
import heapq
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pairing
import verdicts

_ROOT = Path(__file__).resolve().parents[2]
# Connects to this process, hands it stdin, and ends with it.
_SSH = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int main(int count, char **words) {
  int server = socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un address = {AF_UNIX};
  strncpy(address.sun_path, getenv("MODEL_GUARDS"), sizeof address.sun_path - 1);
  if (connect(server, (void *)&address, sizeof address)) return 255;
  struct iovec host = {words[count - 2], strlen(words[count - 2])};
  char space[CMSG_SPACE(sizeof(int))] = {0};
  struct msghdr message = {.msg_iov = &host, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  *(int *)CMSG_DATA(header) = 0;
  sendmsg(server, &message, 0);
  close(0);
  close(1);
  char end;
  return read(server, &end, 1) > 0;
}
"""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Seconds that a guard takes for an order, beyond the way there.
_PROBE, _LEASE, _START, _SHORT = 0.15, 0.003, 0.1, 0.01
# Of the largest job: seconds until RUNNING, percent of a core while nothing happens, open files for each host; and with
# which exponent the CPU time until RUNNING grows from the smallest job to the largest.
_BAR_SECONDS, _BAR_IDLE, _BAR_FILES, _BAR_EXPONENT = 6.0, 3.0, 3.0, 1.05
_IDLE_AFTER_SECONDS = 2.0


class _Guards(threading.Thread):
    """The guards of all hosts but the head."""

    def __init__(self, path: str, connect: float) -> None:
        super().__init__(daemon=True)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(path)
        self._server.listen(4096)
        self._connect = connect
        self._poll = select.epoll()
        self._poll.register(self._server, select.EPOLLIN)
        self._hosts: dict[int, str] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._callers: dict[int, socket.socket] = {}
        self._rests: dict[int, bytes] = {}
        self._due: list[tuple[float, int, int, bytes]] = []
        self._sent = 0

    def run(self) -> None:
        """Answer until the process ends."""
        while True:
            pause = max(0.0, self._due[0][0] - time.monotonic()) if self._due else 1.0
            for descriptor, _event in self._poll.poll(pause):
                if descriptor == self._server.fileno():
                    self._accept()
                else:
                    self._read(descriptor)
            while self._due and self._due[0][0] <= time.monotonic():
                _at, _number, descriptor, line = heapq.heappop(self._due)
                if descriptor in self._sockets:
                    try:
                        self._sockets[descriptor].sendall(line)
                    except OSError:
                        self._drop(descriptor)

    def _say(self, descriptor: int, delay: float, op: str, **fields: Any) -> None:
        self._sent += 1
        line = json.dumps({"op": op, **fields}).encode() + b"\n"
        heapq.heappush(self._due, (time.monotonic() + delay, self._sent, descriptor, line))

    def _accept(self) -> None:
        caller, _address = self._server.accept()
        name, ancillary, _flags, _sender = caller.recvmsg(256, socket.CMSG_LEN(4))
        received = array.array("i")
        for _level, _kind, data in ancillary:
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
        try:
            guard = socket.socket(fileno=received[0])
        except OSError:  # an ssh that asks something else: it gets no answer
            os.close(received[0])
            caller.close()
            return
        descriptor = guard.fileno()
        self._sockets[descriptor], self._callers[descriptor] = guard, caller
        self._hosts[descriptor], self._rests[descriptor] = name.decode(), b""
        self._poll.register(descriptor, select.EPOLLIN)
        self._say(descriptor, self._connect, "attached")

    def _drop(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._sockets.pop(descriptor).close()
        self._callers.pop(descriptor).close()

    def _read(self, descriptor: int) -> None:
        try:
            data = self._sockets[descriptor].recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self._drop(descriptor)
            return
        *lines, self._rests[descriptor] = (self._rests[descriptor] + data).split(b"\n")
        for line in lines:
            if descriptor in self._sockets:
                self._obey(descriptor, json.loads(line))

    def _obey(self, descriptor: int, order: Mapping[str, Any]) -> None:
        from taco_launch.core.model.codec import to_json  # noqa: PLC0415 - nothing is imported for --help
        from taco_launch.core.model.slots import Occupancy, SlotState  # noqa: PLC0415

        op, host = order["op"], self._hosts[descriptor]
        rank = int(host[1:]) - 2
        if op == "supervise":
            occupancy = to_json(Occupancy(host, (SlotState("slot-0"),)))
            size = {"slots": 1, "cpus": 64, "cores": 32}
            self._say(descriptor, 0.0, "facts", host=size, occupancy=occupancy, taken=[], boot="b")
        elif op == "probe":
            self._say(descriptor, _PROBE, "probed", text="")
        elif op == "lease":
            port = None if order["rendezvous"] is None else 29500
            self._say(descriptor, _LEASE, "leased", slots=["slot-0"], port=port)
        elif op == "reach":
            self._say(descriptor, _LEASE, "reached", why="")
        elif op == "launch":
            self._say(descriptor, _START, "started", rank=rank, roots=[[4711, 815], [4710, 815]])
        elif op == "terminate":
            self._say(descriptor, _SHORT, "exit", rank=rank, exit_code=143, size=0)
        elif op == "release":
            self._say(descriptor, _SHORT, "done", code=0)
        elif op == "beat":
            self._say(descriptor, 0.0, "beat")
        elif op == "end":
            self._say(descriptor, _SHORT, "ended", left=[], sizes={str(rank): 0})
        elif op == "close":
            self._drop(descriptor)


@dataclass
class _Cost:
    """A job over `hosts`: seconds until each event with the supervisor's CPU seconds then, and its most open files and memory."""

    hosts: int
    steps: dict[str, tuple[float, float]] = field(default_factory=dict)
    files: int = 0
    mebibytes: float = 0.0
    # percent of a core, while every rank runs and prints nothing
    idle: float = 0.0
    stop_seconds: float = 0.0


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _asked(arguments)
    sys.path.insert(0, str(_ROOT))
    costs, missing = [], ""
    for count in sorted(asked.hosts):
        verdicts.tell(f"{count} hosts")
        try:
            costs.append(_job(count, asked))
        except pairing.FailedError as error:
            missing = f"{count} hosts: {error}"
            break
    report = verdicts.Report(
        "model_scale",
        1,
        [_rows(costs)],
        list(_bars(costs, missing)),
        {"costs": [vars(each) for each in costs]},
        "one job each",
    )
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.plain_parser(
        "One job's supervisor over many hosts that this program answers for.",
        "examples:\n  .venv/bin/python scripts/benchmarks/model_scale.py\n"
        "  .venv/bin/python scripts/benchmarks/model_scale.py 16 256",
    )
    parser.add_argument(
        "hosts", type=verdicts.count, nargs="*", default=[64, 256, 1000], metavar="N", help="(default: 64 256 1000)"
    )
    parser.add_argument("--connect", type=float, default=0.25, metavar="S", help="of an ssh to a host (default: 0.25)")
    parser.add_argument("--idle", type=float, default=10.0, metavar="S", help="that are watched (default: 10)")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="most seconds of a job (default: 300)"
    )
    return parser.parse_args(arguments)


def _bars(costs: list[_Cost], missing: str) -> list[verdicts.Verdict]:
    last = costs[-1] if costs else _Cost(0)
    values: dict[str, tuple[float, float, str]] = {}
    if costs and not missing:
        running, cpu = last.steps["running"]
        values = {
            "until every rank runs": (running, _BAR_SECONDS, "s"),
            "the supervisor while nothing happens": (last.idle, _BAR_IDLE, "% of a core"),
            "open files": (last.files / last.hosts, _BAR_FILES, "for each host"),
        }
        if len(costs) > 1:
            import math  # noqa: PLC0415 - of one figure

            first = costs[0]
            exponent = math.log(cpu / max(first.steps["running"][1], 1 / _TICKS)) / math.log(last.hosts / first.hosts)
            values[f"growth of CPU time from {first.hosts} hosts"] = (exponent, _BAR_EXPONENT, "as exponent")
    if not values:
        return [verdicts.Verdict("a job over many hosts", None, _BAR_SECONDS, "s", missing=missing)]
    return [
        verdicts.Verdict(f"{last.hosts} hosts: {name}", pairing.spread([value]), bar, unit)
        for name, (value, bar, unit) in values.items()
    ]


def _rows(costs: list[_Cost]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("hosts", "placed s", "running s", "CPU s", "idle %", "open files", "MiB", "stop s"),
    ]
    for each in costs:
        running, cpu = each.steps["running"]
        times = (each.steps["placed"][0], running, cpu, each.idle)
        shown = (
            *(f"{value:.2f}" for value in times),
            str(each.files),
            f"{each.mebibytes:.0f}",
            f"{each.stop_seconds:.2f}",
        )
        rows.append((str(each.hosts), *shown))
    return rows


def _job(count: int, asked: argparse.Namespace) -> _Cost:
    """Run a job over hosts beside the head.

    Raises:
        FailedError: it did not run, or did not end.
    """
    from tests.support.agents import build  # noqa: PLC0415 - the tests' own agent

    with tempfile.TemporaryDirectory(
        prefix="tl-", dir="/tmp", ignore_cleanup_errors=True
    ) as scratch:  # a socket's path is short
        state = Path(scratch, "s")
        (state / "agent").mkdir(parents=True, mode=0o700)
        state.chmod(0o700)
        agent = build(state / "agent")
        (Path(scratch) / "leases").mkdir()
        (Path(scratch) / "ssh.c").write_text(_SSH)
        subprocess.run(
            [pairing.find("cc", os.environ) or "cc", "-O2", "-o", f"{scratch}/ssh", f"{scratch}/ssh.c"], check=True
        )
        _Guards(f"{scratch}/guards", asked.connect).start()
        environ = {
            "PATH": f"{scratch}:{os.environ['PATH']}",
            "HOME": scratch,
            "TACO_LAUNCH_STATE": str(state),
            "TACO_LAUNCH_LEASES": f"{scratch}/leases",
            "MODEL_GUARDS": f"{scratch}/guards",
        }
        begin = time.time()
        _call(
            agent,
            environ,
            "submit",
            {
                "follow": False,
                "spec": _spec(count),
                "caller": {"environment": environ, "umask": 0o022, "inherit": True},
            },
        )
        return _watched(_Cost(count), state, agent, environ, begin, asked)


def _spec(count: int) -> Any:
    from taco_launch.core.model.codec import to_json  # noqa: PLC0415 - nothing is imported for --help
    from taco_launch.core.model.host.hosts import Host, Network  # noqa: PLC0415
    from taco_launch.core.model.jobs import JobSpec, Policy  # noqa: PLC0415
    from taco_launch.hosts.inventory import profile  # noqa: PLC0415

    hosts = tuple(Host(f"n{number}", f"10.0.{number >> 8}.{number & 255}", slots=1) for number in range(1, count + 2))
    spec = JobSpec("j", ("true",), hosts[1:], head="n1", launcher="env", network=Network(), policy=Policy(grace=1.0))
    return to_json(replace(spec, profile=profile.load("auto", "", {})))


def _call(agent: Path, environ: Mapping[str, str], op: str, request: Mapping[str, Any]) -> None:
    stdin = f"{json.dumps({'protocol': 1})}\n{json.dumps(request)}\n"
    argv = (sys.executable, "-I", "-S", str(agent), op)
    done = subprocess.run(argv, input=stdin, env=dict(environ), capture_output=True, text=True, check=False)
    if '"error"' in done.stdout or done.returncode:
        raise pairing.FailedError(f"{op}: {done.stdout[-300:]}{done.stderr[-300:]}")


def _watched(
    cost: _Cost, state: Path, agent: Path, environ: Mapping[str, str], begin: float, asked: argparse.Namespace
) -> _Cost:
    """Note the events of a job, stop it when it was idle for a while, and return what it cost until its end.

    Raises:
        FailedError: it waits, or ends by itself, or not in time.
    """
    events, process, stopped = state / "jobs/j/events.jsonl", 0, 0.0
    idle_from = idle_cpu = 0.0
    while time.time() < begin + asked.timeout:
        process = process or _supervisor(state)
        cpu = _usage(process, cost) if process else 0.0
        for event in map(json.loads, events.read_text().splitlines() if events.exists() else ()):
            cost.steps.setdefault(event["kind"], (event["time"] - begin, cpu))
            if event["kind"] == "waiting" or (event["kind"] == "ended" and not stopped):
                raise pairing.FailedError(str(event)[:600])
        if "ended" in cost.steps:
            cost.stop_seconds = begin + cost.steps["ended"][0] - stopped
            return cost
        now = time.time()
        if "running" in cost.steps and not stopped and now > begin + cost.steps["running"][0] + _IDLE_AFTER_SECONDS:
            idle_from, idle_cpu = idle_from or now, idle_cpu or cpu
            if now > idle_from + asked.idle:
                cost.idle = 100 * (cpu - idle_cpu) / (now - idle_from)
                stopped = now
                _call(agent, environ, "stop", {"names": ["j"], "by": "the benchmark", "signal": 15, "grace": 5})
        time.sleep(0.05)
    raise pairing.FailedError(f"not at its end after {asked.timeout:g} s: {', '.join(cost.steps)}")


def _supervisor(state: Path) -> int:
    """Return the process of a job's supervisor, 0 before it has started."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"run" in words and any(word.startswith(f"{state}/agent/".encode()) for word in words):
            return int(process.name)
    return 0


def _usage(process: int, cost: _Cost) -> float:
    """Note a process's open files and memory, and return its CPU seconds."""
    folder = Path(f"/proc/{process}")
    try:
        cost.files = max(cost.files, len(os.listdir(folder / "fd")))
        cost.mebibytes = max(cost.mebibytes, int((folder / "statm").read_text().split()[1]) * _PAGE / (1 << 20))
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:13])) / _TICKS


if __name__ == "__main__":
    verdicts.start(main)
