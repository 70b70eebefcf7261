"""A port of a job's host on this machine's loopback: it follows the rank to another host, until the job is over."""

import contextlib
import errno
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from taco_launch.agent.host import ports
from taco_launch.core.errors import HostError, NoJobError, TacoLaunchError, UsageError
from taco_launch.core.model import plans
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobState
from taco_launch.hosts.remote.credentials import Credentials

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 256
_LOOK_SECONDS = 5.0
_CHUNK = 1 << 16


class Place(NamedTuple):
    """A port of a host by its name; the head is named ""."""

    host: str
    port: int
    address: str = "localhost"  # 127.0.0.1 or ::1, whichever a server listens on
    program: str = ""  # of the head, which stands for ssh to the host; "" for ssh itself


class FarPort(Protocol):
    """A port that connections lead to."""

    name: str

    def open(self) -> object:
        """Prepare for connections; raise HostError where its host cannot be reached."""

    def connect(self) -> Any:
        """Return a new connection, a socket or what acts as one; raise HostError where that is refused."""

    def close(self) -> None:
        """Close all connections."""


class LocalPort:
    """A port of this machine."""

    def __init__(self, name: str, port: int, address: str = "localhost") -> None:
        """Open nothing."""
        self.name, self._port, self._address = name, port, address

    def open(self) -> None:
        """Do nothing: this machine is here."""

    def connect(self) -> socket.socket:
        """Connect to the port.

        Raises:
            HostError: nothing accepts connections there.
        """
        try:
            return socket.create_connection((self._address, self._port))
        except OSError as error:
            raise HostError(
                f"{self.name}: nothing accepts connections on port {self._port} of its loopback: {error.strerror}",
                hint="does the program listen there yet?",
            ) from None

    def close(self) -> None:
        """Do nothing: each connection is closed by its thread."""


class Listener(socketserver.ThreadingTCPServer):
    """A port of this machine's loopback, whose connections lead to another port."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64
    far: FarPort

    def __init__(self, port: int, say: Callable[[str], None]) -> None:
        """Listen; port 0 takes any that is free. `say` is given each failure once.

        Raises:
            UsageError: the port is in use, or is not for this user.
        """
        self._say = say
        self._said = ""
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        try:
            super().__init__((LOOPBACK, port), _Connection)
        except OSError as error:
            hint = "give another local port after a colon: PORT:LOCAL, or PORT:0 for any free port"
            if error.errno == errno.EADDRINUSE:
                by = f" by {who}" if (who := ports.listener(port)) else ""
                raise UsageError(f"port {port} of this machine is in use{by}", hint) from None
            raise UsageError(f"port {port} of this machine: {error.strerror}", hint) from None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    def report(self, error: TacoLaunchError) -> None:
        """Report a failure, unless it is the same as the last."""
        if error.message != self._said:
            self._said = error.message
            self._say(error.message + (f"\nhint: {error.hint}" if error.hint else ""))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection by a thread of its own, unless there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.report(TacoLaunchError(f"the limit of {MOST_CONNECTIONS} connections is reached"))
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _Connection(socketserver.BaseRequestHandler):
    server: Listener

    def handle(self) -> None:
        try:
            far = self.server.far.connect()
        except HostError as error:
            self.server.report(error)
            return
        with contextlib.closing(far):
            _relay(self.request, far)


def _relay(near: socket.socket, far: Any) -> None:
    """Copy what either side sends to the other, until both have ended or one is lost."""

    def copy(source: Any, target: Any) -> None:
        try:
            while data := source.recv(_CHUNK):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except (OSError, EOFError):
            for end in (near, far):
                with contextlib.suppress(OSError, EOFError):  # it is closed already
                    end.shutdown(socket.SHUT_RDWR)

    back = threading.Thread(target=copy, args=(far, near), daemon=True)
    back.start()
    copy(near, far)
    back.join()


def rank_place(job: JobView, rank: int, port: int) -> Place:
    """Return where a port of a rank is.

    Raises:
        UsageError: the job has no such rank.
        TacoLaunchError: the job does not run.
    """
    name, state = job.spec.name, job.record.state
    if state is not JobState.RUNNING:
        raise TacoLaunchError(f"job {name}: it is {state.value}: forwarding a port requires a RUNNING job")
    try:
        host = plans.host_of(job.record.shares, rank)
    except LookupError as error:
        raise UsageError(f"job {name}: it has no rank {rank}", hint=str(error)) from None
    return Place(host, port, program="" if job.spec.slurm is None else f"{job.folder}/bin/ssh")


def board_starts(job: JobView) -> bool:
    """Return whether a job has started whose TensorBoard does not answer yet."""
    state = job.record.state
    return job.spec.tensorboard is not None and job.tensorboard is None and not state.waits and not state.is_terminal


def board_place(job: JobView) -> Place:
    """Return where the TensorBoard of a job answers.

    Raises:
        UsageError: it does not run.
    """
    board = job.tensorboard
    if board is None or board.port is None:
        why, hint = "it has no TensorBoard", "to have TensorBoard, start a job with --tensorboard"
        if board is not None:
            why = board.problem
        elif job.spec.tensorboard is not None and job.record.state.is_terminal:
            why, hint = "its TensorBoard has ended", "keep it longer after a job's end: --tensorboard-grace 1h"
        elif job.spec.tensorboard is not None:
            why = f"its TensorBoard does not answer yet; the job is {job.record.state.value}"
            hint = f"try again when it runs: taco-launch get {job.spec.name}"
        raise UsageError(f"job {job.spec.name}: {why}", hint=hint)
    return Place("", board.port, LOOPBACK)  # TensorBoard listens there: on ::1 anyone may


def reach(inventory: Inventory | None, access: Credentials, place: Place) -> FarPort:
    """Return the port at a place, with the login that the inventory has for its host; None is this machine alone.

    Raises:
        HostError: the host is not in the inventory, or as HostPort and StepPort.
    """
    if inventory is None:
        return LocalPort(place.host, place.port, place.address)
    if place.program:
        from taco_launch.hosts.ssh.step_port import StepPort  # noqa: PLC0415 - only jobs of Slurm

        return StepPort(inventory, place.host, place.port, place.program, access)
    # Without a container jobs run on the head alone, which a job of the head's own command line calls localhost.
    names = (place.host, "" if inventory.container is not None else inventory.head) if place.host else (inventory.head,)
    host = next((host for name in names for host in inventory.hosts if host.name == name), None)
    if host is None:
        raise HostError(
            f"{place.host}: the job runs there, but the inventory {inventory.source} does not contain this host",
            hint="add the host to the inventory",
        )
    if host.connection == "local":
        return LocalPort(host.name, place.port, place.address)
    from taco_launch.hosts.ssh.host_port import HostPort  # noqa: PLC0415 - a job of this machine needs no SSH

    return HostPort(inventory, host, place.port, access, place.address)


class Forwarding:
    """A port of a job, forwarded from this machine's loopback."""

    def __init__(
        self,
        look: Callable[[], JobView],
        find: Callable[[JobView], Place],
        reach: Callable[[Place], FarPort],
        is_over: Callable[[JobView], bool],
        say: Callable[[str], None],
    ) -> None:
        """Forward to the place that `find` returns of the job that `look` returns, until that is over."""
        self._look, self._find, self._reach, self._is_over, self._say = look, find, reach, is_over, say
        self._place: Place | None = None

    def run(self, ports: tuple[int, ...], ready: Callable[[int, str], None]) -> JobView:
        """Serve until the job is over; return the job then.

        Listens on the first of `ports` that is free; `ready` is called with it and with the name of the port's host.

        Raises:
            TacoLaunchError: there is no place yet, its host cannot be reached, no port is free, or the job was deleted.
        """
        place = self._find(self._look())
        far = self._reach(place)
        self._check_loop(far, place, ports[-1])
        with self._listen(ports) as listener:
            far.open()
            self._place, listener.far = place, far
            threading.Thread(target=listener.serve_forever, daemon=True).start()
            try:
                ready(listener.port, far.name)
                return self._keep(listener)
            finally:
                listener.shutdown()
                listener.far.close()

    def _listen(self, ports: tuple[int, ...]) -> Listener:
        for port in ports[:-1]:
            with contextlib.suppress(UsageError):
                return Listener(port, self._say)
        return Listener(ports[-1], self._say)

    def _keep(self, listener: Listener) -> JobView:
        """Look at the job from time to time; where its place has changed, new connections lead there."""
        while True:
            time.sleep(_LOOK_SECONDS)
            try:
                job = self._look()
                if self._is_over(job):
                    return job
                place = self._find(job)
                if place != self._place:
                    far = self._reach(place)
                    self._check_loop(far, place, listener.port)
                    earlier = listener.far
                    self._place, listener.far = place, far
                    earlier.close()  # after the exchange: a new connection must not open it again
            except NoJobError:
                raise
            except TacoLaunchError as error:  # the head is away for a moment, or the job waits for its next attempt
                listener.report(error)

    @staticmethod
    def _check_loop(far: FarPort, place: Place, port: int) -> None:
        if isinstance(far, LocalPort) and place.port == port:
            raise UsageError(
                f"port {port} of the job is on this machine already: connect to {LOOPBACK}:{port}",
                hint="to use another port of this machine, write it behind a colon: PORT:LOCAL",
            )
