"""A forwarded port: connections here and there, a head that is away, a rank that moves, the end of the job."""

import contextlib
import errno
import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from taco_launch.core.errors import HostError, NoJobError, TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.core.model.job_view import BoardView, JobView
from taco_launch.core.model.jobs import HostRanks, JobRecord, JobSpec, JobState, TensorBoard
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.ssh.host_port import HostPort
from taco_launch.jobs import forward_ports
from taco_launch.jobs.forward_ports import FarPort, Forwarding, Listener, LocalPort, Place
from tests.conftest import eventually
from tests.support.raisers import raiser

pytestmark = pytest.mark.enable_socket  # they connect to this machine alone
N1, N2 = Host("n1", "10.0.0.1"), Host("n2", "10.0.0.2")
SHARES = (HostRanks("n1", 2), HostRanks("n2", 2))
JOB = JobView(JobSpec("j", ("true",), (N1, N2)), JobRecord("1", JobState.RUNNING, shares=SHARES), "/f")


def in_state(state: JobState) -> JobView:
    return replace(JOB, record=replace(JOB.record, state=state))


class Far:
    """A server beside a rank."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        """Send back the digest of all that comes on a connection, and as many bytes as its first word says."""
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._one, args=(self.server.accept()[0],), daemon=True).start()

    @staticmethod
    def _one(connection: socket.socket) -> None:
        with contextlib.suppress(OSError, IndexError), connection:  # IndexError: nothing came
            data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            connection.sendall(hashlib.sha256(data).hexdigest().encode() + bytes(int(data.split()[0])))

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


class Near:
    """A port that is forwarded by a thread; the job is a fake."""

    def __init__(self, far: Far) -> None:
        self.job: JobView | TacoLaunchError = JOB
        self.places = {JOB.record.shares: Place("n1", far.port)}
        self.reported = list[str]()
        self.answer: object = None
        self.port, self.host = 0, ""
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        forwarding = Forwarding(
            self._look,
            self._find,
            lambda place: LocalPort(place.host, place.port),
            lambda job: job.record.state.is_terminal,
            self.reported.append,
        )
        try:
            self.answer = forwarding.run((0,), self._begin)
        except TacoLaunchError as error:
            self.answer = error

    def _look(self) -> JobView:
        if isinstance(self.job, TacoLaunchError):
            raise self.job
        return self.job

    def _find(self, job: JobView) -> Place:
        forward_ports.rank_place(job, 0, 1)  # which refuses a job that does not run
        return self.places[job.record.shares]

    def _begin(self, port: int, host: str) -> None:
        self.port, self.host = port, host
        self.ready.set()

    def ask(self, data: bytes, size: int = 0) -> bool:
        """Send data, and return whether the answer is right."""
        data = b"%d " % size + data
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:

            def send() -> None:
                with contextlib.suppress(OSError):  # refused: the answer tells
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)

            threading.Thread(target=send).start()
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        return answer == hashlib.sha256(data).hexdigest().encode() + bytes(size)


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.end()


@pytest.fixture
def near(far: Far, monkeypatch: pytest.MonkeyPatch) -> Iterator[Near]:
    monkeypatch.setattr(forward_ports, "_LOOK_SECONDS", 0.02)
    made = Near(far)
    assert made.ready.wait(20)
    yield made
    made.job = in_state(JobState.SUCCEEDED)
    made.thread.join(20)
    assert not made.thread.is_alive()


def test_many_connections_at_once_and_large_ones(near: Near) -> None:
    assert near.host == "n1"
    with ThreadPoolExecutor(40) as pool:
        assert all(pool.map(lambda number: near.ask(os.urandom(number * 997), number * 4001), range(80)))
    assert near.ask(os.urandom(5_000_000), 7_000_000)


def test_it_listens_on_the_loopback_alone() -> None:
    with Listener(0, print) as listener:
        assert listener.server_address[0] == "127.0.0.1"


def test_a_head_that_stays_away_for_a_while(near: Near) -> None:
    near.job = HostError("gpu1: no route to host")
    eventually(lambda: near.reported == ["gpu1: no route to host"])
    assert near.ask(b"x"), "connections do not depend on the head's answers"
    near.job = JOB
    assert near.ask(b"x")
    assert near.thread.is_alive()


def test_it_ends_with_the_job(near: Near) -> None:
    near.job = in_state(JobState.FAILED)
    near.thread.join(20)
    assert near.answer == near.job
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", near.port), timeout=5)


def test_it_ends_where_the_job_is_deleted(near: Near) -> None:
    near.job = NoJobError("job j: not found")
    near.thread.join(20)
    assert near.answer is near.job


def test_a_job_that_is_tried_again_on_another_host(near: Near, far: Far) -> None:
    near.job = in_state(JobState.RESTARTING)
    eventually(lambda: near.reported)
    assert "requires a RUNNING job" in near.reported[0]
    far.end()
    other = Far()
    shares = (HostRanks("n2", 4),)
    near.places[shares] = Place("n2", other.port)
    near.job = replace(JOB, record=replace(JOB.record, shares=shares))

    def answers() -> bool:
        try:
            return near.ask(b"again")
        except ConnectionError:
            return False

    eventually(answers)
    other.end()


def test_a_port_that_refuses_is_reported_once_and_may_answer_later(near: Near, far: Far) -> None:
    far.end()
    for _time in range(3):
        with (
            socket.create_connection(("127.0.0.1", near.port), timeout=20) as connection,
            contextlib.suppress(ConnectionError),
        ):
            assert connection.recv(10) == b""
    (line,) = near.reported
    assert line.startswith(f"n1: nothing accepts connections on port {far.port} of its loopback")
    assert "\nhint: does the program listen there yet?" in line
    assert near.thread.is_alive()


def test_connections_have_a_limit(near: Near, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_ports, "MOST_CONNECTIONS", 2)
    reported = list[str]()
    with Listener(0, reported.append) as listener, contextlib.ExitStack() as stack:
        listener.far = LocalPort("n1", near.places[SHARES].port)
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        several = [
            stack.enter_context(socket.create_connection(("127.0.0.1", listener.port), timeout=20)) for _ in range(3)
        ]
        assert several[2].recv(1) == b""
        assert reported == ["the limit of 2 connections is reached"]
        listener.shutdown()


def test_where_a_rank_is() -> None:
    assert forward_ports.rank_place(JOB, 2, 80) == Place("n2", 80)
    with pytest.raises(UsageError, match="it has no rank 4") as caught:
        forward_ports.rank_place(JOB, 4, 80)
    assert caught.value.hint == "its ranks are 0 to 3"
    with pytest.raises(TacoLaunchError, match="it is QUEUED: forwarding a port requires a RUNNING job") as refused:
        forward_ports.rank_place(in_state(JobState.QUEUED), 0, 80)
    assert refused.value.exit_code == 1


def test_where_a_tensorboard_is() -> None:
    assert forward_ports.board_place(replace(JOB, tensorboard=BoardView(port=6007))) == Place("", 6007, "127.0.0.1")
    with pytest.raises(UsageError, match="job j: it has no TensorBoard"):
        forward_ports.board_place(JOB)
    with pytest.raises(UsageError, match="job j: it broke"):
        forward_ports.board_place(replace(JOB, tensorboard=BoardView(problem="it broke")))
    wanted = replace(JOB, spec=replace(JOB.spec, tensorboard=TensorBoard("runs", 600.0)))
    for state, starts, words in (
        (JobState.QUEUED, False, "does not answer yet; the job is QUEUED"),
        (JobState.RUNNING, True, "does not answer yet; the job is RUNNING"),
        (JobState.SUCCEEDED, False, "its TensorBoard has ended"),
    ):
        job = replace(wanted, record=replace(JOB.record, state=state))
        assert forward_ports.board_starts(job) == starts
        with pytest.raises(UsageError, match=words):
            forward_ports.board_place(job)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    here = Host("here", "10.0.0.3", connection="local")
    return Inventory("c", "n1", (N1, N2, here), container=Container("image"), source="hosts.yaml")


def test_which_host_a_place_is(cluster: Inventory) -> None:
    def reach(place: Place, inventory: Inventory | None = cluster) -> FarPort:
        return forward_ports.reach(inventory, Credentials(), place)

    assert isinstance(reach(Place("localhost", 80), None), LocalPort)
    assert isinstance(reach(Place("here", 80)), LocalPort)
    far = reach(Place("n2", 80))
    assert (type(far), far.name) == (HostPort, "n2")
    assert reach(Place("", 80)).name == "n1", "TensorBoard is on the head"
    with pytest.raises(HostError, match=r"gone: the job runs there, but the inventory hosts.yaml does not contain"):
        reach(Place("gone", 80))
    assert reach(Place("localhost", 80), replace(cluster, container=None)).name == "n1"


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_an_end_while_it_reports_that_it_is_ready(
    far: Far, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Ctrl-C or a closed stdout ends the forwarding without a traceback of its threads."""
    failures = list[threading.ExceptHookArgs]()
    monkeypatch.setattr(threading, "excepthook", failures.append)
    before = threading.active_count()
    forwarding = Forwarding(
        lambda: JOB,
        lambda _job: Place("n1", far.port),
        lambda place: LocalPort(place.host, place.port),
        lambda _job: True,
        print,
    )
    with pytest.raises(error):
        forwarding.run((0,), raiser(error()))
    eventually(lambda: threading.active_count() <= before)  # a thread of an earlier test may end meanwhile
    assert failures == []


def test_a_port_is_not_forwarded_to_itself() -> None:
    def forwarding(port: int) -> Forwarding:
        return Forwarding(
            lambda: JOB,
            lambda _job: Place("n1", port),
            lambda place: LocalPort(place.host, place.port),
            lambda _job: True,
            print,
        )

    with pytest.raises(UsageError, match=r"port 8888 of the job is on this machine already: connect to 127.0.0.1:8888"):
        forwarding(8888).run((8888,), lambda _port, _host: None)


def test_a_port_that_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(UsageError, match=rf"is in use by process {os.getpid()} \(.+ of .+\)") as caught:
            Listener(taken.getsockname()[1], print)
        assert "PORT:LOCAL" in str(caught.value.hint)


def test_tensorboard_is_reached_where_it_listens_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user of the host may listen on the same port of ::1, which localhost can be as well."""
    asked: list[object] = []
    monkeypatch.setattr(socket, "create_connection", asked.append)
    place = forward_ports.board_place(replace(JOB, tensorboard=BoardView(port=6007)))
    forward_ports.reach(None, Credentials(), place).connect()
    assert asked == [("127.0.0.1", 6007)]


def test_a_port_that_is_not_for_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        socket,
        "socket",
        type("S", (socket.socket,), {"bind": raiser(PermissionError(errno.EACCES, "Permission denied"))}),
    )
    with pytest.raises(UsageError, match="port 80 of this machine: Permission denied"):
        Listener(80, print)
