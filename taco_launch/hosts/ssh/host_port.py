"""A port on the loopback of a host, by SSH: each connection to it is a channel of one login, directly or through the head.

Fabric's own forward_local ends with the first connection that the host refuses, knows no half-closed connections and
cannot choose a free port, so the channels are paramiko's (direct-tcpip), of the connection that fabric made.
"""

import contextlib
import os
import threading

import paramiko

from taco_launch.core.command import ssh_line
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.ssh.channel import bound_unread
from taco_launch.hosts.ssh.connection import SshTransport
from taco_launch.hosts.ssh.connection_factory import ConnectionFactory

_CONNECT_SECONDS = 30.0
_PROHIBITED = 1  # RFC 4254, 5.1: SSH_OPEN_ADMINISTRATIVELY_PROHIBITED


class HostPort:
    """A port on the loopback of a host of an inventory."""

    def __init__(
        self, inventory: Inventory, host: Host, port: int, access: Credentials, address: str = "localhost"
    ) -> None:
        """Prepare the ways to the host: its own route, and the one through the head. Nothing is opened.

        Of `localhost` the host's sshd tries 127.0.0.1 and ::1: a server listens on either.

        Raises:
            HostError: the settings of the host, or of the head, are wrong.
            SpecError: ~/.ssh/config cannot be read.
        """
        self.name, self.port, self._address = host.name, port, address
        head = next(each for each in inventory.hosts if each.name == inventory.head)
        self._factory = ConnectionFactory(inventory, access, os.environ)
        self._ways = [self._factory.ssh_through(host)]
        if head.connection != "local" and head.name != host.name:
            self._ways.append(self._factory.ssh_through(host, head))
        self._lock = threading.Lock()

    def open(self) -> SshTransport:
        """Log in to the host if that was not done or the connection was lost; the way that worked last comes first.

        Raises:
            HostError: no way works.
        """
        with self._lock:
            errors = []
            for way in self._ways:
                try:
                    way.open()
                except HostError as error:
                    errors.append(error)
                    continue
                self._ways.sort(key=lambda each: each is not way)
                return way
        more = f"\nthe other way: {errors[1].message}" if len(errors) > 1 else ""
        raise HostError(errors[0].message + more, errors[0].hint)

    def connect(self) -> paramiko.Channel:
        """Connect to the port.

        Raises:
            HostError: the host cannot be reached, or its sshd does not connect to the port.
        """
        way = self.open()
        try:
            channel: paramiko.Channel = way.connection.transport.open_channel(
                "direct-tcpip", (self._address, self.port), ("127.0.0.1", 0), timeout=_CONNECT_SECONDS
            )
        except paramiko.ChannelException as error:
            if error.code == _PROHIBITED:
                raise HostError(
                    f"{self.name}: its sshd does not allow TCP forwarding",
                    hint="set AllowTcpForwarding yes (or local) in its sshd_config, and reload sshd",
                ) from None
            raise HostError(
                f"{self.name}: nothing accepts connections on port {self.port} of its loopback: {error.text}",
                hint="does the program listen there yet? " + ssh_line(way.route.login, f"ss -ltn sport = :{self.port}"),
            ) from None
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise HostError(f"{self.name}: the connection broke: {error}") from None
        bound_unread(channel)
        return channel

    def close(self) -> None:
        """Close all connections."""
        for each in (*self._ways, *self._factory.gateways):
            with contextlib.suppress(Exception):  # a connection that cannot be closed is no news at the end
                each.close()
