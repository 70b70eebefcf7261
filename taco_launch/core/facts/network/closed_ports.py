"""Finds the TCP ports that a host's rules close for every other host; what is not certain counts as open."""

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

# chain -> its lines, and the chains that packets to this host start in
Chains = Dict[str, List[str]]
Ranges = Tuple[Tuple[int, int], ...]

# A set of ports is an integer with one bit for each.
_ALL = (1 << 65536) - 2
# The kernel follows 16 jumps of nft. Beyond these limits everything counts as open.
_MOST_JUMPS, _LONGEST_LINE = 64, 10000

# The last group is what cannot be told apart: an open quote, or a set within a set.
_TOKEN = re.compile(r"\"(?:[^\"\\]|\\.)*\"|\{[^{}]*\}|[^\s\"{}]+|(\S.*)")
_HEADER = re.compile(r"type \S+ hook |-[PN] ")
_DROPS = re.compile(r"type \S+ hook [^\"]*\bpolicy drop;|-P \S+ DROP$")
_COMMENT = re.compile(r"^-A \S+|(?<!\S)(?:-m comment|(?:--)?comment \S+|# handle \d+)(?!\S)")
# What a rule without a verdict ends in: it decides on nothing.
_STATEMENT = r"(?<!\S)(?:counter(?: packets \d+ bytes \d+)?|log(?: (?:prefix|level|flags|group|snaplen|queue-threshold) \S+){0,6})"
_QUIET = re.compile(_STATEMENT + r"$| set \S+$|(?<!\S)(?:add|update|delete) @\S+ \{[^{}]*\}$")
_QUIET_TARGETS = re.compile(r"(?:NF|U)?LOG|(?:CONN|SEC|CONNSEC)?MARK|SET|AUDIT|TRACE|TCPMSS")
# What changes nothing about which packets a rule matches.
_NOISE = re.compile(
    _STATEMENT + r"(?!\S)|(?<!\S)(?:-m (?:tcp|multiport|state|conntrack)|(?:meta l4proto|ip protocol|-p) (?:tcp|6)"
    r"|ct state new|--(?:ct)?state NEW)(?!\S)"
)
_PROTOCOL = (
    r"(?:udp|udplite|icmp|icmpv6|ipv6-icmp|igmp|sctp|dccp|gre|esp|ah|ipip|ospf|pim|vrrp|1|2|17|47|50|51|58|112|132|136)"
)
_STATE = r"(?:established|related|invalid)"
# What no new TCP connection over IPv4 from another host matches.
_OTHERS = re.compile(
    rf"(?<!\S)(?:iif(?:name)? \"?lo\"?|(?<!! )-i lo|(?:udp|udplite|sctp|dccp) [ds]port|(?:icmp|icmpv6|igmp) (?:type|code)"
    rf"|ip6 [sd]addr|meta nfproto ipv6|ct status dnat|(?<!! )--ctstatus DNAT|(?<!! )-p {_PROTOCOL}"
    rf"|(?:meta l4proto|ip protocol) (?:{_PROTOCOL}|\{{ {_PROTOCOL}(?:, {_PROTOCOL})* \}})"
    rf"|ct state (?:{_STATE}(?:,{_STATE})*|\{{ {_STATE}(?:, {_STATE})* \}})"
    rf"|ct state vmap \{{ {_STATE} : [^,}}]+(?:, {_STATE} : [^,}}]+)*\}}"
    rf"|(?<!! )--(?:ct)?state {_STATE.upper()}(?:,{_STATE.upper()})*)(?!\S)"
)
_PORTS = re.compile(r"(?<!\S)(?:tcp dport (\{[^{}]*\}|[0-9-]+)|(?<!! )--dports? ([0-9:,]+))(?!\S)")
_PORT = re.compile(r"([0-9]{1,5})(?:[-:]([0-9]{1,5}))?")
_VERDICT = re.compile(
    r"(?<!\S)(?:(accept|drop|return|reject)(?: with \S+(?: type)?(?: \S+)?)?|(jump|goto) (\S+))$"
    r"|(?<!\S)(-[jg]) (\S+)(?: --reject-with \S+| --tarpit)?"
)
_TARGETS = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "drop", "TARPIT": "drop", "RETURN": "return"}
# verdict -> of the ports that it is for: those that it accepts, and those that the calling chain decides on
_ENDS = {"accept": (_ALL, 0), "drop": (0, 0), "reject": (0, 0), "return": (0, _ALL)}


class _Rule(NamedTuple):
    """The ports that a rule matches at most, whether it matches all of their connections, and what becomes of them."""

    ports: int
    certain: bool
    verdict: str
    target: str = ""


_NOTHING = _Rule(0, False, "return")
_UNREAD = _Rule(_ALL, False, "accept")


class _Walk:
    """Follows new TCP connections through chains, each of which is read once."""

    def __init__(self, chains: Chains) -> None:
        self.chains = chains
        self.results: Dict[str, Tuple[int, int]] = {}

    def through(self, chain: str, jumps: int = 0) -> Tuple[int, int]:
        """Return the ports of which a chain may accept connections, and those which it may leave to its caller."""
        if chain in self.results:
            return self.results[chain]
        if chain not in self.chains or jumps > _MOST_JUMPS:
            return _ALL, _ALL
        self.results[chain] = (0, _ALL)  # for a loop, which the kernel refuses
        accepted, returned, here = 0, 0, _ALL
        for rule in map(_rule, self.chains[chain]):
            ports = here & rule.ports
            accepts, passes = _ENDS.get(rule.verdict) or self.through(rule.target, jumps + 1)
            accepted |= ports & accepts
            if rule.verdict != "jump":
                returned |= ports & passes
                passes = 0
            if rule.certain:
                here &= ~ports | passes
        self.results[chain] = (accepted, returned | here)
        return self.results[chain]


def closed_ports(chains: Chains, start: str) -> int:
    """Return the ports that the rules close from `start` on, as a set for `ranges`."""
    accepted, returned = _Walk(chains).through(start)
    drops = any(_DROPS.match(line) for line in chains.get(start, ()))
    return _ALL & ~accepted & ~(0 if drops else returned)


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
    text = _plain(line)
    if text is None:
        return _UNREAD
    bare = _NOISE.sub(" ", text).strip()
    verdict = _VERDICT.search(bare)
    # without the verdict, which may name protocols: reject with icmp type
    matches = bare if verdict is None else bare[: verdict.start()] + bare[verdict.end() :]
    joined = " . " in text  # each side of it is only part of a match
    if _HEADER.match(text) or not text or (not joined and _OTHERS.search(matches)):
        return _NOTHING
    if verdict is None or " vmap " in text:
        return _NOTHING if verdict is None and _QUIET.search(text) else _UNREAD
    if _QUIET_TARGETS.fullmatch(verdict[5] or ""):
        return _NOTHING
    match = None if joined else _PORTS.search(matches)
    ports = _ports(match[1] or match[2]) if match else None
    if match is not None and ports is not None:
        matches = matches.replace(match[0], "", 1)
    jump = "goto" if verdict[4] == "-g" else "jump"
    action = verdict[1] or verdict[2] or _TARGETS.get(verdict[5], jump)
    return _Rule(_ALL if ports is None else ports, not matches.strip(), action, verdict[3] or verdict[5] or "")


def _plain(line: str) -> Optional[str]:
    """Return a line without comments and what is in quotes, but for the loopback interface; None if it cannot be read."""
    if len(line) > _LONGEST_LINE:
        return None
    words = []
    for token in _TOKEN.finditer(re.sub(r'xt target "(\w+)"', r"-j \1", line)):
        if token[1]:
            return None
        words.append('""' if token[0].startswith('"') and token[0] != '"lo"' else token[0])
    return _COMMENT.sub("", " ".join(words)).strip()


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
