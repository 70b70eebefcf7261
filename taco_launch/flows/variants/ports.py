"""The port of a variant's sshd: one that is free on all hosts, and leased there."""

from taco_launch.command import Command
from taco_launch.errors import HostError
from taco_launch.model.host.hosts import Container
from taco_launch.remote.fanout import Fanout
from taco_launch.remote.transport import Transport, last_words
from taco_launch.setup import scripts
from taco_launch.setup.variants import ports

_SECONDS = 60
_TRIES = 20


def lease(cluster: str, container: Container, hosts: Fanout, head: str, own: int = 0) -> int:
    """Lease a port for the sshd of a variant, which is called `cluster`; `own` is the one that it has, 0 for none.

    `container` is the inventory's. Hosts that do not answer are passed over.

    Raises:
        HostError: the head does not answer, or all ports are taken.
    """
    first, last = ports(container)
    refused: set[int] = set()
    for _try in range(_TRIES):
        port = _ask(hosts.only((head,)).transports[0], cluster, first, last, own, refused) or 0
        if not port and own:
            own = 0
            continue
        if not port:
            break
        answers = hosts.each(lambda host, wanted=port: _ask(host, cluster, first, last, wanted))  # type: ignore[misc]
        if all(answer.value is not None or answer.error is not None for answer in answers):
            return port
        refused.add(port)
        own = 0
    raise HostError(
        f"no port from {first} to {last} is free on all hosts, for the sshd of another container",
        hint="set another port range in the inventory: container: {variant_ports: FIRST-LAST}; or remove containers that no job "
        "needs: taco-launch prune --images",
    )


def _ask(
    host: Transport, cluster: str, first: int, last: int, wanted: int, refused: set[int] | None = None
) -> int | None:
    """Lease a port on one host; None where it is taken."""
    words = (cluster, first, last, wanted, *sorted(refused or ()))
    argv = ("/bin/sh", "-c", scripts.text("variant_port.sh"), "variant_port", *map(str, words))
    result = host.run(Command(argv, sudo=True, timeout=_SECONDS))
    said = result.stdout.decode("ascii", "replace").split()
    if result.exit_code or said[:1] not in (["port"], ["taken"]):
        raise HostError(f"{host.name}: a port cannot be leased: {last_words(result.stderr or result.stdout)}")
    return int(said[1]) if said[0] == "port" and len(said) == 2 and said[1].isdigit() else None
