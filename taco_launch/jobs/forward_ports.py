"""A port of a rank's host on this machine's loopback: many connections over one call, which is made again when it is lost."""

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.model.job_view import JobView
from taco_launch.core.protocol.calls.exec_command import Exited, Output
from taco_launch.core.protocol.calls.forwarding import (
    MOST_STREAMS,
    STREAM_CHUNK,
    STREAM_WINDOW,
    DropStream,
    ForwardReady,
    OpenStream,
    SendCredit,
    SendData,
    SendEnd,
    StreamClosed,
    StreamCredit,
    StreamData,
    StreamEnd,
)

if TYPE_CHECKING:
    from taco_launch.core.protocol.calls import Reply
    from taco_launch.jobs.backend.dialogue import Dialogue

LOOPBACK = "127.0.0.1"
_PAUSE_SECONDS = (0.5, 15.0)
_MOST_SAID = 1 << 12


def listen(port: int) -> socket.socket:
    """Return a socket that listens on this machine's loopback; port 0 takes any that is free.

    Raises:
        UsageError: the port is in use, or is not for this user.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((LOOPBACK, port))
        found.listen(64)
    except OSError as error:
        found.close()
        hint = "give another local port after a colon: PORT:LOCAL, or PORT:0 for any free port"
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of this machine is in use", hint) from None
        raise UsageError(f"port {port} of this machine: {error.strerror}", hint) from None
    return found


class Forwarder:
    """Connections to a listening socket, each a stream of a call that leads to the port."""

    def __init__(
        self,
        server: socket.socket,
        call: "Callable[[], AbstractContextManager[Dialogue]]",
        job: Callable[[], JobView],
        say: Callable[[str], None],
        ready: Callable[[str], None],
        is_over: Callable[[JobView], bool] = lambda job: job.record.state.is_terminal,
    ) -> None:
        """Take connections to `server`; `call` makes the call, `job` asks for the job, of which `is_over` tells the end.

        `ready` is called with the name of the port's host when connections can be made for the first time.
        """
        self._server = server
        self._call = call
        self._job = job
        self._say = say
        self._ready = ready
        self._is_over = is_over
        self._was_ready = False
        self._told = ""
        self._lost_at: float | None = None

    def run(self) -> JobView:
        """Serve until the job has ended; return it then. A call that is lost is made again for as long as it takes.

        Raises:
            TacoLaunchError: the first call failed, or a later one for another reason than a lost connection.
        """
        pause = _PAUSE_SECONDS[0]
        while True:
            begun = time.monotonic()
            try:
                job = self._once()
            except HostError as error:
                if not self._was_ready:
                    raise
                if self._lost_at is None:
                    self._say(f"{error.message}\nconnecting again; open connections were closed")
                self._lost_at = self._lost_at or time.monotonic()
            else:
                if self._is_over(job):
                    return job
            pause = _PAUSE_SECONDS[0] if time.monotonic() - begun > _PAUSE_SECONDS[1] else pause
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS[1])

    def _once(self) -> JobView:
        """Serve one call to its end; return the job as it stands then."""
        said = b""
        try:
            with self._call() as talk, _Pump(self._server, talk) as pump:
                for reply in talk.replies:
                    if isinstance(reply, ForwardReady):
                        self._begins(reply.host)
                        pump.start()
                    elif isinstance(reply, Output):
                        said = (said + reply.data)[-_MOST_SAID:]
                    elif not isinstance(reply, Exited):
                        self._tell(reply)
                        pump.take(reply)
        except TacoLaunchError as error:
            if isinstance(error, HostError) or not self._was_ready:
                raise
        job = self._job()
        if not self._was_ready:
            why = said.decode("utf-8", "replace").strip().removeprefix("taco-launch: ") or "the tunnel ended"
            raise HostError(f"job {job.spec.name}: {why}")
        return job

    def _tell(self, reply: "Reply") -> None:
        """Report why the far side refuses connections, once."""
        if isinstance(reply, StreamClosed) and reply.why and reply.why != self._told:
            self._told = reply.why
            self._say(f"the port: {reply.why}")

    def _begins(self, host: str) -> None:
        if not self._was_ready:
            self._ready(host)
        elif self._lost_at is not None:
            self._say("connected again")
        self._was_ready, self._lost_at = True, None


class _Local:
    """One connection to this machine's port."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self.socket = connection
        self.number = number
        self.waiting = bytearray()
        self.credit = STREAM_WINDOW
        self.ends = self.ended = False  # whether the far side has ended, and this one


class _Pump(contextlib.AbstractContextManager["_Pump"]):
    """A thread that moves what connections say; all else comes by `take`, from the thread that reads the replies."""

    def __init__(self, server: socket.socket, talk: "Dialogue") -> None:
        self._server = server
        self._talk = talk
        self._lock = threading.Lock()
        self._locals: dict[int, _Local] = {}
        self._next = 0
        self._woken, self._wake = socket.socketpair()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __exit__(self, *_words: object) -> None:
        """Close all connections; the listening socket stays."""
        self._over.set()
        self._nudge()
        if self._thread.is_alive():
            self._thread.join(1.0)
        with self._lock:
            for local in self._locals.values():
                local.socket.close()
        self._woken.close()
        self._wake.close()

    def start(self) -> None:
        """Begin to take connections."""
        self._server.setblocking(False)
        for each in (self._woken, self._wake):
            each.setblocking(False)
        self._thread.start()

    def take(self, reply: "Reply") -> None:
        """Do what the far side says."""
        with self._lock:
            local = self._locals.get(getattr(reply, "stream", -1))
            if local is None:
                return
            if isinstance(reply, StreamData):
                local.waiting += reply.data
                if len(local.waiting) > STREAM_WINDOW:  # more than was credited
                    self._forget(local)
            elif isinstance(reply, StreamCredit):
                local.credit += reply.count
            elif isinstance(reply, StreamEnd):
                local.ends = True
            elif isinstance(reply, StreamClosed):
                if reply.why or not local.waiting:
                    self._forget(local)
                else:
                    local.ends = local.ended = True
        self._nudge()

    def _nudge(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"x")

    def _work(self) -> None:
        while not self._over.is_set():
            with selectors.DefaultSelector() as selector:
                selector.register(self._woken, selectors.EVENT_READ)
                with self._lock:
                    if len(self._locals) < MOST_STREAMS:
                        selector.register(self._server, selectors.EVENT_READ)
                    for local in self._locals.values():
                        events = self._wanted(local)
                        if events:
                            selector.register(local.socket, events, local)
                ready = selector.select()
            for key, mask in ready:
                if self._over.is_set():
                    return
                if key.fileobj is self._woken:
                    with contextlib.suppress(OSError):
                        self._woken.recv(4096)
                elif key.fileobj is self._server:
                    self._accept()
                else:
                    self._move(key.data, mask)

    @staticmethod
    def _wanted(local: _Local) -> int:
        reads = not local.ended and local.credit > 0
        writes = bool(local.waiting) or (local.ends and not local.ended)
        return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)

    def _accept(self) -> None:
        try:
            connection, _address = self._server.accept()
        except OSError:  # it has gone already
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._next += 1
            self._locals[self._next] = _Local(connection, self._next)
        self._talk.send(OpenStream(stream=self._next))

    def _move(self, local: _Local, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write(local)
        if mask & selectors.EVENT_READ and local.number in self._locals:
            self._read(local)

    def _read(self, local: _Local) -> None:
        try:
            data = local.socket.recv(min(STREAM_CHUNK, local.credit))
        except BlockingIOError:
            return
        except OSError:
            self._drop(local)
            return
        if data:
            with self._lock:
                local.credit -= len(data)
            self._talk.send(SendData(stream=local.number, data=data))
        else:
            local.ended = True
            self._talk.send(SendEnd(stream=local.number))

    def _write(self, local: _Local) -> None:
        try:
            with self._lock:
                count = local.socket.send(local.waiting[:STREAM_CHUNK]) if local.waiting else 0
                del local.waiting[:count]
                over = local.ends and not local.waiting
                if over:
                    local.socket.shutdown(socket.SHUT_WR)
                    local.ends = False
                    if local.ended:
                        self._forget(local)
        except BlockingIOError:
            return
        except OSError:
            self._drop(local)
            return
        if count:
            self._talk.send(SendCredit(stream=local.number, count=count))

    def _drop(self, local: _Local) -> None:
        with self._lock:
            self._forget(local)
        self._talk.send(DropStream(stream=local.number))

    def _forget(self, local: _Local) -> None:
        local.socket.close()
        self._locals.pop(local.number, None)
