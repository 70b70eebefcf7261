"""The firewall between a cluster's hosts: opened for what jobs need where the inventory says `firewall: manage`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import known_value
from taco_launch.core.model.host.facts import Firewall, HostFacts
from taco_launch.setup import scripts
from taco_launch.setup.files.ssh_files import Member, is_address
from taco_launch.setup.model.host_files import differing, files_of, with_files, without
from taco_launch.setup.model.ops import FileTarget, Op, PlanContext

_STAGE: Final = "ssh_mesh"
# Where the kernel takes a port from that a program does not name: ip-sysctl, ip_local_port_range.
_EPHEMERAL = (32768, 60999)

_UNIT = """[Unit]
Description=The firewall of this host, open for the hosts of {cluster}
After=network-online.target docker.service {firewalls}
Wants=network-online.target
PartOf={firewalls}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh {command}

[Install]
WantedBy=multi-user.target
"""
# What makes its rules anew takes ours away.
# The operation that opens it.
OPEN = "firewall: open it for the cluster's hosts"
_FIREWALLS = "firewalld.service ufw.service nftables.service iptables.service netfilter-persistent.service"


@dataclass(frozen=True)
class _Place:
    """Where all of it is: the folder of the list and the script, the unit's name and its text."""

    folder: str
    unit: str
    text: str

    @property
    def list(self) -> str:
        return f"{self.folder}/firewall"

    @property
    def script(self) -> str:
        return f"{self.folder}/firewall.sh"

    @property
    def unit_file(self) -> str:
        return f"{paths.UNITS}/{self.unit}"


def plan(facts: HostFacts, cluster: PlanContext, own: str, members: tuple[Member, ...]) -> Iterator[Op]:
    """Open this host's firewall for the others, or take that back where it is not wanted any more.

    Opened is TCP from the hosts of the inventory (IPv4), to the container's sshd, to the inventory's `port_range`, and to
    the ports that the kernel gives to programs: NCCL and Gloo listen there, whatever `port_range` is.
    """
    inventory = cluster.inventory
    place = _place(inventory.cluster)
    firewall = active(facts)
    if inventory.network.firewall != "manage" or inventory.container is None:
        yield from taken_back(facts, inventory.cluster, "network.firewall is check")
        return
    there = files_of(facts) or {}
    if firewall is None and place.list not in there:
        return
    others = [each.address for each in members if each.address != own and is_address(each.address)]
    ports = [(inventory.container.ssh_port,) * 2, *filter(None, (inventory.network.port_range,)), _ephemeral(facts)]
    lines = [f"port {_range(*each)}\n" for each in _merged(ports)] + [
        f"host {each}\n" for each in others if ":" not in each
    ]
    wanted = (
        FileTarget(place.list, "".join(lines).encode(), 0o600),
        FileTarget(place.script, scripts.text("firewall.sh").encode(), 0o600),
        FileTarget(place.unit_file, place.text.encode()),
    )
    missing = differing(facts, wanted)
    if missing and len(lines) > len(_merged(ports)):
        put = (replace(wanted[0], path=f"{place.list}.new", shown=place.list), *wanted[1:])
        why = firewall.detail if firewall is not None else "its rules exist, but do not match the inventory"
        opened = ", ".join(_range(*each) for each in _merged(ports))
        why += f"; opened is TCP {opened} ({_range(*_ephemeral(facts))}: NCCL and Gloo listen on ports that the kernel chooses)"
        script, args = scripts.text("reload.sh") + scripts.text("firewall.sh"), ("apply", place.folder, place.unit)
        yield Op(_STAGE, OPEN, why, script, args, put, expect=lambda facts: with_files(facts, wanted))


def active(facts: HostFacts) -> Firewall | None:
    """Return the firewall that stops something on this host, None where there is none or nobody may tell."""
    network = known_value(facts.network)
    firewalls = () if network is None else known_value(network.firewalls) or ()
    return next((each for each in firewalls if each.active), None)


def taken_back(facts: HostFacts, cluster: str, why: str) -> Iterator[Op]:
    """Take back all of it, where there is anything."""
    place = _place(cluster)
    there = files_of(facts) or {}
    found = [path for path in (place.list, f"{place.list}.new", place.script, place.unit_file) if path in there]
    if not found:
        return
    args = ("remove", place.folder, place.unit if place.unit_file in found else "")
    text = scripts.text("reload.sh") + scripts.text("firewall.sh")
    yield Op(
        _STAGE, "firewall: remove the rules of taco-launch", why, text, args, expect=lambda facts: without(facts, found)
    )


def _place(cluster: str) -> _Place:
    folder, unit = paths.host_folder(cluster), paths.firewall_unit(cluster)
    command = f"{folder}/firewall.sh open {folder} {unit}"
    return _Place(folder, unit, _UNIT.format(cluster=cluster, firewalls=_FIREWALLS, command=command))


def _ephemeral(facts: HostFacts) -> tuple[int, int]:
    network = known_value(facts.network)
    return (network and known_value(network.port_range)) or _EPHEMERAL


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
