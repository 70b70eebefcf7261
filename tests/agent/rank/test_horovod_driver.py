"""The driver of an elastic Horovod job: its limits for the network, and the hosts that it offers to Horovod."""

import base64
import os
import pickle
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taco_launch.agent.rank.horovod_driver import Hosts, _careful
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.horovod_messages import EndWorker, OfferSlots, StartWorker, WithdrawSlots, WorkerEnded
from tests.conftest import eventually

pytestmark = pytest.mark.enable_socket  # hosts connect to this machine alone


class MakesFolder:
    """A pickle that makes a folder where it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def put(value: Any, *, scope: str = "worker_addresses") -> tuple[list[Any], list[Any]]:
    """Return what the driver registers and what the store keeps of a value that is put."""
    registered: list[Any] = []
    stored: list[Any] = []

    class Handler:
        do_PUT = None  # noqa: N815 - the name of http.server

        def _put_value(self, *words: Any) -> None:
            stored.append(words)

    driver = SimpleNamespace(register_worker_server=lambda *words: registered.append(words))
    kind = _careful(Handler, driver)
    kind()._put_value(scope, "10.0.0.1~0:1", base64.b64encode(pickle.dumps(value)))
    return registered, stored


def test_where_a_rank_listens_is_registered_and_its_key_is_not_shown() -> None:
    registered, stored = put(({"eth0": [("10.0.0.1", 4711)]}, b"key"))
    assert registered == [("10.0.0.1~0", 1, {"eth0": [("10.0.0.1", 4711)]}, b"key")]
    assert stored == []
    assert put("value", scope="global")[1]


def test_a_pickle_that_runs_something_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"mkdir is no plain value"):
        put(MakesFolder(tmp_path / "made"))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("size", "answers"), [(1 << 20, ["read"]), ((1 << 20) + 1, [413])])
def test_a_request_has_a_limit(size: int, answers: list[Any]) -> None:
    seen: list[Any] = []
    base = type("Handler", (), {"_put_value": None, "do_PUT": lambda _self: seen.append("read")})
    handler = _careful(base, None)()
    handler.headers, handler.send_error = {"Content-Length": str(size)}, seen.append
    handler.do_PUT()
    assert seen == answers


@pytest.mark.parametrize(
    "line",
    [
        {"slot": 0, "environment": {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1", "LD_PRELOAD": "x"}},
        {"slot": 0, "environment": {"HOROVOD_RANK": "0"}},
        {"slot": -1, "environment": {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}},
    ],
)
def test_what_a_host_does_not_start(line: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="slot is"):
        StartWorker.from_wire(line)


@pytest.mark.parametrize("line", [{"slot": 1 << 10, "exit_code": 0}, {"slot": 0, "exit_code": 256}])
def test_what_no_rank_ends_with(line: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="slot is"):
        WorkerEnded.from_wire(line)


def answer(sock: socket.socket, _where: Any) -> None:
    """Answer a rank's request, in place of Horovod's server."""
    sock.sendall(b"answered " + sock.recv(9))
    sock.close()


@pytest.fixture
def served() -> Iterator[tuple[Hosts, int]]:
    """The hosts of a job of two slots each, whose driver's own is 127.0.0.1."""
    hosts = Hosts("127.0.0.1", 2, 4)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=hosts.accept, args=(listener, "job", answer), daemon=True).start()
        yield hosts, listener.getsockname()[1]


def connected(port: int, address: str, *, job: str = "job", slots: int = 2) -> JsonConnection:
    line = JsonConnection(socket.create_connection(("127.0.0.1", port)))
    line.send(OfferSlots(job=job, address=address, slots=slots))
    return line


def are(hosts: Hosts, *names: str) -> None:
    eventually(lambda: [*hosts.find_available_hosts_and_slots()] == [*names], what=f"the hosts to be {names}")


def test_hosts_come_and_go(served: tuple[Hosts, int]) -> None:
    hosts, port = served
    other = connected(port, "10.0.0.2")
    eventually(lambda: hosts._available, what="the other host to be there")
    assert hosts.find_available_hosts_and_slots() == {}  # rank 0 is the first host's
    first = connected(port, "127.0.0.1")
    are(hosts, "127.0.0.1~1")
    are(hosts, "10.0.0.2~0", "127.0.0.1~1")
    other.send(OfferSlots(job="job", address="10.0.0.2", slots=2))  # its ranks have failed
    are(hosts, "127.0.0.1~1", "10.0.0.2~2")
    other.send(WithdrawSlots())
    are(hosts, "127.0.0.1~1")
    first.close()
    are(hosts)


@pytest.mark.parametrize(("job", "slots"), [("another", 2), ("job", 3)])
def test_others_are_refused(served: tuple[Hosts, int], job: str, slots: int) -> None:
    hosts, port = served
    line = connected(port, "127.0.0.1", job=job, slots=slots)
    eventually(lambda: line.receive() is None, what="the connection to be closed")
    assert hosts.find_available_hosts_and_slots() == {}


def test_ranks_meet_at_the_same_port(served: tuple[Hosts, int]) -> None:
    with socket.create_connection(("127.0.0.1", served[1])) as rank:
        rank.sendall(b"GET /x/y ")
        assert rank.recv(64) == b"answered GET /x/y "


def received(line: JsonConnection) -> Any:
    messages: list[Any] = []

    def comes() -> bool:
        messages.extend(line.receive() or ())
        return bool(messages)

    eventually(comes, what="a message")
    return messages[0]


def test_a_rank_runs_until_it_ends_or_horovod_ends_it(
    served: tuple[Hosts, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, port = served
    environment = {"HOROVOD_RANK": "5", "HOROVOD_SIZE": "6"}
    made = SimpleNamespace(create_slot_env_vars=lambda _slot: environment)
    monkeypatch.setitem(sys.modules, "horovod.runner.gloo_run", made)
    line = connected(port, "127.0.0.1")
    are(hosts, "127.0.0.1~0")
    slot = SimpleNamespace(hostname="127.0.0.1~0", local_rank=1)
    ends: list[Any] = []
    enough = threading.Event()
    for code in (3, 0):
        rank = threading.Thread(target=lambda: ends.append(hosts.run_worker(slot, [enough])[0]))
        rank.start()
        assert received(line) == StartWorker(slot=1, environment=environment)
        if not code:
            enough.set()
            assert received(line) == EndWorker(slot=1)
            line.close()
        else:
            line.send(WorkerEnded(slot=1, exit_code=code))
        rank.join(10)
        hosts._offers["127.0.0.1~0"].ends.clear()
    assert ends == [3, 137]
