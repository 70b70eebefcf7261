"""First contact: the keys that hosts show, what is known of them, and the writing of those that a person trusts."""

import os
from collections.abc import Callable

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.fanout import Answer, Fanout, allow_files
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.transport import Transport, Unreachable
from taco_launch.hosts.ssh.connection import SshTransport
from taco_launch.hosts.ssh.connection_factory import ConnectionFactory
from taco_launch.hosts.ssh.host_keys import HostKey, KnownHosts, own_file

KNOWN, NEW, CHANGED, REVOKED = "known", "new", "CHANGED", "REVOKED"


@dataclass(frozen=True)
class ShownKey:
    """A key that a host shows; `state` is known, new, CHANGED or REVOKED, `known` the lines of files that say so.

    `elsewhere` are the files besides our own that keep another key of it, `others` its known keys of other kinds.
    """

    host: str
    known_as: str
    kind: str
    fingerprint: str
    blob: bytes
    state: str
    known: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    others: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class TrustReport:
    """What all hosts show, in inventory order, the hosts that could not be asked, and the file that trust is kept in."""

    shown: tuple[ShownKey, ...]
    failed: tuple[Answer[ShownKey], ...]
    file: str

    @property
    def alike(self) -> tuple[tuple[ShownKey, ...], ...]:
        """Return the groups of hosts that have the same key: one shows it, and it is shown by the others or known of them."""
        groups: dict[bytes, tuple[ShownKey, ...]] = {}
        for key in self.shown:
            for blob in {key.blob, *key.others}:
                groups[blob] = (*groups.get(blob, ()), key)
        shown = {key.blob for key in self.shown}
        return tuple(dict.fromkeys(group for blob, group in groups.items() if group[1:] and blob in shown))

    def to_write(self, *, replace: bool) -> tuple[ShownKey, ...]:
        """Return the keys that trusting would write: the new ones, with `replace` the changed ones too."""
        return tuple(key for key in self.shown if key.state == NEW or (replace and key.state == CHANGED))

    def refused(self, *, replace: bool) -> tuple[ShownKey, ...]:
        """Return the keys that trusting would not write, because others are known of their hosts."""
        return tuple(key for key in self.shown if key.state == REVOKED or (key.state == CHANGED and not replace))


@dataclass(frozen=True)
class HostConnections:
    """The connections to hosts, not opened yet, and what is known of their keys."""

    fanout: Fanout
    known_hosts: KnownHosts


def prepare(inventory: Inventory, hosts: tuple[Host, ...], access: Credentials) -> HostConnections:
    """Prepare to ask hosts for their keys; hosts of this machine have none.

    Asks for the passphrases of keys for the jump hosts on the way, which are logged in to by the same rules as ever.

    Raises:
        SpecError: ~/.ssh/config cannot be read.
    """
    remote = tuple(host for host in hosts if host.connection != "local")
    allow_files(len(remote))
    factory = ConnectionFactory(inventory, access, os.environ)
    made = tuple(factory.ssh(host, login=False) for host in remote)
    return HostConnections(Fanout(made, factory.gateways), factory.verifier.known_hosts)


def read_host_keys(ways: HostConnections, report: Callable[[Answer[ShownKey]], None] | None = None) -> TrustReport:
    """Ask every host for its key, without logging in there. Nothing is written."""
    own = str(ways.known_hosts.own)

    def ask(transport: Transport) -> ShownKey:
        if isinstance(transport, Unreachable):
            transport.fail()
        assert isinstance(transport, SshTransport)
        route, key = transport.route, transport.host_key()
        verdict = ways.known_hosts.judge(route.known_as, key, route.known_hosts)
        state = {"known": KNOWN, "new": NEW, "changed": CHANGED, "revoked": REVOKED}[verdict.state]
        by = tuple(map(str, verdict.by))
        files = dict.fromkeys(known.file for known in verdict.by if state == CHANGED and known.file != own)
        lines = ways.known_hosts.lines(route.known_as, route.known_hosts)
        # Of a host with a changed key the known keys may be those of the machine before it.
        others = [line.key.blob for line in lines if state in (KNOWN, NEW) and not line.marker]
        return ShownKey(
            route.name, route.known_as, key.kind, key.fingerprint, key.blob, state, by, tuple(files), tuple(others)
        )

    with ways.fanout as fanout:
        answers = fanout.each(ask, report)
    shown = tuple(answer.value for answer in answers if answer.value is not None)
    return TrustReport(shown, tuple(answer for answer in answers if answer.error), own)


def write(keys: tuple[ShownKey, ...]) -> None:
    """Keep keys in our known_hosts file; `~/.ssh` is not touched.

    Raises:
        HostError: the file cannot be written.
    """
    KnownHosts(own_file(os.environ)).add((key.known_as, HostKey(key.kind, key.blob)) for key in keys)
