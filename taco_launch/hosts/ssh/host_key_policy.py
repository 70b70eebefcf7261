"""Whether a host's key is taken: known ones are, unknown ones by `accept-new` only, changed and revoked ones never."""

from taco_launch.core.command import shell, ssh_line
from taco_launch.core.errors import HostError
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.ssh.config import Route
from taco_launch.hosts.ssh.host_keys import HostKey, KnownHosts

ACCEPT_NEW = "accept-new"


@dataclass(frozen=True)
class Verifier:
    """The rule for all connections of a call.

    `mode` is the inventory's `ssh.host_keys`, `source` where the inventory came from and `hosts` the names in it.
    """

    known_hosts: KnownHosts
    mode: str
    source: str
    hosts: frozenset[str]

    def kinds(self, route: Route) -> tuple[str, ...]:
        """Return the kinds of keys to ask the host for first."""
        return self.known_hosts.kinds(route.known_as, route.known_hosts)

    def check(self, route: Route, key: HostKey) -> None:
        """Take a host's key.

        Raises:
            HostError: it is unknown (and `mode` strict), changed or revoked.
        """
        verdict = self.known_hosts.judge(route.known_as, key, route.known_hosts)
        if verdict.state == "new" and self.mode == ACCEPT_NEW:
            verdict = self.known_hosts.accept(route.known_as, key, route.known_hosts)
            if verdict.state == "new":
                return
        shown = f"{key.kind} {key.fingerprint}"
        by = "\n".join(f"  {known}" for known in verdict.by)
        if verdict.state == "known":
            return
        if verdict.state == "new":
            certified = f"; {by.strip()} trusts its certificate, but host certificates are not supported" if by else ""
            raise HostError(
                f"{route.name}: unknown host key of {route.known_as}: {shown}{certified}",
                hint=f"compare it with the key shown on the host's console (ssh-keygen -lf /etc/ssh/ssh_host_"
                f"{_file_kind(key)}_key.pub), then: {self._trust(route)}",
            )
        if verdict.state == "revoked":
            raise HostError(
                f"{route.name}: the host key of {route.known_as} is revoked: {shown}; it is listed as revoked in\n{by}",
                hint="ask the person who revoked it for the reason",
            )
        raise HostError(
            f"{route.name}: the host key of {route.known_as} has CHANGED: it is now {shown}, but the known key is\n{by}\n"
            "  either the host was reinstalled, or the connection is intercepted",
            hint=f"if the host was reinstalled: {self._trust(route, replace=True)}",
        )

    def _trust(self, route: Route, *, replace: bool = False) -> str:
        """Return the line that takes a host's key: a jump host that the inventory does not name is left to ssh."""
        if route.name in self.hosts:
            return trust_line(self.source, route.name, replace=replace)
        forget = f"{shell(('ssh-keygen', '-R', route.known_as))}; " if replace else ""
        return forget + ssh_line(route.login, "true")


def trust_line(source: str, host: str, *, replace: bool = False) -> str:
    """Return the line that takes the key of a host of the inventory `source`; `replace`: a changed one too."""
    return shell(("taco-launch", "-i", source, "trust", *(("--replace",) if replace else ()), host))


def _file_kind(key: HostKey) -> str:
    return "ecdsa" if key.kind.startswith("ecdsa") else key.kind.removeprefix("ssh-")
