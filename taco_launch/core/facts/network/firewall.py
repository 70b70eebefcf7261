"""Reads whether a firewall drops or rejects anything that comes in: the kernel's rules, whoever made them."""

import re
from typing import Dict, List, Optional, Tuple

from taco_launch.core.facts.network.closed_ports import Chains, closed_ports, ranges
from taco_launch.core.facts.text.sections import Failure, Files, Sections, failure, section_summary
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import Firewall

_NO_RIGHT = ("Permission denied", "Operation not permitted", "must be root")
# The kernel has no such rules at all.
_NO_RULES = ("Protocol not supported", "No such file or directory")


def parse_firewalls(sections: Sections, told: Files) -> Found[Tuple[Firewall, ...]]:
    """Return the firewall of a host, named after who made its rules; `()` where there is none.

    What is dropped as broken (`ct state invalid`) is nothing that a job sends, and does not count. Unknown where the
    rules cannot be read, as by an ordinary user.
    """
    firewalld = sections.get("network.firewalld")
    made_by = "firewalld" if firewalld is not None and set(firewalld.stdout.split()) == {"active"} else None
    # the unit of ufw is active where ufw is switched off, too
    if made_by is None and re.search(r"(?mi)^ENABLED=[\"']?yes", told.texts.get("/etc/ufw/ufw.conf", "")):
        made_by = "ufw"
    rules, missing = _rules(sections)
    if rules:
        tool, rule, _ = rules[0]
        by = made_by or tool
        closed = 0
        for _, _, ports in rules:
            closed |= ports
        return (Firewall(by, True, f"{by} does not let everything in: {rule}", ranges(closed)),)
    if missing is not None:
        beside = f"; {made_by} is active" if made_by else ""
        return Unknown(f"the rules cannot be read: {missing.reason}{beside}")
    return (Firewall(made_by, False, f"{made_by} lets everything in"),) if made_by else ()


def nft_drops(text: str) -> Optional[Tuple[str, int]]:
    """Return the first rule of `nft list ruleset` that stops what comes in, and where it stands; None where none does.

    With it, the set of ports that all rules together close; see `closed_ports`.
    """
    chains: Dict[str, Chains] = {}
    starts: List[Tuple[str, str]] = []
    table = chain = ""
    for line in text.split("\n"):
        heading = re.fullmatch(r"table (?:(\S+) )?(\S+) \{.*", line)
        named = re.fullmatch(r"\s+chain (\S+) \{.*", line)
        if heading is not None:
            table, chain = f"{heading[1] or 'ip'} {heading[2]}", ""
        elif named is not None:
            chain = named[1]
            chains.setdefault(table, {})[chain] = []
        elif re.fullmatch(r"\t?\}", line):
            chain = ""
        elif chain and line.strip():
            chains[table][chain].append(line.strip())
            if re.match(r"\s*type \S+ hook input\b", line) and table.split(" ")[0] in ("ip", "inet", "ip6"):
                starts.append((table, chain))
    first = ""
    closed = 0
    for table, chain in starts:
        rule = _stops(chains[table], chain)
        if rule is not None:
            first = first or f"{rule} (nft table {table})"
        if not table.startswith("ip6 "):  # hosts are reached by IPv4
            closed |= closed_ports(chains[table], chain)
    return (first, closed) if first else None


def iptables_drops(text: str) -> Optional[Tuple[str, int]]:
    """Return the first rule of `iptables -S` that stops what comes in, and the ports as `nft_drops` does; None if none stops anything."""
    chains: Chains = {"INPUT": []}
    for line in text.split("\n"):
        match = re.match(r"-([APN]) (\S+)", line)
        if match is not None:
            chains.setdefault(match[2], []).extend([line.strip()] if match[1] != "N" else [])
    rule = _stops(chains, "INPUT")
    return None if rule is None else (rule, closed_ports(chains, "INPUT"))


def _rules(sections: Sections) -> Tuple[List[Tuple[str, str, int]], Optional[Failure]]:
    """Return (tool, rule, closed ports) of what nft and iptables show to be stopped, and why one of them shows nothing."""
    found: List[Tuple[str, str, int]] = []
    missing: Optional[Failure] = None
    for tool, name, drops in (
        ("nftables", "network.nft", nft_drops),
        ("iptables", "network.iptables", iptables_drops),
    ):
        section = sections.get(name)
        why = failure(sections, name)
        if section is not None:
            rule = drops(section.stdout)
            if rule is not None:
                found.append((tool, rule[0], rule[1] if why is None else 0))  # what is cut off may open ports
            if why is None and any(words in section.stderr for words in _NO_RIGHT):
                why = Unknown(section_summary(section))
            if why is not None and any(words in section.stderr for words in _NO_RULES) and not section.stdout.strip():
                why = None
        if why is not None and not isinstance(why, Absent):
            missing = why
    return found, missing


def _stops(chains: Chains, start: str) -> Optional[str]:
    """Return the first rule of a chain, or of those that it leads to, that drops or rejects."""
    passed = {start}
    rules = chains.get(start, [])[::-1]
    while rules:
        rule = rules.pop()
        bare = re.sub(r'xt target "(\w+)"', r"-j \1", rule)
        bare = re.sub(r'"[^"]*"|--comment [^\s"]+', "", bare)
        if re.search(r"\b(?:invalid|INVALID)\b", bare):
            continue
        if re.search(r"(?<![\w-])(?:drop|reject|DROP|REJECT|TARPIT)(?![\w-])", bare):
            return "policy drop" if bare.startswith("type ") else rule
        for target in re.findall(r"(?:\bjump|\bgoto|-[jg]) ([^\s,}]+)", bare)[::-1]:
            if target not in passed:
                passed.add(target)
                rules += chains.get(target, [])[::-1]
    return None
