"""Finds the TCP ports that a host's rules close for every other host; what is not certain counts as open."""

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

# chain -> its lines, and the chains that packets to this host start in
Chains = Dict[str, List[str]]
Ranges = Tuple[Tuple[int, int], ...]

# A set of ports is an integer with one bit for each.
_ALL = (1 << 65536) - 2
# What changes nothing about which packets a rule matches.
_NOISE = re.compile(
    r"^-A \S+ |comment \"[^\"]*\"|-m comment|--comment (?:\"[^\"]*\"|\S+)|counter(?: packets \d+ bytes \d+)?|# handle \d+"
    r"|-m (?:tcp|multiport|state|conntrack)\b|(?:meta l4proto|ip protocol) (?:tcp|6)\b|-p (?:tcp|6)\b"
    r"|\blog\b(?: prefix \"[^\"]*\")?|ct state new\b|--(?:ct)?state NEW\b"
)
# What no new TCP connection over IPv4 from another host matches.
_OTHERS = re.compile(
    r"\biif(?:name)? \"?lo\b|(?<!! )-i lo\b|\b(?:udp|icmp|icmpv6|ipv6-icmp|ip6|sctp) |nfproto ipv6|ct status dnat|--ctstatus DNAT"
    r"|(?:meta l4proto|ip protocol) (?!!=)(?!\{[^}]*\btcp\b)|(?<!! )-p (?!tcp\b|6\b|all\b)"
    r"|ct state (?:vmap )?(?!!=)(?!vmap)(?!\{[^}]*\bnew\b)(?!\S*\bnew\b)|(?<!! )--(?:ct)?state (?!\S*\bNEW\b)"
)
_PORTS = re.compile(r"tcp dport (\{[^}]*\}|[0-9-]+)|(?<!! )--dports? ([0-9:,]+)")
_PORT = re.compile(r"([0-9]{1,5})(?:[-:]([0-9]{1,5}))?")
_ACTION = re.compile(
    r"(?:-[jg] )?\b(accept|drop|reject|return|tarpit)\b(?: with .*| --reject-with \S+)?|(jump|goto|-j|-g) ([^\s,}]+)",
    re.IGNORECASE,
)


class _Rule(NamedTuple):
    """The ports that a rule matches at most, whether it matches all of their connections, and what becomes of them."""

    ports: int
    certain: bool
    actions: Tuple[Tuple[str, str], ...]


class _Walk:
    """Follows a new TCP connection through chains: `left` are the ports that no rule has decided on yet."""

    def __init__(self, chains: Chains) -> None:
        self.chains = chains
        self.left, self.closed = _ALL, 0

    def through(self, chain: str, ports: int, certain: bool, path: Tuple[str, ...]) -> None:
        """Decide on `ports` by the rules of a chain; `certain`: all of their connections come here."""
        for line in self.chains.get(chain, ()) if chain not in path else ():
            rule = _rule(line)
            for action, target in rule.actions:
                reached, sure = self.left & ports & rule.ports, certain and rule.certain
                if action == "return":
                    if rule.certain and rule.ports == _ALL:
                        return
                    certain = False
                elif target:
                    self.through(target, reached, sure, (*path, chain))
                    if action in ("goto", "-g") and rule.certain and rule.ports == _ALL:
                        return
                elif action == "accept" or sure:
                    self.left &= ~reached
                    self.closed |= reached if action != "accept" else 0


def closed_ports(chains: Chains, start: str) -> int:
    """Return the ports that the rules close from `start` on, as a set for `ranges`."""
    walk = _Walk(chains)
    walk.through(start, _ALL, True, ())
    drops = any(re.search(r"policy drop|^-P \S+ DROP", line) for line in chains.get(start, ()))
    return walk.closed | (walk.left if drops else 0)


def ranges(ports: int) -> Ranges:
    """Return a set of ports as first and last of each range."""
    spans = []
    first = 0
    while ports >> first:
        bits = ports >> first
        first += (bits & -bits).bit_length() - 1
        gap = ~(ports >> first)
        last = first + (gap & -gap).bit_length() - 2
        spans.append((first, last))
        first = last + 1
    return tuple(spans)


def _rule(line: str) -> _Rule:
    """Read a line of nft or iptables; it does nothing where no new TCP connection from another host matches it."""
    text = re.sub(r'xt target "(\w+)"', r"-j \1", line)
    if "hook " in text or text.startswith("-P ") or _OTHERS.search(_NOISE.sub(" ", text)):
        return _Rule(0, False, ())
    bare = _NOISE.sub(" ", text)
    match = _PORTS.search(bare)
    ports = _ports(match[1] or match[2]) if match else None
    actions = tuple(((each[1] or each[2]).lower(), each[3] or "") for each in _ACTION.finditer(bare))
    rest = _ACTION.sub(" ", bare if ports is None or match is None else bare.replace(match[0], " "))
    return _Rule(_ALL if ports is None else ports, not rest.strip() and "vmap" not in bare, actions)


def _ports(text: str) -> Optional[int]:
    """Return the ports of `22`, `{ 22, 80-90 }` or `22,80:90`; None for names."""
    ports = 0
    for word in text.strip("{} ").replace(" ", "").split(","):
        match = _PORT.fullmatch(word)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        ports |= ((1 << max(last - first + 1, 0)) - 1) << first
    return ports & _ALL
