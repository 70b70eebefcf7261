"""Hosts of an inventory -> connections: configuration, keys and known hosts are read once, jump hosts are shared."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.transport import Unreachable
from taco_launch.hosts.ssh.config import Config, Route, jump_host
from taco_launch.hosts.ssh.connection import SshTransport
from taco_launch.hosts.ssh.host_key_policy import Verifier
from taco_launch.hosts.ssh.host_keys import KnownHosts, own_file
from taco_launch.hosts.ssh.keys import Keyring, OfferedKeys

_MAX_HOPS = 8
_NONE = OfferedKeys((), ())


class ConnectionFactory:
    """Makes the connections of one call, in one thread."""

    def __init__(self, inventory: Inventory, access: Credentials, environ: Mapping[str, str]) -> None:
        """Read the configuration.

        Raises:
            SpecError: it cannot be read.
        """
        self._config = Config(environ, connect_timeout=inventory.connect_timeout)
        self._keyring = Keyring(access)
        more = (str(Path(inventory.known_hosts).expanduser()),) if inventory.known_hosts else ()
        names = frozenset(host.name for host in inventory.hosts)
        known_hosts = KnownHosts(own_file(environ), more)
        self.verifier = Verifier(known_hosts, inventory.host_keys, inventory.source, names)
        self._access = access
        self._gateways: dict[tuple[str, ...], SshTransport] = {}

    @property
    def gateways(self) -> tuple[SshTransport, ...]:
        """The jump hosts' connections, the innermost first."""
        return tuple(reversed(self._gateways.values()))

    def ssh(self, host: Host, *, login: bool = True) -> SshTransport | Unreachable:
        """Return the connection to a host, which is not opened yet; what cannot be done is the host's own answer.

        Without `login` no keys are loaded for the host itself.
        """
        try:
            return self._made(self._config.route(host), hops=0, login=login)
        except HostError as error:
            return Unreachable(host.name, error)

    def ssh_through(self, host: Host, head: Host | None = None) -> SshTransport:
        """Return the connection to a host, through the head of the inventory instead of by its own route if that is given.

        Raises:
            HostError: the settings of either are wrong.
        """
        route = self._config.route(host)
        if head is None:
            return self._made(route, hops=0)
        gateway = self._gateways[("", head.name)] = self._made(self._config.route(head), hops=1)
        return SshTransport(route, self._keyring.offers(route), self.verifier, self._access, gateway=gateway)

    def _made(self, route: Route, *, hops: int, login: bool = True) -> SshTransport:
        if hops > _MAX_HOPS:
            raise HostError(
                f"{route.name}: a chain of more than {_MAX_HOPS} jump hosts: does one of them jump to itself?",
                hint=f"see ProxyJump in ~/.ssh/config: ssh -G {route.address}",
            )
        try:
            gateway = self._gateway(route.jumps, hops + 1) if route.jumps else None
        except HostError as error:
            if hops:
                raise
            raise HostError(f"{route.name}: its jump host: {error.message}", error.hint) from None
        offers = self._keyring.offers(route) if login else _NONE
        return SshTransport(route, offers, self.verifier, self._access, gateway=gateway, is_gateway=hops > 0)

    def _gateway(self, jumps: tuple[str, ...], hops: int) -> SshTransport:
        if jumps not in self._gateways:
            *before, last = jumps
            route = self._config.route(jump_host(last))
            if before:  # what is written goes before what the configuration says of the last
                login = ("-J", ",".join(before), *route.login)
                route = replace(route, jumps=tuple(before), proxy=(), login=login)
            self._gateways[jumps] = self._made(route, hops=hops)
        return self._gateways[jumps]
