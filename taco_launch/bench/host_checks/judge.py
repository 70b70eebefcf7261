"""Judges measured hosts beside one another: what is far below the others in all of its repetitions is slow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from taco_launch.bench.host_checks.results import NETWORK, HostMeasurements, MeasuredValue
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, HealthVerdict

# A value is slow if its best repetition is below this share of what is usual.
SLOW = 0.7
# Packets that are sent again: a network without faults has far fewer.
_LOSSY = 0.01
# With fewer hosts, it is not known which one is slow.
_FEW = 3
_RULE = f"taco-launch: all repetitions are above {SLOW:.0%} of"
_OF_HOSTS = f"{_RULE} the median of the hosts with as many cores"
_OF_FLOOR = "--expect"
_OF_NETWORK = f"{_RULE} the fast quarter of all directions"
_OF_PACKETS = f"taco-launch: at most {_LOSSY:.0%} of packets are sent again"
_NOTHING_ELSE = "is another program using the host? dmesg -T and the BIOS's power settings show more; then drain it"
_CABLE = "check its cable, transceiver and switch port: ethtool NIC, ethtool -S NIC; then drain it"
_KINDS = "are the hosts in several racks, or of several kinds? check them apart"
_FIREWALL = (
    "does a firewall close ports between the hosts? open network.port_range of the inventory, or all ports without it"
)
_HINTS = {
    "CPU rate": f"lscpu and turbostat show the clocks; {_NOTHING_ELSE}",
    "CPU rate, one core": f"lscpu and turbostat show the clocks; {_NOTHING_ELSE}",
    "memory copy": "dmidecode -t memory: are all modules there, at full speed? then drain the host",
    "disk write": "dmesg -T and smartctl -a show errors of the disk; df shows how full it is",
    "disk read": "dmesg -T and smartctl -a show errors of the disk",
}
_GPU_HINT = "nvidia-smi -q shows clocks, links and errors; drain the host"
_DIAG_HINT = "dcgmi diag -r 2 shows it"
_ON_HOST = "add it to the image; or, if the host has it, drain the host and run there: dcgmi diag -r 2"
METRICS = tuple(_HINTS)

Judged = Iterator[tuple[str, HealthVerdict]]


def verdicts(
    measured: HostMeasurements, hosts: Sequence[str], floors: Mapping[str, float]
) -> tuple[tuple[str, tuple[HealthVerdict, ...]], ...]:
    """Return the verdicts of each host; `floors` are the least values in bytes/s by their names."""
    by_host: dict[str, list[HealthVerdict]] = {host: [] for host in hosts}
    network = [each for each in measured.values if each.name == NETWORK]
    for host, verdict in (
        *_values(measured, floors),
        *_programs(measured),
        *_network(network, measured.round_trips, measured.cores),
    ):
        if verdict not in by_host[host]:
            by_host[host].append(verdict)
    return tuple((host, tuple(each)) for host, each in by_host.items())


def faulty_hosts(judged: Iterable[tuple[str, Sequence[HealthVerdict]]]) -> tuple[str, ...]:
    """Return the hosts with a fault, but for those of a slow link between two hosts: it may be either."""
    return tuple(
        host for host, each in judged if any(one.level == FAULT and one.name != "network link" for one in each)
    )


def _values(measured: HostMeasurements, floors: Mapping[str, float]) -> Judged:
    """Judge values of single hosts, beside hosts with as many cores: others are of another kind."""
    kinds: dict[tuple[str, int | None], list[MeasuredValue]] = {}
    for each in measured.values:
        if len(each.hosts) == 1:
            kinds.setdefault((each.name, measured.cores.get(each.hosts[0])), []).append(each)
    for (name, _cores), of_kind in kinds.items():
        good = [each for each in of_kind if each.values]
        usual = median(median(each.values) for each in good) if good else 0.0
        for each in of_kind:
            yield each.hosts[0], _value(each, usual, len(good), floors.get(name))


def _value(each: MeasuredValue, usual: float, count: int, floor: float | None) -> HealthVerdict:
    name = "nvbandwidth" if each.name.startswith("nvbandwidth ") else each.name
    hint = _HINTS.get(name, _GPU_HINT)
    lead = "" if name == each.name else f"{each.name.partition(' ')[2]} "
    if not each.values:
        return HealthVerdict("measurement", NOT_POSSIBLE, each.problem, _OF_HOSTS)
    if floor is not None and max(each.values) < floor:
        text = f"{lead}{rate(each.values)}; expected at least {_amount(floor)}"
        return HealthVerdict(name, FAULT, text, _OF_FLOOR, hint)
    if count >= _FEW and _is_slow(each, usual):
        text = f"{lead}{rate(each.values)}; the median of the hosts is {_amount(usual)}"
        return HealthVerdict(name, FAULT, text, _OF_HOSTS, hint)
    if count < _FEW and floor is None:
        text = f"{lead}{rate(each.values)}; not judged: that requires {_FEW} hosts with as many cores, or --expect"
        return HealthVerdict(name, NOT_POSSIBLE, text, _OF_HOSTS)
    return HealthVerdict(name, OK, lead + rate(each.values), _OF_HOSTS)


def _is_slow(each: MeasuredValue, usual: float) -> bool:
    """Return whether all repetitions are below what is usual, and again beside a usual one: a busy moment is no fault."""
    if not each.values or max(each.values) >= SLOW * usual:
        return not each.values
    return not (each.again and each.control) or max(each.again) < SLOW * min(each.control)


def _programs(measured: HostMeasurements) -> Judged:
    for host, programs in measured.programs.items():
        for program, done in programs.items():
            name, source = ("DCGM diag" if program == "dcgmi" else program), f"{program}, in the job's image"
            tests = measured.diagnosed.get(host, ()) if program == "dcgmi" else ()
            if done is None:
                hint = _ON_HOST if program == "dcgmi" else ""
                text = f"{program} is not installed in the job's image"
                yield host, HealthVerdict(name, NOT_POSSIBLE, text, source, hint)
            elif tests:
                yield from ((host, each) for each in _diagnosed(tests, done[0], source))
            elif done[0] or program == "dcgmi":
                # Without results a program could not start, or had no service.
                tested = any(
                    each.values and each.hosts == (host,) and each.name.startswith(program) for each in measured.values
                )
                level = FAULT if tested else NOT_POSSIBLE
                text = f"exit code {done[0]}: {' '.join(done[1].split())[-200:] or 'no results'}"
                yield host, HealthVerdict(name, level, text, source, _GPU_HINT if level == FAULT else "")


def _diagnosed(tests: Sequence[tuple[str, str, str]], code: int, source: str) -> Iterator[HealthVerdict]:
    """Yield the verdicts of DCGM itself: one for each test that has not passed, and one for all that have."""
    for test, level, words in tests:
        if level != OK:
            hint = {FAULT: _GPU_HINT, WARNING: _DIAG_HINT}.get(level, "")
            yield HealthVerdict("DCGM diag", level, f"{test}: {words}", source, hint)
    passed = ", ".join(test for test, level, _words in tests if level == OK)
    if code and all(level == OK for _test, level, _words in tests):
        yield HealthVerdict("DCGM diag", FAULT, f"exit code {code}, although {passed} passed", source, _DIAG_HINT)
    elif passed:
        yield HealthVerdict("DCGM diag", OK, f"{passed} passed", source)


def _network(
    values: Sequence[MeasuredValue], trips: Mapping[tuple[str, str], float], cores: Mapping[str, int]
) -> Judged:
    """Name the hosts and the single links that are slow, and those that lose packets.

    A host that loses packets is slow in some of its directions only, so a bad direction of a named host is not a fault of its
    link to another host.
    """
    if not values:
        return
    rates = sorted(median(each.values) for each in values if each.values)
    if not rates:
        for host in dict.fromkeys(host for each in values for host in each.hosts):
            text = f"no host can connect to another: {next(each.problem for each in values if host in each.hosts)}"
            yield host, HealthVerdict(NETWORK, NOT_POSSIBLE, text, _OF_NETWORK, _FIREWALL)
        return
    # Not the median of all: of four hosts, half of the directions are slow where one host is.
    usual = rates[3 * len(rates) // 4]
    slow = {each.hosts for each in values if _is_slow(each, usual)}
    hosts = tuple(dict.fromkeys(host for each in values for host in each.hosts))
    directions = [each.hosts for each in values]
    named, links = blame(directions, slow)
    level, hint = _level(named, len(hosts))
    lossy = {each.hosts: median(each.resent) for each in values if each.resent and median(each.resent) > _LOSSY}
    losing, lossy_links = blame(directions, lossy)
    slow_hosts = {host for host, _side in named}
    faulty = slow_hosts | {host for host, _side in losing}
    alike = {cores.get(host) for host in hosts if host not in slow_hosts}
    for host in hosts:
        # Where no host of its kind is faster, its network may be of another kind, too.
        advice = (level, hint) if cores.get(host) in alike else (WARNING, _KINDS)
        sides = [side for each, side in named if each == host]
        own = [[each for each in values if each.hosts[side] == host] for side in (0, 1)]
        for side in sides:
            text = f"{('sends', 'receives')[side]} {_all(own[side])}; usual is {_amount(usual, bits=True)}"
            yield host, HealthVerdict(NETWORK, advice[0], text, _OF_NETWORK, advice[1])
        if not sides:
            shortest = min((time for pair, time in trips.items() if host in pair), default=0.0)
            text = f"sends {_all(own[0])}, receives {_all(own[1])}, round trip {1e6 * shortest:.0f} us"
            yield host, HealthVerdict(NETWORK, OK, text, _OF_NETWORK)
    by_ends = {each.hosts: each for each in values}
    for ends in sorted(each for each in links if faulty.isdisjoint(each)):
        text = f"{ends[0]} to {ends[1]}: {_all([by_ends[ends]])}; usual is {_amount(usual, bits=True)}"
        for host in ends:
            yield host, HealthVerdict("network link", level, text, _OF_NETWORK, _link_hint(len(hosts)))
    level, hint = _level(losing, len(hosts))
    for host in dict.fromkeys(host for host, _side in losing):
        share = median(share for ends, share in lossy.items() if host in ends)
        text = f"{share:.1%} of packets are sent again"
        yield host, HealthVerdict("packet loss", level, text, _OF_PACKETS, hint)
    for ends in sorted(each for each in lossy_links if faulty.isdisjoint(each)):
        text = f"{ends[0]} to {ends[1]}: {lossy[ends]:.1%} of packets are sent again"
        for host in ends:
            yield host, HealthVerdict("packet loss", WARNING, text, _OF_PACKETS, _link_hint(len(hosts)))


def _level(named: Sequence[tuple[str, int]], count: int) -> tuple[str, str]:
    """Return the level and the hint of named hosts; so many of them are more likely racks than broken hosts."""
    several = len({host for host, _side in named})
    if 2 * several > count or 2 * several == count > 4:
        return WARNING, _KINDS
    return FAULT, _CABLE


def _link_hint(count: int) -> str:
    if count == 2:
        return "to tell which of the two it is, check them with a third host"
    return "only these two are slow together: check the switches between them and their routes"


def blame(
    directions: Sequence[tuple[str, ...]], bad: Iterable[tuple[str, ...]]
) -> tuple[tuple[tuple[str, int], ...], frozenset[tuple[str, ...]]]:
    """Return the sides of hosts, 0 for sending, that explain bad directions, and the bad ones that no host explains.

    A side is named if most of its directions are bad, at least two; the one with the most first, and what it explains
    counts no more for others.
    """
    remaining, bad = set(directions), set(bad)
    named: list[tuple[str, int]] = []
    while True:
        counts = {}
        for side in (0, 1):
            for host in sorted({each[side] for each in bad}):
                own = {each for each in remaining if each[side] == host}
                counts[host, side] = (len(own & bad) / len(own), len(own & bad))
        worst = max((key for key in counts if counts[key][1] >= 2), key=lambda key: counts[key], default=None)
        if worst is None or counts[worst][0] <= 0.5:
            return tuple(named), frozenset(bad)
        named.append(worst)
        explained = {each for each in remaining if each[worst[1]] == worst[0]}
        remaining, bad = remaining - explained, bad - explained


def _all(values: Sequence[MeasuredValue]) -> str:
    """Return the rate of directions together, or what is wrong with all of them."""
    every = [value for each in values for value in each.values]
    problems = [each.problem for each in values if not each.values]
    return rate(every, bits=True) if every else f"nothing ({problems[0] if problems else 'not measured'})"


def rate(values: Sequence[float], *, bits: bool = False) -> str:
    """Return the median of rates with the lowest and the highest, in GB/s, or with `bits` in Gbit/s."""
    low, high = (f"{(8 if bits else 1) * each / 1e9:.3g}" for each in (min(values), max(values)))
    return f"{_amount(median(values), bits=bits)} [{low}, {high}]"


def _amount(value: float, *, bits: bool = False) -> str:
    return f"{8 * value / 1e9:.3g} Gbit/s" if bits else f"{value / 1e9:.3g} GB/s"
