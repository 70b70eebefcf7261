"""Rules of nft and iptables: which of them stop what comes in, and who made them."""

import pytest

from taco_launch.core.facts.network.closed_ports import ranges
from taco_launch.core.facts.network.firewall import iptables_drops, nft_drops, parse_firewalls
from taco_launch.core.facts.text.sections import Files, Section
from taco_launch.core.model.host.fact_value import Unknown
from taco_launch.core.model.host.facts import Firewall
from tests.support.host_facts import known

NO_FILES = Files({}, {}, None, None)


def nft(*rules: str, policy: str = "accept", family: str = "inet", more: str = "") -> str:
    lines = "".join(f"\t\t{rule}\n" for rule in rules)
    hook = f"type filter hook input priority filter; policy {policy};"
    return f"table {family} filter {{\n\tchain input {{\n\t\t{hook}\n{lines}\t}}\n{more}}}\n"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", None),
        (nft(), None),
        (nft(policy="drop"), "policy drop"),
        (nft("ct state invalid drop", "ct state { invalid } drop"), None),
        (nft("tcp dport 22 accept", "reject with icmpx admin-prohibited"), "reject with icmpx admin-prohibited"),
        (nft('tcp dport 22 accept comment "never drop this"'), None),
        (nft('counter packets 0 bytes 0 xt target "REJECT"'), 'counter packets 0 bytes 0 xt target "REJECT"'),
        (nft("jump other", more="\tchain other {\n\t\ttcp dport 80 drop\n\t}\n"), "tcp dport 80 drop"),
        (nft('iifname vmap { "eth0" : goto other }', more="\tchain other {\n\t\tdrop\n\t}\n"), "drop"),
        (nft("jump input"), None),
        (nft("accept", more="\tchain unused {\n\t\tdrop\n\t}\n"), None),
        (nft("drop", family="bridge"), None),
        (nft("drop").replace("hook input", "hook forward"), None),
        (nft("accept") + nft("drop", family="ip"), "drop"),
    ],
)
def test_nft(text: str, rule: str | None) -> None:
    found = nft_drops(text)
    assert (found if found is None else found[0].partition(" (nft table ")[0]) == rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", None),
        ("-P INPUT ACCEPT\n-P FORWARD DROP\n", None),
        ("-P INPUT DROP\n", "-P INPUT DROP"),
        ("-A INPUT -m state --state INVALID -j DROP\n", None),
        ("-A INPUT -j ACCEPT\n-A INPUT -p tcp -j REJECT\n", "-A INPUT -p tcp -j REJECT"),
        ('-A INPUT -m comment --comment "DROP nothing" -j ACCEPT\n', None),
        ("-A INPUT -g zone\n-A zone -j deeper\n-A deeper -j DROP\n", "-A deeper -j DROP"),
        ("-A FORWARD -j zone\n-A zone -j DROP\n", None),
    ],
)
def test_iptables(text: str, rule: str | None) -> None:
    found = iptables_drops(text)
    assert (found and found[0]) == rule


EVERY = ((1, 65535),)
BUT_SSH = ((1, 21), (23, 65535))
OF_DISTRIBUTIONS = (
    "ct state established,related accept",
    'iifname "lo" accept',
    "meta l4proto { icmp, ipv6-icmp } accept",
)


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (nft(policy="drop"), EVERY),
        (nft(*OF_DISTRIBUTIONS, "tcp dport 22 accept", "reject with icmpx admin-prohibited"), BUT_SSH),
        (nft(*OF_DISTRIBUTIONS, "tcp dport 22 counter packets 1 bytes 2 accept", "counter drop"), BUT_SSH),
        (nft("tcp dport { 22, 12000-13000 } accept", policy="drop"), ((1, 21), (23, 11999), (13001, 65535))),
        (nft("ip saddr { 10.0.0.1 } tcp dport { 22 } accept", policy="drop"), BUT_SSH),
        (nft("ip saddr 10.0.0.0/8 accept", policy="drop"), ()),
        (nft("tcp dport @open accept", policy="drop"), ()),
        (nft('iifname "eth0" accept', policy="drop"), ()),
        (nft("tcp dport 80 drop"), ((80, 80),)),
        (nft("ip saddr 10.9.0.0/16 drop"), ()),
        (nft("tcp dport 80 drop", family="ip6"), ()),
        (nft("tcp dport != 22 drop"), ()),
        (nft("jump zone", "drop", more="\tchain zone {\n\t\ttcp dport 22 accept\n\t}\n"), BUT_SSH),
        (nft('iifname "eth1" jump zone', more="\tchain zone {\n\t\tdrop\n\t}\n"), ()),
        (nft("jump zone", more="\tchain zone {\n\t\tip saddr 10.0.0.1 return\n\t\tdrop\n\t}\n"), ()),
        (nft("goto zone", "drop", more="\tchain zone {\n\t\ttcp dport 22 return\n\t}\n"), ()),
        (nft("jump input", policy="drop"), EVERY),
        (nft("ct state vmap { established : accept, related : accept, invalid : drop }", policy="drop"), EVERY),
        (nft("tcp dport 22 accept", policy="drop") + nft("tcp dport 12222 accept", "drop", family="ip"), EVERY),
        (nft("tcp dport 22 accept", "reject with icmp type host-prohibited"), BUT_SSH),
        (
            nft("ct state established accept", "udp dport { 53 } accept", "meta l4proto udp accept", policy="drop"),
            EVERY,
        ),
        (nft('tcp dport 22 accept comment "webhook receivers"', policy="drop"), BUT_SSH),
        (nft('iifname "eth0" jump zone comment "was policy drop"', more="\tchain zone {\n\t\tdrop\n\t}\n"), ()),
        (nft('tcp dport 80 drop comment "type filter hook input priority filter; policy drop;"'), ((80, 80),)),
        (nft('tcp dport 22 log prefix "no udp " counter packets 1 bytes 2', policy="drop"), EVERY),
        (nft("ip saddr 10.0.0.1 goto zone", "drop", more="\tchain zone {\n\t}\n"), ()),
        (nft('iifname "eth0" goto zone', "goto zone", more="\tchain zone {\n\t\tdrop\n\t}\n"), EVERY),
    ],
)
def test_the_ports_that_nft_closes(text: str, closed: tuple[tuple[int, int], ...]) -> None:
    found = nft_drops(text)
    assert (ranges(found[1]) if found else ()) == closed


ZONE = "\tchain zone {\n\t\tip saddr 10.0.0.0/8 accept\n\t}\n"


@pytest.mark.parametrize(
    "rule",
    [
        "meta l4proto { tcp, udp } th dport 1024-65535 accept",
        "ip saddr 10.0.0.0/8 meta l4proto { tcp, udp } accept",
        "ip protocol { icmp, tcp, udp } accept",
        "ip protocol != icmp accept",
        "meta l4proto . th dport { tcp . 22, tcp . 1024-65535 } accept",
        "ip saddr . meta l4proto { 10.0.0.0/8 . tcp, 10.0.0.0/8 . udp } accept",
        "ip saddr . tcp dport { 10.0.0.0/8 . 22 } accept",
        "meta l4proto vmap { tcp : jump zone, udp : jump zone }",
        "ip protocol vmap { icmp : jump zone, tcp : jump zone }",
        "ct state vmap { established : accept, new : jump zone }",
        "tcp dport vmap @ports",
        "ip saddr @sctp tcp dport 1-65535 accept",
        "ip saddr @udp accept",
        "ct state { established, untracked } accept",
        'iifname "lo1" accept',
        'iifname { "lo", "ib0" } accept',
        "queue num 0",
        "tcp dport 1-65535 counter packets 1 bytes 2 queue to 0",
        "tcp dport 22 synproxy mss 1460 wscale 7",
        'log prefix "open quote accept',
        "ip saddr { 10.0.0.1,\n\t\t\t     10.0.0.2 } accept",
        "tcp dport { 22 } " + "counter " * 2000 + "accept",
    ],
)
def test_what_nft_may_let_in_is_not_closed(rule: str) -> None:
    found = nft_drops(nft("ct state established,related accept", rule, policy="drop", more=ZONE))
    assert found == ("policy drop (nft table inet filter)", 0)


@pytest.mark.parametrize(
    "rules",
    [
        "-A INPUT ! -p icmp -s 10.0.0.0/8 -j ACCEPT",
        "-A INPUT -p ip -s 10.0.0.0/8 -j ACCEPT",
        "-A INPUT -j NFQUEUE --queue-num 0",
        "-A INPUT -p tcp -j missing",
        "-N drop-all\n-A INPUT -j drop-all\n-A drop-all -s 10.0.0.0/8 -j ACCEPT\n-A drop-all -j DROP",
        '-A INPUT -s 10.0.0.0/8 -m comment --comment "udp \\" -p udp -j DROP" -j ACCEPT',
    ],
)
def test_what_iptables_may_let_in_is_not_closed(rules: str) -> None:
    assert iptables_drops(f"-P INPUT DROP\n{rules}\n") == ("-P INPUT DROP", 0)


def test_rules_that_would_take_long_to_follow() -> None:
    layers = "".join(f"-A c{n} -s 10.0.{i}.0/24 -j c{n + 1}\n" for n in range(40) for i in range(3))
    found = iptables_drops(f"-P INPUT DROP\n-N c40\n-A INPUT -j c0\n{layers}")
    assert found is not None
    assert ranges(found[1]) == EVERY
    deep = "".join(f"-A c{n} -j c{n + 1}\n" for n in range(3000))
    assert iptables_drops(f"-A INPUT -j c0\n{deep}-A c3000 -j DROP\n") == ("-A c3000 -j DROP", 0)
    logs = ["log level " * 900] * 200
    assert nft_drops(nft("tcp dport {" * 100000, *logs, policy="drop")) == ("policy drop (nft table inet filter)", 0)


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("-P INPUT DROP\n", EVERY),
        ('-P INPUT DROP\n-N empty\n-A INPUT -j empty\n-A INPUT -j LOG --log-prefix "DROP "\n', EVERY),
        ("-P INPUT DROP\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n", BUT_SSH),
        (
            "-P INPUT DROP\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p icmp -j ACCEPT\n",
            EVERY,
        ),
        (
            "-P INPUT DROP\n-A INPUT -i lo -j ACCEPT\n-A INPUT -p tcp -m multiport --dports 22,12000:65535 -j ACCEPT\n",
            ((1, 21), (23, 11999)),
        ),
        ("-P INPUT DROP\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\n", ()),
        ("-P INPUT DROP\n-A INPUT ! -i lo -j ACCEPT\n", ()),
        ("-A INPUT -p tcp -m state --state NEW -m tcp --dport 80 -j REJECT --reject-with tcp-reset\n", ((80, 80),)),
        ("-P INPUT ACCEPT\n-A INPUT -j zone\n-A zone -p udp -j ACCEPT\n-A zone -j DROP\n", EVERY),
        ("-A INPUT -m addrtype --dst-type LOCAL -j RETURN\n-A INPUT -j DROP\n", ()),
    ],
)
def test_the_ports_that_iptables_closes(text: str, closed: tuple[tuple[int, int], ...]) -> None:
    found = iptables_drops(text)
    assert (ranges(found[1]) if found else ()) == closed


def sections(nft_said: Section, iptables_said: str = "", firewalld: str = "inactive\n") -> dict[str, Section]:
    return {
        "network.firewalld": Section("network.firewalld", firewalld, "", 0 if firewalld == "active\n" else 3),
        "network.nft": nft_said,
        "network.iptables": Section("network.iptables", iptables_said, "", 0),
    }


def ruleset(text: str, stderr: str = "", code: int = 0) -> Section:
    return Section("network.nft", text, stderr, code)


UFW = Files({"/etc/ufw/ufw.conf": "ENABLED=yes\nLOGLEVEL=low"}, {}, None, None)
DENIED = ruleset("", "Operation not permitted (you must be root)\n", 1)


def test_who_made_the_rules() -> None:
    drops = ruleset(nft("drop"))
    text = "does not let everything in: drop (nft table inet filter)"
    assert parse_firewalls(sections(drops), NO_FILES) == (Firewall("nftables", True, f"nftables {text}", EVERY),)
    assert parse_firewalls(sections(drops), UFW) == (Firewall("ufw", True, f"ufw {text}", EVERY),)
    active = sections(drops, firewalld="active\n")
    assert parse_firewalls(active, NO_FILES) == (Firewall("firewalld", True, f"firewalld {text}", EVERY),)
    old = sections(ruleset("", "nft: not found\n", 127), "-P INPUT DROP\n")
    assert parse_firewalls(old, NO_FILES) == (
        Firewall("iptables", True, "iptables does not let everything in: -P INPUT DROP", EVERY),
    )


def test_a_firewall_that_lets_everything_in() -> None:
    assert parse_firewalls(sections(ruleset(nft()), firewalld="active\n"), NO_FILES) == (
        Firewall("firewalld", False, "firewalld lets everything in"),
    )
    assert parse_firewalls(sections(ruleset(nft())), NO_FILES) == ()


def test_rules_that_may_not_be_read() -> None:
    why = "the rules cannot be read: Operation not permitted (you must be root) (exit code 1)"
    assert parse_firewalls(sections(DENIED), NO_FILES) == Unknown(why)
    assert parse_firewalls(sections(DENIED, firewalld="active\n"), NO_FILES) == Unknown(f"{why}; firewalld is active")
    # what iptables shows is known all the same
    found = known(parse_firewalls(sections(DENIED, "-P INPUT DROP\n"), NO_FILES))
    assert found[0].active


def test_a_kernel_without_nft() -> None:
    none = ruleset("", "netlink: Error: cache initialization failed: Protocol not supported\n", 1)
    assert parse_firewalls(sections(none), NO_FILES) == ()
