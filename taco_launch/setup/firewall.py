"""The firewall between a cluster's hosts: opened for what jobs need where the inventory says `firewall: manage`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from taco_launch.model.facts import Firewall, HostFacts, Made, Network
from taco_launch.setup import paths, scripts
from taco_launch.setup.made import differing, files_of, with_files
from taco_launch.setup.ops import Cluster, File, Op
from taco_launch.setup.ssh_files import Member, is_address

_STAGE: Final = "ssh_mesh"
# Where the kernel takes a port from that a program does not name: ip-sysctl, ip_local_port_range.
_EPHEMERAL = (32768, 60999)

# Takes back all of it, for `teardown`: $1 is the cluster's folder, which has to be there still.
CLOSE = """if [ -e "$1/firewall.sh" ]; then /bin/sh "$1/firewall.sh" remove; fi
"""
_UNIT = """[Unit]
Description=The firewall of this host, open for the hosts of {cluster}
After=network-online.target docker.service {firewalls}
Wants=network-online.target
PartOf={firewalls}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh {script} open

[Install]
WantedBy=multi-user.target
"""
# What makes its rules anew takes ours away.
_FIREWALLS = "firewalld.service ufw.service nftables.service iptables.service netfilter-persistent.service"


def plan(facts: HostFacts, cluster: Cluster, own: str, members: tuple[Member, ...]) -> Iterator[Op]:
    """Open this host's firewall for the others, or take that back where it is not wanted any more.

    Opened is TCP from the hosts of the inventory (IPv4), to the container's sshd and to the ports that programs are
    given by the kernel or by the inventory's `port_range`.
    """
    inventory = cluster.inventory
    there = files_of(facts) or {}
    path = file(inventory.cluster)
    firewall = active(facts)
    if inventory.network.firewall != "manage" or inventory.container is None:
        if path in there:
            yield Op(
                _STAGE, "firewall: take our rules back", "network.firewall is check", CLOSE,
                (paths.folder(inventory.cluster),), expect=lambda facts: _without(facts, inventory.cluster),
            )  # fmt: skip
        return
    if firewall is None and path not in there:
        return
    others = [each.address for each in members if each.address != own and is_address(each.address)]
    ports = [(inventory.container.ssh_port,) * 2, *filter(None, (inventory.network.port_range,)), _ephemeral(facts)]
    lines = [f"port {_range(*each)}\n" for each in _merged(ports)] + [
        f"host {each}\n" for each in others if ":" not in each
    ]
    wanted = (
        File(path, "".join(lines).encode(), 0o600),
        File(_script(inventory.cluster), scripts.text("firewall.sh").encode(), 0o600),
        File(_unit(inventory.cluster), _unit_text(inventory.cluster).encode()),
    )
    missing = differing(facts, wanted)
    if missing and len(lines) > len(_merged(ports)):
        put = (replace(wanted[0], path=f"{path}.new", shown=path), *wanted[1:])
        why = firewall.detail if firewall is not None else "its rules are there already, for others"
        script, args = '/bin/sh "$1" apply\n', (_script(inventory.cluster),)
        name = "firewall: open it for the cluster's hosts"
        yield Op(_STAGE, name, why, script, args, put, expect=lambda facts: with_files(facts, wanted))


def active(facts: HostFacts) -> Firewall | None:
    """Give the firewall that stops something on this host, None where there is none or nobody may tell."""
    if not isinstance(facts.network, Network) or not isinstance(facts.network.firewalls, tuple):
        return None
    return next((each for each in facts.network.firewalls if each.active), None)


def file(cluster: str) -> str:
    """Place the list of what was opened."""
    return f"{paths.folder(cluster)}/firewall"


def _script(cluster: str) -> str:
    return f"{paths.folder(cluster)}/firewall.sh"


def _unit(cluster: str) -> str:
    return f"{paths.UNITS}/taco-launch-{cluster}-firewall.service"


def _unit_text(cluster: str) -> str:
    return _UNIT.format(cluster=cluster, firewalls=_FIREWALLS, script=_script(cluster))


def _ephemeral(facts: HostFacts) -> tuple[int, int]:
    found = facts.network.port_range if isinstance(facts.network, Network) else None
    return found if isinstance(found, tuple) else _EPHEMERAL


def _merged(ports: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that overlap: nft takes none that do."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ports):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _without(facts: HostFacts, cluster: str) -> HostFacts:
    there = files_of(facts)
    if there is None or not isinstance(facts.made, Made):
        return facts
    gone = (file(cluster), _script(cluster), _unit(cluster))
    kept = tuple(each for path, each in there.items() if path not in gone)
    return replace(facts, made=replace(facts.made, files=kept))
