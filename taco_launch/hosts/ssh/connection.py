"""A host over SSH: one connection, kept, with a channel for each command. The only file that imports fabric.

Fabric makes the connection; what decides on it is explicit: what carries it (`ssh_socket`), the route (`config`), the
keys (`keys`), the host key (`host_key_policy`).
"""

import contextlib
import functools
import logging
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, Any, NoReturn

import fabric
import paramiko

from taco_launch.core import trace
from taco_launch.core.command import Command, Result, kill, ssh_line
from taco_launch.core.errors import HostError
from taco_launch.hosts.remote import session, transport
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.ssh.channel import BoundedPacketizer, ChannelPipe
from taco_launch.hosts.ssh.config import Route
from taco_launch.hosts.ssh.host_key_policy import Verifier
from taco_launch.hosts.ssh.host_keys import HostKey
from taco_launch.hosts.ssh.keys import KeyAuthStrategy, OfferedKeys, key_hint
from taco_launch.hosts.ssh.ssh_socket import SshSocket

LOGIN_SECONDS = 60.0
_END_SECONDS = 1.0
_KEEPALIVE_SECONDS = 15
_AGAIN_SECONDS = 5.0
_ATTEMPTS = 7  # the pauses add up to 10 to 30 s: a sshd that is flooded (MaxStartups) has room again by then
_ROOT = "root"
_OF_JUMP = "ProxyJump in ~/.ssh/config names this jump host; see whether ssh reaches it"
# It writes tracebacks of what is reported here as an error, to stderr where nobody listens.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _AgainError(Exception):
    """The host's sshd is too busy to talk."""


class _SeenError(Exception):
    """The host showed its key, which was all that was wanted."""

    def __init__(self, key: HostKey) -> None:
        super().__init__()
        self.key = key


class SshTransport:
    """A host over SSH. Nothing is opened before the first command."""

    def __init__(
        self,
        route: Route,
        offers: OfferedKeys,
        verifier: Verifier,
        access: Credentials,
        *,
        gateway: "SshTransport | None" = None,
        is_gateway: bool = False,
    ) -> None:
        """Prepare a connection. Fabric's objects are not safe to make in several threads at once.

        `gateway` is the jump host's connection, shared by all hosts behind it.
        """
        self.route = route
        self._keys = KeyAuthStrategy(route.user, offers)
        self._verifier = verifier
        self._access = access
        self._gateway = gateway
        self._is_gateway = is_gateway
        self._lock = threading.Lock()
        self._socket: SshSocket | None = None
        self._failed: HostError | None = None
        self._again_at = 0.0
        self._tty = False
        self._closed = False
        self._running: set[tuple[int, bool]] = set()  # process group, and whether it is root's
        self.connection: Any = fabric.Connection(
            route.address,
            user=route.user,
            port=route.port,
            config=_config(),
            connect_timeout=LOGIN_SECONDS,
        )

    @property
    def name(self) -> str:
        """The host's name in the inventory."""
        return self.route.name

    def run(self, command: Command) -> Result:
        """Execute a command and wait for its end: see `Transport.run`."""
        begun = time.monotonic()
        with self._session(command, whole=True) as (pipe, what, started):
            return session.finish(pipe, what, started, begun)

    def put(self, data: bytes, path: str, mode: int = 0o600, *, sudo: bool = False) -> None:
        """Write a file, whole or not at all: see `Transport.put`."""
        transport.put(self, data, path, mode, sudo=sudo)

    @contextlib.contextmanager
    def tail(self, command: Command) -> Iterator[IO[bytes]]:
        """Execute a command and give its stdout while it runs: see `Transport.tail`."""
        with self._followed(command, open_input=False) as found:
            yield found.stdout

    def converse(self, command: Command) -> contextlib.AbstractContextManager[transport.Conversation]:
        """Execute a command whose input stays open: see `Transport.converse`."""
        return self._followed(command, open_input=True)

    @contextlib.contextmanager
    def _followed(self, command: Command, *, open_input: bool) -> Iterator[transport.Conversation]:
        with self._session(command, whole=False, open_input=open_input) as streams:
            from taco_launch.hosts.remote.terminal import HostErrors  # noqa: PLC0415 - few commands are followed

            yield transport.Conversation(session.reader(*streams, HostErrors(sys.stderr.buffer)), streams[0])

    def close(self) -> None:
        """End what runs, and the connection: see `Transport.close`."""
        self._closed = True
        running = tuple(self._running)
        if running and self.connection.is_connected:
            # Once started, it continues without us: a host that hangs keeps nobody waiting.
            ending = threading.Thread(target=self._end, args=(running,), daemon=True)
            ending.start()
            ending.join(_END_SECONDS)
        self._hang_up()

    def _end(self, running: tuple[tuple[int, bool], ...]) -> None:
        for group, sudo in running:
            with contextlib.suppress(HostError):  # a connection that is lost leaves nothing to be done
                begun = time.monotonic()
                channel, pipe, what, started = self._started(kill(group, sudo=sudo), whole=True)
                with contextlib.closing(channel):
                    session.finish(pipe, what, started, begun)

    def host_key(self) -> HostKey:
        """Return the key that the host shows, without logging in.

        Raises:
            HostError: it cannot be reached.
        """

        def seen(key: HostKey) -> None:
            raise _SeenError(key)

        try:
            self._open(seen)
        except _SeenError as caught:
            return caught.key
        finally:
            self._hang_up()
        raise AssertionError("a connection without a host key")

    @contextlib.contextmanager
    def _session(
        self, command: Command, *, whole: bool, open_input: bool = False
    ) -> Iterator[tuple[ChannelPipe, session.CommandSession, session.StartedProgram]]:
        """Start a command on a channel of its own; end at the block's end what still runs. Raises HostError without a session."""
        if self._closed:
            raise self._was_closed()
        if self.route.user == _ROOT:
            command = replace(command, sudo=False)
        try:
            opened = self._started(command, whole=whole, open_input=open_input)
        except session.TtyRequiredError as error:
            if open_input:
                raise session.no_terminal(self.name, error) from None
            self._tty = True
            opened = self._started(command, whole=whole)
        channel, pipe, what, started = opened
        ended, group = False, (started.group, command.sudo)
        self._running.add(group)
        try:
            yield pipe, what, started
            ended = whole
        finally:
            gone = channel.exit_status_ready()
            channel.close()
            self._running.discard(group)
            if not ended and not gone and not self._closed:
                self._end((group,))

    def _started(
        self, command: Command, *, whole: bool, open_input: bool = False
    ) -> tuple[paramiko.Channel, ChannelPipe, session.CommandSession, session.StartedProgram]:
        tty = self._tty and command.sudo and not open_input
        what = session.plan(self.name, command, tty=tty, login=self.route.login)
        channel = self._channel(command.timeout)
        try:
            pipe = ChannelPipe(channel)
            if what.tty:
                channel.get_pty()
            channel.exec_command(what.line)
            return channel, pipe, what, session.start(pipe, what, self._access, whole=whole, open_input=open_input)
        except (paramiko.SSHException, EOFError, OSError) as error:
            channel.close()
            raise HostError(
                f"{self.name}: the connection broke before {command.argv[0]} started: {_said(error)}",
                hint=f"is the host up? {ssh_line(self.route.login, 'uptime')}",
            ) from None
        except BaseException:
            channel.close()
            raise

    def _channel(self, timeout: float | None) -> paramiko.Channel:
        self.open()
        try:
            seconds = min(LOGIN_SECONDS, timeout or LOGIN_SECONDS)
            channel: paramiko.Channel = self.connection.transport.open_session(timeout=seconds)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise HostError(
                f"{self.name}: the host refuses to open a session: {_said(error)}",
                hint="see MaxSessions and ForceCommand in its sshd's settings: sudo sshd -T",
            ) from None
        return channel

    def open(self) -> None:
        """Connect, if that was not done or the connection was lost.

        A jump host that could not be reached is not tried again for a while: many hosts wait behind it.

        Raises:
            HostError: it cannot be reached, or a key is refused: the host's, or ours.
        """
        with self._lock:
            if self._failed is not None and time.monotonic() < self._again_at:
                raise HostError(self._failed.message, self._failed.hint)
            if self.connection.is_connected:
                return
            if self._closed:
                raise self._was_closed()
            trace.decision("%s: connecting", self._where())
            begun = time.monotonic()
            try:
                self._open(lambda key: self._verifier.check(self.route, key))
                trace.decision("%s: connected after %.2f s", self._where(), time.monotonic() - begun)
            except HostError as error:
                self._hang_up()
                self._failed = error if self._is_gateway else None
                self._again_at = time.monotonic() + _AGAIN_SECONDS
                raise

    def _open(self, check: Callable[[HostKey], None]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                self._connect(check)
            except _AgainError as error:
                self._hang_up()
                reason = str(error)
            else:
                return
            if attempt < _ATTEMPTS - 1 and not self._closed:
                time.sleep(random.uniform(0.5, 1.5) * 0.25 * 2**attempt)  # noqa: S311 - so that not all come at once
        raise HostError(
            f"{self._where()}: it accepts connections, but sshd does not answer ({_ATTEMPTS} tries): {reason}",
            hint="if its sshd is overloaded, raise MaxStartups there; if another service uses this port, correct the port",
        )

    def _hang_up(self) -> None:
        self.connection.client.close()  # Fabric's close passes over a connection that did not log in
        if self._socket is not None:
            self._socket.close()

    def _connect(self, check: Callable[[HostKey], None]) -> None:
        """Try once to connect, check the host's key and log in; it raises HostError for jump hosts and second factors."""
        self._hang_up()  # what is left of a connection that was lost
        connection = self.connection
        connection.client = paramiko.SSHClient()
        connection.client.set_missing_host_key_policy(_Policy(check))
        connection.connect_kwargs = {
            "transport_factory": functools.partial(_transport, kinds=self._verifier.kinds(self.route)),
            "auth_strategy": self._keys,
            "banner_timeout": self.route.banner_timeout,
            "auth_timeout": LOGIN_SECONDS,
            "channel_timeout": LOGIN_SECONDS,
        }
        if self._gateway:
            try:
                self._gateway.open()
            except HostError as error:
                hint = error.hint if "host key" in error.message else _OF_JUMP  # a key's is about this very host
                raise HostError(f"{self.name}: through the jump host {error.message}", hint) from None
        try:
            by_way_of = (self._gateway.route, self._gateway.connection.transport) if self._gateway else ()
            self._socket = SshSocket(self.route, *by_way_of)
            connection.connect_kwargs["sock"] = self._socket.socket
            connection.open()
        except (HostError, _SeenError, _AgainError):
            raise
        except paramiko.AuthenticationException:
            self._raise_login_error()
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._raise_connect_error(error)
        if not connection.transport.is_authenticated():
            raise HostError(
                f"{self._where()}: a key alone is not enough to log in as {self.route.user}: the host requires a second factor",
                hint="only logins by key, certificate or agent are supported",
            )
        connection.transport.set_keepalive(_KEEPALIVE_SECONDS)

    def _raise_login_error(self) -> NoReturn:
        """Raise HostError with the keys that were offered, and the methods that the host accepts."""
        user, offered, hung_up = self.route.user, self._keys.tried, self._keys.hung_up
        methods = "" if hung_up else self._methods()
        lines = [f"{self._where()}: it does not accept a key of {user}"]
        lines.append(f"  offered: {', '.join(offered)}" if offered else "  there was no key to offer")
        lines += [f"  not offered: {reason}" for reason in self._keys.offers.left_out]
        lines += [f"  the host accepts: {methods}"] if methods else []
        lines += ["  then it hung up: too many keys were offered (MaxAuthTries)"] if hung_up else []
        if hung_up:
            hint = "offer fewer keys: set IdentitiesOnly in ~/.ssh/config, or identity_file in the inventory"
        elif offered and methods and "publickey" not in methods:
            hint = "only logins by key, certificate or agent are supported: allow PubkeyAuthentication in its sshd"
        else:
            hint = key_hint(self.route, self._keys.offers)
        raise HostError("\n".join(lines), hint) from None

    def _methods(self) -> str:
        """Ask the host which ways to log in it offers."""
        active = self.connection.client.get_transport()
        try:
            active.auth_none(self.route.user)
        except paramiko.BadAuthenticationType as error:
            return ", ".join(error.allowed_types)
        except (paramiko.SSHException, EOFError, OSError, AttributeError):
            pass
        return ""

    def _raise_connect_error(self, error: Exception) -> NoReturn:
        """Raise _AgainError where a retry may help, else HostError."""
        said = _said(error)
        if self._socket and (words := self._socket.said()):
            raise HostError(
                f"{self.name}: its ProxyCommand printed: {words}", hint=f"try it: {' '.join(self.route.proxy)}"
            ) from None
        if "banner" in said and isinstance(error.__context__, TimeoutError):  # paramiko's words for both are the same
            raise HostError(
                f"{self._where()}: its sshd did not answer within {self.route.banner_timeout:g} s; "
                "the host does accept TCP connections",
                hint="is the host frozen, or out of memory or processes? look at its console; or does another service use this port? "
                "check the port",
            ) from None
        if isinstance(error, (EOFError, ConnectionError)) or "banner" in said or "Negotiation failed" in said:
            raise _AgainError(said) from None
        raise HostError(
            f"{self._where()}: {said}", hint=f"see what ssh prints: {ssh_line(self.route.login, 'true', '-v')}"
        ) from None

    def _was_closed(self) -> HostError:
        return HostError(f"{self.name}: the connection was closed")

    def _where(self) -> str:
        return f"{self.name}: {self.route.address}:{self.route.port}"


class _Policy(paramiko.MissingHostKeyPolicy):
    """Has our own rule decide on every host key: paramiko is given no known ones."""

    def __init__(self, check: Callable[[HostKey], None]) -> None:
        self._check = check

    def missing_host_key(self, _client: paramiko.SSHClient, _hostname: str, key: paramiko.PKey) -> None:
        """Check a key."""
        self._check(HostKey(key.get_name(), key.asbytes()))


def _transport(sock: socket.socket, *, kinds: tuple[str, ...], **settings: Any) -> paramiko.Transport:
    """Make a transport that asks for the known kinds of host keys first, as ssh does."""
    made = paramiko.Transport(sock, packetizer_class=BoundedPacketizer, **settings)
    options = made.get_security_options()
    known = [name for kind in kinds for name in options.key_types if name == kind or _is_rsa(kind, name)]
    options.key_types = tuple(dict.fromkeys((*known, *options.key_types)))
    return made


def _is_rsa(kind: str, algorithm: str) -> bool:
    return kind == "ssh-rsa" and algorithm in ("rsa-sha2-512", "rsa-sha2-256")


@functools.cache
def _config() -> fabric.Config:
    # lazy: without the files and variables that set up other people's Fabric scripts
    return fabric.Config(ssh_config=paramiko.SSHConfig(), lazy=True)


def _said(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
