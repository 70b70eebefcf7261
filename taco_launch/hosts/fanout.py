"""Many hosts at once: connections kept over phases, a bounded pool, answers in the order of the inventory."""

import contextlib
import os
import queue
import resource
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Generic, TypeVar

from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.hosts.remote.transport import Transport

T = TypeVar("T")

POOL = 64  # past it nothing is gained (measured), and a sshd in front of all hosts, as a jump host is, has its limits
_OTHER_FILES = 64
_CLOSE_SECONDS = 5.0
_CTRL_C_SECONDS = 1.0


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What came of the work on one host: its value, or the error that stopped it there."""

    host: str
    value: T | None = None
    error: TacoLaunchError | None = None


class Fanout(contextlib.AbstractContextManager["Fanout"]):
    """Hosts to work on; a context manager that closes their connections."""

    def __init__(self, transports: tuple[Transport, ...], gateways: tuple[Transport, ...] = ()) -> None:
        """Work on `transports`, in this order; `gateways` are closed after them."""
        self.transports = transports
        self._gateways = gateways

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close all connections; after Ctrl-C wait no longer than it takes to end what runs on the hosts."""
        closer = threading.Thread(target=self._close, daemon=True)
        closer.start()
        closer.join(_CTRL_C_SECONDS if kind is KeyboardInterrupt else _CLOSE_SECONDS)

    def _close(self) -> None:
        closers = [threading.Thread(target=_close, args=(each,), daemon=True) for each in self.transports]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
        for gateway in self._gateways:
            _close(gateway)

    def only(self, names: Collection[str]) -> "Fanout":
        """Return these hosts of it, by the same connections, which this one still closes."""
        wanted = frozenset(names)
        return Fanout(tuple(each for each in self.transports if each.name in wanted))

    def each(
        self, work: Callable[[Transport], T], report: Callable[[Answer[T]], None] | None = None
    ) -> tuple[Answer[T], ...]:
        """Do `work` on every host, several at once; one that fails (TacoLaunchError) does not keep the others from it.

        `report` is given each answer as it comes, in this thread. Any other exception is a bug, and raised. Ctrl-C is
        raised at once: the threads end with their connections, which the end of the block closes.
        """
        todo: queue.SimpleQueue[tuple[int, Transport]] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Answer[T] | BaseException]] = queue.SimpleQueue()
        stopped = threading.Event()
        for entry in enumerate(self.transports):
            todo.put(entry)

        def serve() -> None:
            with contextlib.suppress(queue.Empty):
                while not stopped.is_set():
                    number, transport = todo.get_nowait()
                    done.put((number, _answer(work, transport)))

        for _worker in range(min(POOL, len(self.transports))):
            threading.Thread(target=serve, daemon=True).start()
        answers: dict[int, Answer[T]] = {}
        try:
            while len(answers) < len(self.transports):
                number, answer = done.get()
                if isinstance(answer, BaseException):
                    raise answer
                answers[number] = answer
                if report is not None:
                    report(answer)
        finally:
            stopped.set()
        return tuple(answers[number] for number in range(len(self.transports)))


def connect(inventory: Inventory, hosts: tuple[Host, ...], access: Credentials) -> Fanout:
    """Prepare connections to hosts of an inventory; each is opened by the first command there.

    Asks for the passphrases of encrypted keys, before anything is opened.

    Raises:
        HostError: more files would be open than the system allows.
        SpecError: ~/.ssh/config cannot be read.
    """
    remote = [host for host in hosts if host.connection != "local"]
    allow_files(len(remote) * 2 + _OTHER_FILES)
    if not remote:
        return Fanout(tuple(LocalTransport(host.name, access) for host in hosts))
    from taco_launch.hosts.ssh.connection_factory import ConnectionFactory  # noqa: PLC0415 - local runs need no SSH, whose import takes long

    factory = ConnectionFactory(inventory, access, os.environ)
    made = tuple(
        LocalTransport(host.name, access) if host.connection == "local" else factory.ssh(host) for host in hosts
    )
    return Fanout(made, factory.gateways)


def _answer(work: Callable[[Transport], T], transport: Transport) -> Answer[T] | BaseException:
    try:
        return Answer(transport.name, work(transport))
    except TacoLaunchError as error:
        return Answer(transport.name, error=error)
    except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
        return error


def _close(transport: Transport) -> None:
    with contextlib.suppress(Exception):  # a connection that cannot even be closed is no news at the end
        transport.close()


def allow_files(needed: int) -> None:
    """Raise the limit on open files to what is needed: `needed` more than are open.

    Raises:
        HostError: the system does not let us.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed + len(os.listdir("/proc/self/fd"))
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise HostError(
            f"{needed} open files are needed for this number of hosts, but the limit is {hard}",
            hint=f"raise it (ulimit -Hn {wanted}, or LimitNOFILE), or use fewer hosts at once",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
