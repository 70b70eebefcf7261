"""Who is slow, by simulated measurements: the right host, side or link is named, and none where nothing is wrong."""

import itertools
import random
from collections.abc import Callable, Iterable

import pytest

from taco_launch.bench.host_checks.judge import faulty_hosts, verdicts
from taco_launch.bench.host_checks.plan import REPEATS, rounds
from taco_launch.bench.host_checks.program.gpu_programs import readings
from taco_launch.bench.host_checks.results import NETWORK, HostMeasurements, MeasuredValue
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, HealthVerdict

SEEDS = range(25)
RATE = 1.2e9
Direction = tuple[str, str]
Found = dict[str, tuple[HealthVerdict, ...]]


def names(count: int) -> tuple[str, ...]:
    return tuple(f"gpu{number}" for number in range(1, count + 1))


def network(
    seed: int,
    count: int,
    factor: Callable[[Direction], float],
    *,
    bisect: bool = False,
    resent: float = 0.0005,
    loser: str = "",
) -> Found:
    """Judge directions whose rate is `factor` of the usual one, with noise of a busy machine."""
    dice, hosts = random.Random(seed), names(count)
    found = []
    for pair in (pair for each in rounds(count, bisect=bisect) for pair in each):
        for ends in ((hosts[pair[0]], hosts[pair[1]]), (hosts[pair[1]], hosts[pair[0]])):
            rates = tuple(RATE * factor(ends) * min(1.1, dice.lognormvariate(0, 0.12)) for _ in range(REPEATS))
            lost = tuple(0.03 if loser in ends else dice.uniform(0, resent) for _ in rates)
            found.append(MeasuredValue(NETWORK, ends, rates, lost))
    return dict(verdicts(HostMeasurements(tuple(found), {}, {}), hosts, {}))


def wrong(found: Found) -> dict[str, list[tuple[str, str]]]:
    bad = {host: [(each.name, each.text.split()[0]) for each in every if each.level != OK] for host, every in found.items()}  # fmt: skip
    return {host: every for host, every in bad.items() if every}


@pytest.mark.parametrize("count", [2, 3, 4, 8, 33])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_named_where_nothing_is_wrong(seed: int, count: int) -> None:
    assert wrong(network(seed, count, lambda _ends: 1.0)) == {}


@pytest.mark.parametrize(("count", "bisect"), [(3, False), (4, False), (9, False), (64, True), (100, True)])
@pytest.mark.parametrize(("sides", "words"), [((0,), ["sends"]), ((1,), ["receives"]), ((0, 1), ["sends", "receives"])])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_host_is_named_with_its_side(
    seed: int, sides: tuple[int, ...], words: list[str], count: int, bisect: bool
) -> None:
    bad = f"gpu{random.Random(seed).randint(1, count)}"
    found = network(seed, count, lambda ends: 0.4 if any(ends[side] == bad for side in sides) else 1.0, bisect=bisect)
    assert wrong(found) == {bad: [(NETWORK, word) for word in words]}
    assert faulty_hosts(found.items()) == (bad,)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_link_names_its_two_ends_and_its_direction(seed: int) -> None:
    first, second = random.Random(seed).sample(names(6), 2)
    found = network(seed, 6, lambda ends: 0.4 if ends == (first, second) else 1.0)
    assert wrong(found) == {host: [("network link", first)] for host in sorted((first, second))}
    assert f"{first} to {second}: " in next(each.text for each in found[first] if each.level == FAULT)
    assert faulty_hosts(found.items()) == (), "nobody can tell which of them it is"


@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_hosts_the_slow_direction_is_named(seed: int) -> None:
    found = network(seed, 2, lambda ends: 0.4 if ends == ("gpu2", "gpu1") else 1.0)
    assert wrong(found) == {host: [("network link", "gpu2")] for host in names(2)}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_single_slow_direction_to_a_named_host_is_not_blamed_on_the_other_end(seed: int) -> None:
    bad, other = random.Random(seed).sample(names(4), 2)
    found = network(seed, 4, lambda ends: 0.3 if ends[0] == bad or ends == (other, bad) else 1.0)
    assert wrong(found) == {bad: [(NETWORK, "sends")]}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_host_that_loses_packets_is_not_one_end_of_a_slow_link(seed: int) -> None:
    bad, other = random.Random(seed).sample(names(4), 2)
    found = network(seed, 4, lambda ends: 0.3 if ends == (bad, other) else 1.0, loser=bad)
    assert wrong(found) == {bad: [("packet loss", "3.0%")]}


@pytest.mark.parametrize("seed", SEEDS)
def test_two_slow_senders_do_not_blame_who_receives_from_them(seed: int) -> None:
    bad = random.Random(seed).sample(names(5), 2)
    found = network(seed, 5, lambda ends: 0.3 if ends[0] in bad else 1.0)
    assert wrong(found) == {host: [(NETWORK, "sends")] for host in sorted(bad)}


def test_racks_with_a_slow_network_between_them_are_no_faults() -> None:
    found = network(1, 8, lambda ends: 1.0 if (ends[0] < "gpu5") == (ends[1] < "gpu5") else 0.5)
    assert {each.level for every in found.values() for each in every} == {WARNING, OK}


@pytest.mark.parametrize("seed", SEEDS)
def test_packets_that_are_lost_name_their_host(seed: int) -> None:
    hosts, dice = names(4), random.Random(seed)
    bad = dice.choice(hosts)
    values = [
        MeasuredValue(NETWORK, (one, other), (RATE,) * 3, (dice.uniform(0.02, 0.08),) * 3 if bad in (one, other) else (0.001,) * 3)
        for one in hosts
        for other in hosts
        if one != other
    ]  # fmt: skip
    found = dict(verdicts(HostMeasurements(tuple(values), {}, {}), hosts, {}))
    assert [(host, [name for name, _ in each]) for host, each in wrong(found).items()] == [(bad, ["packet loss"])]
    assert faulty_hosts(found.items()) == (bad,)
    two = tuple(each for each in values if set(each.hosts) == {bad, next(host for host in hosts if host != bad)})
    judged = dict(verdicts(HostMeasurements(two, {}, {}), two[0].hosts, {}))
    assert [each.level for every in judged.values() for each in every if each.name == "packet loss"] == [WARNING] * 4


@pytest.mark.parametrize(("again", "level"), [((0.4, 0.5, 0.4), FAULT), ((0.4, 0.9, 0.4), OK)])
def test_what_looked_slow_is_judged_by_its_second_measurement(again: tuple[float, ...], level: str) -> None:
    """The machine was busier the second time: the usual one beside it is slower, too."""
    values = [
        MeasuredValue("CPU rate", ("gpu1",), (1.0, 0.9), again=again, control=(1.1, 1.0, 0.9)),
        *(MeasuredValue("CPU rate", (host,), (2.0, 2.1)) for host in ("gpu2", "gpu3")),
    ]
    found = dict(verdicts(HostMeasurements(tuple(values), {}, {}), names(3), {}))
    assert [each.level for each in found["gpu1"]] == [level]


def test_a_host_that_nobody_reaches_is_named_with_the_reason() -> None:
    hosts = names(4)
    values = [
        MeasuredValue(NETWORK, (one, other), () if "gpu3" in (one, other) else (RATE,) * 3, problem="timed out")
        for one in hosts
        for other in hosts
        if one != other
    ]
    found = dict(verdicts(HostMeasurements(tuple(values), {}, {}), hosts, {}))
    assert faulty_hosts(found.items()) == ("gpu3",)
    assert "sends nothing (timed out); usual is 9.6 Gbit/s" in [each.text for each in found["gpu3"]]


def test_where_nothing_connects_no_host_is_blamed() -> None:
    values = [MeasuredValue(NETWORK, ends, problem="timed out") for ends in itertools.permutations(names(3), 2)]
    found = dict(verdicts(HostMeasurements(tuple(values), {}, {}), names(3), {}))
    assert wrong(found) == {host: [(NETWORK, "no")] for host in names(3)}
    assert {(each.level, each.text) for every in found.values() for each in every} == {
        (NOT_POSSIBLE, "no host can connect to another: timed out")
    }
    assert all("firewall" in (each.hint or "") for every in found.values() for each in every)


@pytest.mark.parametrize(("cores", "level"), [((64, 64, 64, 32), WARNING), ((64, 64, 64, 64), FAULT), ((32, 64, 64, 64), FAULT)])  # fmt: skip
def test_a_slow_network_of_a_host_of_another_kind_is_a_warning(cores: tuple[int, ...], level: str) -> None:
    hosts = names(4)
    values = [
        MeasuredValue(NETWORK, ends, (RATE / 4 if "gpu4" in ends else RATE,) * 3) for ends in itertools.permutations(hosts, 2)
    ]  # fmt: skip
    measured = HostMeasurements(tuple(values), {}, {}, dict(zip(hosts, cores, strict=True)))
    found = dict(verdicts(measured, hosts, {}))
    assert {host: {each.level for each in every} for host, every in found.items()} == {
        **{host: {OK} for host in hosts},
        "gpu4": {level},
    }
    assert all(("several kinds" in (each.hint or "")) == (level == WARNING) for each in found["gpu4"])


def test_values_are_judged_beside_hosts_with_as_many_cores() -> None:
    rates = (64e9, 64e9, 64e9, 32e9, 20e9)
    values = tuple(MeasuredValue("CPU rate", (host,), (each,) * 3) for host, each in zip(names(5), rates, strict=True))
    levels = []
    for cores in ((64, 64, 64, 32, 64), (64, 64, 64, 64, 64)):
        measured = HostMeasurements(values, {}, {}, dict(zip(names(5), cores, strict=True)))
        levels.append([each[0].level for _, each in verdicts(measured, names(5), {})])
    assert levels == [[OK, OK, OK, NOT_POSSIBLE, FAULT], [OK, OK, OK, FAULT, FAULT]]


@pytest.mark.parametrize(
    ("program", "code", "text", "level"),
    [
        ("dcgmi", 255, "Error: unable to establish a connection to the specified host: localhost", NOT_POSSIBLE),
        ("dcgmi", 124, "it had not ended after 240 s", NOT_POSSIBLE),
        ("nvbandwidth", 127, "error while loading shared libraries: libcuda.so.1", NOT_POSSIBLE),
        ("nvbandwidth", 1, "SUM host_to_device_memcpy_ce 20.00\nERROR", FAULT),
    ],
)
def test_a_gpu_program_that_could_not_test_is_no_fault(program: str, code: int, text: str, level: str) -> None:
    values = tuple(MeasuredValue(name, ("gpu1",), (each,)) for name, each in readings(text).items())
    found = dict(verdicts(HostMeasurements(values, {}, {"gpu1": {program: (code, text)}}), ("gpu1",), {}))
    (verdict,) = [each for each in found["gpu1"] if each.text.startswith("exit code")]
    assert (verdict.level, faulty_hosts(found.items())) == (level, ("gpu1",) if level == FAULT else ())
    assert text.splitlines()[0][-40:] in verdict.text


def of_hosts(rates: Iterable[float], seed: int = 0, floors: dict[str, float] | None = None) -> Found:
    dice = random.Random(seed)
    values = [
        MeasuredValue("CPU rate", (f"gpu{number}",), tuple(rate * dice.uniform(0.85, 1.1) for _ in range(REPEATS)))
        for number, rate in enumerate(rates, 1)
    ]
    hosts = tuple(each.hosts[0] for each in values)
    return dict(verdicts(HostMeasurements(tuple(values), {}, {}), hosts, floors or {}))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_cpu_is_named_among_three_hosts_or_more(seed: int) -> None:
    assert wrong(of_hosts([2e9] * 4, seed)) == {}
    bad = random.Random(seed).randrange(4)
    rates = [0.8e9 if number == bad else 2e9 for number in range(4)]
    assert list(wrong(of_hosts(rates, seed))) == [f"gpu{bad + 1}"]


def test_two_hosts_are_shown_and_judged_by_floors_alone() -> None:
    levels = [[each.level for each in every] for every in of_hosts([1e9, 2e9]).values()]
    assert levels == [[NOT_POSSIBLE], [NOT_POSSIBLE]]
    with_floor = of_hosts([1e9, 2e9], floors={"CPU rate": 1.5e9})
    assert [[each.level for each in every] for every in with_floor.values()] == [[FAULT], [OK]]


def test_gpu_programs_fail_pass_or_are_missing() -> None:
    programs: dict[str, dict[str, tuple[int, str] | None]] = {
        "gpu1": {"dcgmi": (1, ""), "nvbandwidth": None},
        "gpu2": {"dcgmi": (0, "")},
        "gpu3": {"dcgmi": None},
    }
    tests: dict[str, tuple[tuple[str, str, str], ...]] = {
        "gpu1": (("memory", FAULT, "GPU 1: bad"),),
        "gpu2": (("memory", OK, ""),),
    }
    found = dict(verdicts(HostMeasurements((), {}, programs, {}, tests), ("gpu1", "gpu2", "gpu3"), {}))
    assert [(each.name, each.level) for each in found["gpu1"]] == [("DCGM diag", FAULT), ("nvbandwidth", NOT_POSSIBLE)]
    assert found["gpu1"][0].text == "memory: GPU 1: bad"
    assert [each.level for each in found["gpu2"]] == [OK]
    ((level, text, hint),) = [(each.level, each.text, each.hint) for each in found["gpu3"]]
    assert (level, text) == (NOT_POSSIBLE, "dcgmi is not installed in the job's image")
    assert "if the host has it, drain the host and run there: dcgmi diag -r 2" in hint
