"""What carries a connection: TCP to the host, a jump host's channel, the stdin and stdout of its ProxyCommand."""

import contextlib
import socket
import subprocess
import tempfile
from typing import Any

import paramiko

from taco_launch.core.command import ssh_line
from taco_launch.core.errors import HostError, last_line
from taco_launch.hosts.ssh.channel import bound_unread
from taco_launch.hosts.ssh.config import Route

# Without an answer on the wire for so long a connection has ended; TCP alone would wait some 15 minutes.
_DEAD_SECONDS = 60


class SshSocket:
    """An open socket that leads to a host's sshd."""

    def __init__(self, route: Route, jump: Route | None = None, gateway: paramiko.Transport | None = None) -> None:
        """Open it, by way of `gateway`, the open connection to the jump host `jump`, where there is one.

        Raises:
            HostError: the host has no address, does not exist or refuses, or the command cannot be run.
            SSHException: the jump host's connection broke.
        """
        self._errors = tempfile.TemporaryFile() if route.proxy else None  # noqa: SIM115 - lives as long as this
        self._process: subprocess.Popen[bytes] | None = None
        self.socket: Any  # a socket, or what behaves as one
        if jump is not None and gateway is not None:
            self.socket = _forwarded(route, jump, gateway)
        else:
            self.socket = self._proxied(route) if route.proxy else _dialled(route)

    def said(self) -> str:
        """Return the last line that the ProxyCommand said on stderr."""
        if self._errors is None or self._errors.closed:
            return ""
        self._errors.seek(0)
        return last_line(self._errors.read())

    def close(self) -> None:
        """Close the socket, and end the ProxyCommand."""
        self.socket.close()
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
        if self._errors is not None:
            self._errors.close()

    def _proxied(self, route: Route) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            try:
                # It ends with the socket. Ctrl-C in the terminal is not its business.
                self._process = subprocess.Popen(
                    route.proxy,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._errors,
                    start_new_session=True,
                )
            except OSError as error:
                raise HostError(
                    f"{route.name}: cannot run its ProxyCommand {route.proxy[0]}: {error.strerror}",
                    hint=f"see ProxyCommand in ~/.ssh/config: ssh -G {route.address}",
                ) from None
            stack.pop_all()
        return ours


def _dialled(route: Route) -> socket.socket:
    at = f"{route.address}:{route.port}"
    try:
        sock = socket.create_connection((route.address, route.port), route.timeout)
    except (socket.gaierror, UnicodeError) as error:  # the latter for what is not a name at all, as a..b
        raise HostError(
            f"{route.name}: no address for {route.address}: {getattr(error, 'strerror', None) or error}",
            hint="give it an address in the inventory, or a HostName in ~/.ssh/config",
        ) from None
    except TimeoutError:
        raise HostError(
            f"{route.name}: waited {route.timeout:g} s for a TCP connection to {at}",
            hint=f"is the host up, and does a firewall drop its port? nc -vz {route.address} {route.port}",
        ) from None
    except OSError as error:
        raise HostError(
            f"{route.name}: no TCP connection to {at}: {error.strerror or error}",
            hint="is the host up, and its sshd running? check address and port in the inventory",
        ) from None
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_SECONDS * 1000)
    return sock


def _forwarded(route: Route, jump: Route, gateway: paramiko.Transport) -> paramiko.Channel:
    at = f"{route.address}:{route.port}"
    try:
        there = (route.address, route.port)
        channel: paramiko.Channel = gateway.open_channel("direct-tcpip", there, ("", 0), timeout=route.timeout)
    except paramiko.ChannelException as error:
        raise HostError(
            f"{route.name}: {at}: the jump host cannot connect to it: {error.text}",
            hint="can the jump host reach this address, and does its sshd allow TCP forwarding?",
        ) from None
    except paramiko.SSHException as error:
        if "Timeout" not in str(error):
            raise
        raise HostError(
            f"{route.name}: waited {route.timeout:g} s for {jump.name} to connect to {at}",
            hint="is the host up, and does a firewall drop its port? "
            + ssh_line(jump.login, f"nc -vz {route.address} {route.port}"),
        ) from None
    bound_unread(channel)
    return channel
