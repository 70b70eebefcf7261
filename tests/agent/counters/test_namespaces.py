"""Connections between two hosts made of network namespaces: which interface carries them, as a guard on one of them sees it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from taco_launch.agent.counters import sockets
from taco_launch.core.model.run.observed import InterfaceTraffic, SeenRank, SeenRun
from taco_launch.core.model.run.planned import PlannedHost, RunPlan
from taco_launch.core.model.run.verified import Truth
from taco_launch.core.verify.compare import verify
from tests.support.patience import patience

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.enable_socket,
    pytest.mark.skipif(os.geteuid() != 0, reason="cannot: network namespaces take root"),
]

_SERVER = """
import socket, sys
listens = [socket.create_server((address, 5000)) for address in ("10.77.0.2", "10.78.0.2")]
print("ready", flush=True)
found = [each.accept()[0] for each in listens]
found[int(sys.argv[1])].sendall(bytes(200_000))
input()
"""
_CLIENT = """
import socket, sys
found = [socket.create_connection((address, 5000)) for address in ("10.77.0.2", "10.78.0.2")]
left = 200_000
while left:
    left -= len(found[int(sys.argv[1])].recv(left))
print("ready", flush=True)
input()
"""
_LOOK = """
import json, sys
from taco_launch.agent.counters import sockets
found = sockets.of_processes([int(sys.argv[1])])
print(json.dumps({"between": [(one.interface, one.connections, one.bytes) for one in found.between], "unknown": found.unknown}))
"""


def within(host: int, command: Sequence[str]) -> list[str]:
    return ["nsenter", "--net", "--target", str(host), *command]


def started(stack: ExitStack, command: Sequence[str]) -> "subprocess.Popen[str]":
    process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def hosts() -> Iterator[tuple[int, int]]:
    """Make two hosts with eth0 and docker0 to each other, and yield a process of each."""
    with ExitStack() as stack:
        hold = ["unshare", "--net", sys.executable, "-c", "print('ready', flush=True); input()"]
        one, other = (started(stack, hold).pid for _ in range(2))
        for name, network in (("eth0", "10.77.0"), ("docker0", "10.78.0")):
            link = [
                "ip",
                "link",
                "add",
                name,
                "netns",
                str(one),
                "type",
                "veth",
                "peer",
                "name",
                name,
                "netns",
                str(other),
            ]
            subprocess.run(link, check=True)
            for number, host in enumerate((one, other), 1):
                subprocess.run(within(host, ["ip", "addr", "add", f"{network}.{number}/24", "dev", name]), check=True)
                subprocess.run(within(host, ["ip", "link", "set", name, "up"]), check=True)
        yield one, other


def looked_at(host: int, pid: int) -> tuple[InterfaceTraffic, ...]:
    """Return the connections between hosts of a process, as the agent on its host sees them."""
    look = within(host, [sys.executable, "-c", _LOOK, str(pid)])
    done = subprocess.run(look, capture_output=True, text=True, check=True, timeout=patience(30))
    told = json.loads(done.stdout)
    assert told["unknown"] == ""
    return tuple(InterfaceTraffic(*one) for one in told["between"])


@pytest.mark.parametrize("carrier", ["eth0", "docker0"])
def test_which_interface_carries_the_data(hosts: tuple[int, int], carrier: str) -> None:
    number = str(("eth0", "docker0").index(carrier))
    with ExitStack() as stack:
        started(stack, within(hosts[1], [sys.executable, "-c", _SERVER, number]))
        client = started(stack, within(hosts[0], [sys.executable, "-c", _CLIENT, number]))
        between = looked_at(hosts[0], client.pid)
        assert [(one.interface, one.connections) for one in between] == [("docker0", 1), ("eth0", 1)]
        assert [one.interface for one in between if (one.bytes or 0) >= 200_000] == [carrier]
        # From outside, the kernel's counters are out of reach: what is not known is not told as nothing.
        outside = sockets.of_processes([client.pid])
        assert [(one.interface, one.connections, one.bytes) for one in outside.between] == [("", 2, None)]
        assert outside.between[0].peers == ("10.77.0.2", "10.78.0.2")
        assert outside.bytes is None
    plan = RunPlan(tuple(PlannedHost(f"gpu{rank}", (rank,), interface="eth0") for rank in (0, 1)))
    run = SeenRun(ranks=tuple(SeenRank(rank, f"gpu{rank}", world_size=2, sockets=between) for rank in (0, 1)))
    found = verify(plan, run)
    if carrier == "eth0":
        assert found.status is Truth.TRUE, found.why
    else:
        assert found.mismatch is not None
        assert (found.mismatch.kind, found.mismatch.host, found.mismatch.rank) == ("interface", "gpu0", 0)
        assert found.mismatch.seen.startswith("docker0 (200")
