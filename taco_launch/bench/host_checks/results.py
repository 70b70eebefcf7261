"""Reads what the program prints, into values of hosts and of directions between hosts."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from taco_launch.core.errors import HostError
from taco_launch.core.frozen import dataclass

MARK = "@check "
NETWORK = "network rate"


@dataclass(frozen=True)
class MeasuredValue:
    """One thing that was measured in repetitions, in bytes/s: of one host, or of a direction (sender, receiver).

    `resent` are shares of packets that were sent again, in each repetition. What looked slow was measured `again`, in turns
    with a usual one, `control`. `problem` says why there are no values.
    """

    name: str
    hosts: tuple[str, ...]
    values: tuple[float, ...] = ()
    resent: tuple[float, ...] = ()
    problem: str = ""
    again: tuple[float, ...] = ()
    control: tuple[float, ...] = ()


@dataclass(frozen=True)
class HostMeasurements:
    """What a job measured: values, round-trip times of pairs in seconds, and the GPU programs of each host.

    A program is (exit code, end of its output), or None where it is not installed. `cores` is how many each host has.
    `diagnosed` has the tests of DCGM on each host: (name, level, words).
    """

    values: tuple[MeasuredValue, ...]
    round_trips: dict[tuple[str, str], float]
    programs: dict[str, dict[str, tuple[int, str] | None]]
    cores: dict[str, int] = field(default_factory=dict)
    diagnosed: dict[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)


def documents(log: str) -> Iterator[dict[str, Any]]:
    """Yield the program's lines; a line may have a label in front.

    Raises:
        HostError: one cannot be read.
    """
    for line in log.splitlines():
        text = line.partition(MARK)[2]
        if text:
            try:
                yield dict(json.loads(text))
            except ValueError:
                raise HostError(f"a line of the measurement cannot be read: {line[:80]!r}") from None


def read(log: str, hosts: Sequence[str]) -> HostMeasurements:
    """Read the whole output of the program; `hosts` are those of its ranks.

    Raises:
        HostError: it is not all there, or not written as the program writes it.
    """
    lines = list(documents(log))
    keyed = [line for line in lines if "key" in line]
    if not lines or lines[-1].get("end") != len(keyed):
        raise HostError("the output of the measurement is not complete", hint="run the check again")
    values, trips, programs, diagnosed = [], {}, {}, {}
    try:
        cores = {hosts[line["rank"]]: int(line["cores"]) for line in lines if "rank" in line}
        for line in keyed:
            name, *ranks = line["key"]
            of = tuple(hosts[rank] for rank in ranks)
            if name == "pair":
                if "rtt" in line:
                    trips[of[0], of[1]] = float(line["rtt"])
            elif name == "programs":
                programs[of[0]] = {
                    each: None if done is None else (int(done[0]), str(done[1]))
                    for each, done in line["programs"].items()
                }
                tests = (line["programs"].get("dcgmi") or (0, "", {}, ()))[3]
                diagnosed[of[0]] = tuple((str(test), str(level), str(words)) for test, level, words in tests)
            else:
                rates, resent, again, control = (
                    tuple(map(float, line.get(key, ()))) for key in ("values", "resent", "again", "control")
                )
                values.append(MeasuredValue(str(name), of, rates, resent, str(line.get("problem", "")), again, control))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise HostError(
            f"the output of the measurement cannot be read: {error!r}", hint="run the check again"
        ) from None
    return HostMeasurements(tuple(values), trips, programs, cores, diagnosed)
