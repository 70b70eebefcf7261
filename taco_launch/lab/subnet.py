"""Which addresses a lab gets: a network of its own that nothing else on this machine uses."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

from taco_launch.core.errors import TacoLaunchError

MAX_HOSTS = 200
# The last resort of addressing plans: 10.213/16 first, then what RFC 1918 has besides it.
_CANDIDATES = ("10.213.0.0/16", "172.29.0.0/16", "192.168.128.0/17")
_REGISTRY = 2  # .1 is the engine's own
_FIRST_HOST = 11


def free(taken: Iterable[IPv4Network]) -> IPv4Network:
    """Return a /24 that overlaps with none of the networks in `taken`.

    Raises:
        TacoLaunchError: there is none.
    """
    used = tuple(taken)
    for candidate in _CANDIDATES:
        for subnet in IPv4Network(candidate).subnets(new_prefix=24):
            if not any(subnet.overlaps(other) for other in used):
                return subnet
    raise TacoLaunchError(
        f"no network is free for the lab: routes of this machine cover {', '.join(_CANDIDATES)}",
        hint="remove another lab (taco-launch lab down --all) or a Docker network (docker network prune)",
    )


def routed(table: str) -> tuple[IPv4Network, ...]:
    """Read /proc/net/route: the networks that this machine has routes to, without the default route."""
    found = []
    for line in table.splitlines()[1:]:
        words = line.split()
        # fields 1 and 7: destination and mask, in hexadecimal and in the byte order of this machine (little endian)
        address, mask = (IPv4Address(bytes.fromhex(words[index])[::-1]) for index in (1, 7))
        if int(mask):
            found.append(IPv4Network(f"{address}/{mask}"))
    return tuple(found)


def registry(subnet: IPv4Network) -> str:
    """Return the registry's address."""
    return str(subnet[_REGISTRY])


def host(subnet: IPv4Network, number: int) -> str:
    """Return the address of host `number`, which starts with 1."""
    return str(subnet[_FIRST_HOST + number - 1])
