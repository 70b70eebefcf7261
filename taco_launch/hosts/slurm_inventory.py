"""A Slurm cluster as an inventory: `-i slurm:` on a login node, `-i slurm:USER@LOGIN` from elsewhere."""

import getpass
import re
from collections.abc import Callable

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError, UsageError, last_line
from taco_launch.core.model.engines import SLURM_PREFIX
from taco_launch.core.model.host.hosts import PARTITION, Host, Inventory
from taco_launch.core.slurm import nodes
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.remote.credentials import Credentials

# The engine of such an inventory, and the name of a cluster that has none.
_WORD = SLURM_PREFIX.rstrip(":")
_SECONDS = 60.0
_LOGIN = re.compile(
    r"(?:(?P<user>[A-Za-z_][A-Za-z0-9._-]{0,31})@)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,252})(?::(?P<port>\d{1,5}))?"
)
_SCRIPT = (
    '[ -z "${SLURM_CONF+x}" ] || [ -r "$SLURM_CONF" ] || { echo "SLURM_CONF: $SLURM_CONF cannot be read" >&2; exit 1; }\n'
    "command -v sinfo >/dev/null 2>&1 || { echo 'sinfo was not found' >&2; exit 127; }\n"
    'scontrol show config | sed -n "s/^ClusterName *= *//p" | head -n 1\n'
    'sinfo --Node --noheader --Format="$1"\n'
)
_HINT = "is this a login node of a Slurm cluster? If slurm.conf is not in its usual place, set SLURM_CONF; from another machine use -i slurm:USER@LOGIN"


def load(source: str, names: Callable[[], frozenset[str]], access: Credentials) -> Inventory:
    """Return the cluster that `source` names; `names` gives this machine's names.

    Raises:
        UsageError: it names no login node.
        HostError: the login node cannot be reached, or Slurm does not answer there.
    """
    alone = login_of(source, names)
    (head,) = alone.hosts
    with connect(alone, (head,), access) as fanout:
        (transport,) = fanout.transports
        result = transport.run(Command(("/bin/sh", "-c", _SCRIPT, "sinfo", nodes.FORMAT), timeout=_SECONDS))
    if result.exit_code:
        words = last_line(result.stderr) or f"sinfo: exit {result.exit_code}"
        raise HostError(f"{head.name}: {words}", hint=_HINT)
    cluster, _newline, lines = result.stdout.decode("utf-8", "replace").partition("\n")
    try:
        listed = nodes.parse_nodes(lines)
    except ValueError as error:
        raise HostError(f"{head.name}: {error}") from None
    if not listed:
        raise HostError(f"{head.name}: Slurm has no nodes for {getpass.getuser()}", hint="sinfo shows what it has")
    hosts = tuple(map(_host, listed))
    if any(host.name == head.name for host in hosts):
        return _inventory(cluster, head.name, tuple(head_of(host, head) for host in hosts), source)
    return _inventory(cluster, head.name, (head, *hosts), source)


def login_of(source: str, names: Callable[[], frozenset[str]]) -> Inventory:
    """Return the cluster with its login node alone: who asks for jobs needs no more, and Slurm need not answer.

    Raises:
        UsageError: `source` names no login node.
    """
    head = _head(source, names())
    return Inventory(cluster=_WORD, head=head.name, hosts=(head,), source=source, engine=_WORD)


def head_of(host: Host, head: Host) -> Host:
    """Return a node, reached as the head is where it is the head."""
    if host.name != head.name:
        return host
    return Host(
        head.name, head.address, head.port, head.user, slots=host.slots, labels=host.labels, connection=head.connection
    )


def _inventory(cluster: str, head: str, hosts: tuple[Host, ...], source: str) -> Inventory:
    name = re.sub("[^a-z0-9-]", "-", cluster.strip().lower()).strip("-") or _WORD
    return Inventory(cluster=name, head=head, hosts=hosts, source=source, engine=_WORD)


def _head(source: str, names: frozenset[str]) -> Host:
    _word, colon, login = source.partition(":")
    if not login:
        name = min((each for each in names if "." not in each and each != "localhost"), default="localhost")
        return Host(name, "localhost", connection="local")
    parts = _LOGIN.fullmatch(login)
    if not colon or parts is None:
        raise UsageError(
            f"-i {source}: {login!r} names no login node", hint="write slurm:USER@HOST or slurm:USER@HOST:PORT"
        )
    return Host(parts["host"], parts["host"], port=int(parts["port"] or 22), user=parts["user"] or "")


def _host(node: nodes.Node) -> Host:
    labels = {
        PARTITION: node.partitions[0],
        nodes.STATE: node.state,
        nodes.GPUS: str(node.gpus),
        nodes.USED: str(node.used),
    }
    return Host(node.name, node.address, slots=node.slots, labels=tuple(sorted(labels.items())))
