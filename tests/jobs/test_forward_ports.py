"""A forwarded port: connections here and there, calls that are lost and made again, the end of the job; the tunnel is real."""

import contextlib
import errno
import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from taco_launch.agent.rank import tunnel
from taco_launch.agent.rank.caller_stream import CallerStream
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.core.protocol.calls import Reply, reply_of
from taco_launch.core.protocol.calls.exec_command import Exited, Output
from taco_launch.core.protocol.calls.forwarding import STREAM_CHUNK
from taco_launch.core.protocol.frames import FrameReader
from taco_launch.jobs import forward_ports
from taco_launch.jobs.backend.dialogue import Dialogue
from taco_launch.jobs.forward_ports import Forwarder
from tests.conftest import eventually

pytestmark = pytest.mark.enable_socket  # they connect to this machine alone


class Connection:
    """A connection to the head, which can be lost; only this is a fake."""

    def __init__(self, port: int) -> None:
        stdin, self._to = os.pipe()
        self._from, out = os.pipe()
        self.lost = self._closed = False
        file = os.fdopen(stdin, "rb")

        def work() -> None:
            with file:
                tunnel.serve(CallerStream(file), None, port, out)
            os.close(out)

        threading.Thread(target=work, daemon=True).start()

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._to, view) :]

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._to)

    def replies(self) -> Iterator[Reply]:
        reader = FrameReader(reply_of, STREAM_CHUNK)
        while data := os.read(self._from, 1 << 16):
            for each in reader.feed(data):
                assert isinstance(each, Reply)
                yield each
        if self.lost:
            raise HostError("gpu1: the answer to forward broke off")
        yield Exited(code=0)


class Far:
    """A job with a server, and the connections that were made to its head."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.state = JobState.RUNNING
        self.made: list[Connection] = []
        self.refuses: TacoLaunchError | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        """Send back the digest of all that comes on a connection, and as many bytes as its first word says."""
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._one, args=(self.server.accept()[0],), daemon=True).start()

    @staticmethod
    def _one(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            connection.sendall(hashlib.sha256(data).hexdigest().encode() + bytes(int(data.split()[0])))

    @contextlib.contextmanager
    def call(self) -> Iterator[Dialogue]:
        if self.refuses is not None:
            raise self.refuses
        made = Connection(self.port)
        self.made.append(made)
        with Dialogue(made.replies(), made, "gpu1") as talk:
            yield talk

    def job(self) -> JobView:
        return JobView(JobSpec("j", ("true",), (Host("n1", "10.0.0.1"),)), JobRecord("1", self.state), "/f")


class Near:
    """A forwarder that runs in a thread."""

    def __init__(self, far: Far) -> None:
        self.far, self.said, self.ready = far, list[str](), threading.Event()
        self.server = forward_ports.listen(0)
        self.port = self.server.getsockname()[1]
        self.answer: object = None
        ready = self.ready
        forwarder = Forwarder(self.server, far.call, far.job, self.said.append, lambda _host: ready.set())

        def work() -> None:
            try:
                self.answer = forwarder.run()
            except TacoLaunchError as error:
                self.answer = error

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def ask(self, data: bytes, size: int = 0) -> bool:
        """Send data, and say whether the answer is right."""
        data = b"%d " % size + data
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:

            def send() -> None:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)

            threading.Thread(target=send).start()
            found = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        return found == hashlib.sha256(data).hexdigest().encode() + bytes(size)

    def cut(self) -> None:
        """Lose the connection to the head."""
        made = self.far.made[-1]
        made.lost = True
        made.close()


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> Iterator[Near]:
    monkeypatch.setattr(forward_ports, "_PAUSE_SECONDS", (0.02, 0.1))
    found = Near(Far())
    assert found.ready.wait(20)
    yield found
    found.far.state = JobState.SUCCEEDED
    for made in found.far.made:
        made.close()
    found.thread.join(20)
    found.far.server.close()
    found.server.close()


def test_many_connections_at_once_and_large_ones(near: Near) -> None:
    with ThreadPoolExecutor(40) as pool:
        assert all(pool.map(lambda number: near.ask(os.urandom(number * 997), number * 4001), range(80)))
    assert near.ask(os.urandom(5_000_000), 7_000_000)


def test_it_listens_on_the_loopback_alone(near: Near) -> None:
    assert near.server.getsockname()[0] == "127.0.0.1"


def test_a_connection_that_is_lost_is_made_again(near: Near) -> None:
    with socket.create_connection(("127.0.0.1", near.port), timeout=20) as open_one:
        open_one.sendall(b"0 ")
        assert near.ask(b"before")
        near.cut()
        with contextlib.suppress(ConnectionError):
            assert open_one.recv(10) == b""
    eventually(lambda: len(near.far.made) == 2)
    assert near.ask(b"after", 100_000)
    eventually(lambda: "connected again" in near.said)
    assert near.said[0].startswith("gpu1: the answer to forward broke off\nconnecting again")


def test_a_head_that_stays_away_for_a_while(near: Near) -> None:
    near.far.refuses = HostError("gpu1: no route to host")
    near.cut()
    eventually(lambda: near.said)
    near.far.refuses = None
    assert near.ask(b"x")
    assert len([words for words in near.said if "connecting again" in words]) == 1


def test_it_ends_with_the_job(near: Near) -> None:
    near.far.state = JobState.FAILED
    near.far.made[-1].close()
    near.thread.join(20)
    assert near.answer == near.far.job()
    with pytest.raises(TimeoutError), socket.create_connection(("127.0.0.1", near.port), timeout=0.2) as connection:
        connection.recv(1)  # nobody takes it any more


def test_a_job_that_is_tried_again_is_waited_for(near: Near) -> None:
    near.far.state = JobState.RESTARTING
    near.far.refuses = UsageError("job j: it is RESTARTING: nothing can run beside its ranks")
    near.far.made[-1].close()
    near.thread.join(0.3)
    assert near.thread.is_alive()
    near.far.refuses = None
    assert near.ask(b"again")


def test_a_port_that_refuses_is_told_once(near: Near) -> None:
    near.far.server.shutdown(socket.SHUT_RDWR)
    near.far.server.close()
    for _time in range(3):
        with (
            socket.create_connection(("127.0.0.1", near.port), timeout=20) as connection,
            contextlib.suppress(ConnectionError),
        ):
            assert connection.recv(10) == b""
    assert near.said == ["the port: Connection refused"]


def test_what_the_first_call_says_is_passed_on() -> None:
    far = Far()
    far.refuses = UsageError("job j: it has no rank 7")
    near = Near(far)
    near.thread.join(20)
    assert near.answer is far.refuses

    class Gone(Far):
        @contextlib.contextmanager
        def call(self) -> Iterator[Dialogue]:
            replies: list[Reply] = [
                Output(stream="err", data=b"taco-launch: rank 0 does not run any more\n"),
                Exited(code=125),
            ]
            with Dialogue(iter(replies), Connection(self.port), "gpu1") as talk:
                yield talk

    near = Near(Gone())
    near.thread.join(20)
    assert str(near.answer) == "job j: rank 0 does not run any more"


def test_a_port_that_is_in_use(tmp_path: Path) -> None:
    del tmp_path
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="is in use") as caught:
        forward_ports.listen(taken.getsockname()[1])
    assert "PORT:LOCAL" in str(caught.value.hint)


def test_a_port_that_is_not_for_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(_socket: object, _address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "socket", type("S", (socket.socket,), {"bind": bind}))
    with pytest.raises(UsageError, match="port 80 of this machine: Permission denied"):
        forward_ports.listen(80)
