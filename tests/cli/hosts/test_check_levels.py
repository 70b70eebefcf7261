"""check --level: what is given to the measurement, and how its verdicts are shown with those of the quick check."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from taco_launch.api.host_checks import HostCheckOptions
from taco_launch.cli.main import cli
from taco_launch.core.errors import HostError
from taco_launch.core.facts.reports.health.judge import HostVerdicts
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, HealthVerdict
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.slots import Drain
from taco_launch.hosts.fanout import Answer, Fanout
from tests.support.command_line import call
from tests.support.host_facts import checked

HOSTS = 'cluster: played\nhosts:\n  gpu[1-3]: {address: "10.0.0.[1-3]"}\n'
INVENTORY = f"{HOSTS}container: {{image: 'registry.example/a:1'}}\n"
SLOW = HealthVerdict("network rate", FAULT, "sends 1 Gbit/s [1, 1]; usual is 9 Gbit/s", "a rule", "check its cable")
RATE = HealthVerdict("network rate", OK, "sends 9 Gbit/s [8, 9]", "a rule")
LINK = HealthVerdict("network link", FAULT, "gpu2 to gpu3: 1 Gbit/s", "a rule", "check the switches")


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, list[Any]]]:
    """Call `check` on hosts that are healthy by the quick check, with these verdicts of the measurement."""
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))

    def run(
        found: Sequence[HostVerdicts] | HostError,
        *args: str,
        silent: str = "",
        shut: Mapping[str, Drain] = MappingProxyType({}),
        inventory: str = INVENTORY,
    ) -> tuple[Result, list[Any]]:
        given: list[Any] = []
        (tmp_path / "cluster.yaml").write_text(inventory)

        def sound(name: str) -> HostFacts:
            return replace(checked(name, drain=shut.get(name, Absent())), docker=NOT_ASKED)

        def gather(_fanout: Fanout, *_: object, **__: object) -> tuple[Answer[HostFacts], ...]:
            names = ("gpu1", "gpu2", "gpu3")
            return tuple(
                Answer(name, error=HostError(f"{name}: silent")) if name == silent else Answer(name, sound(name))
                for name in names
            )

        def measure(
            _cluster: object,
            hosts: Sequence[Host],
            options: HostCheckOptions,
            step: Callable[[str], None],
            _watch: object,
        ) -> Sequence[HostVerdicts]:
            given.extend(([host.name for host in hosts], options))
            step("round 1 of 3 of pairs")
            step("round 1 of 3 of pairs")
            if isinstance(found, HostError):
                raise found
            return found

        monkeypatch.setattr("taco_launch.hosts.check.gather", gather)
        monkeypatch.setattr("taco_launch.cli.hosts.check.measure_hosts", measure)
        return CliRunner().invoke(cli, ["-i", str(tmp_path / "cluster.yaml"), "check", *args]), given

    return run


def test_the_slow_host_is_shown_with_what_to_type_next(checks: Callable[..., tuple[Result, list[Any]]]) -> None:
    found = [("gpu1", (RATE,)), ("gpu2", (SLOW,)), ("gpu3", (RATE,))]
    done, (names, options) = checks(found, "--level", "pairs", "--bisect", "--wait-for-jobs", "60")
    assert done.exit_code == 3, done.output
    assert (names, options) == (["gpu1", "gpu2", "gpu3"], HostCheckOptions("pairs", True, {}, 60.0))
    assert "gpu2: fault: network rate: sends 1 Gbit/s [1, 1]; usual is 9 Gbit/s\n  next: check its cable" in done.stdout
    assert "gpu2  sends 1 Gbit/s [1, 1]\n" in done.stdout, "the table has the rate alone"
    assert done.stdout.splitlines()[-2:] == [
        "jobs without it: --exclude gpu2",
        f"next: taco-launch -i {done.stdout.rsplit('-i ', 1)[1].split()[0]} host drain gpu2 --reason 'check --level pairs'",
    ]
    assert done.stderr.count("measuring: round 1 of 3 of pairs") == 1


def test_only_what_can_be_typed_is_the_next_step(checks: Callable[..., tuple[Result, list[Any]]]) -> None:
    """Hosts that were not set up cannot be drained, and a job needs a host that is left."""
    found = [("gpu1", (RATE,)), ("gpu2", (SLOW,)), ("gpu3", (RATE,))]
    done, _ = checks(found, "--level", "pairs", inventory=HOSTS)
    assert done.exit_code == 3, done.output
    assert "jobs without it: --exclude gpu2" in done.stdout
    assert "host drain" not in done.stdout
    done, _ = checks([(name, (SLOW,)) for name, _ in found], "--level", "pairs")
    assert "--exclude" not in done.stdout


def test_a_host_that_is_drained_already_is_not_to_be_drained(
    checks: Callable[..., tuple[Result, list[Any]]],
) -> None:
    found = [("gpu1", (RATE,)), ("gpu2", (SLOW,)), ("gpu3", (SLOW,))]
    record = Drain("ann@ctl", 1.0, "dust")
    done, _ = checks(found, "--level", "pairs", "gpu1", "gpu2", "gpu3", shut={"gpu2": record})
    *_, without, drain, already = done.stdout.splitlines()
    assert without == "jobs without them: --exclude 'gpu[2-3]'"
    assert drain.endswith("host drain gpu3 --reason 'check --level pairs'")
    assert already == "gpu2: drained by ann@ctl: dust"
    both = dict.fromkeys(("gpu2", "gpu3"), record)
    done, _ = checks(found, "--level", "pairs", "gpu1", "gpu2", "gpu3", shut=both)
    assert "host drain" not in done.stdout


def test_a_link_of_two_hosts_excludes_neither(checks: Callable[..., tuple[Result, list[Any]]]) -> None:
    found = [("gpu1", (RATE,)), ("gpu2", (RATE, LINK)), ("gpu3", (RATE, LINK))]
    done, _ = checks(found, "--level", "pairs")
    assert done.exit_code == 3
    assert "gpu[2-3]: fault: network link: gpu2 to gpu3: 1 Gbit/s" in done.stdout
    assert "--exclude" not in done.stdout


@pytest.mark.parametrize(
    ("words", "drained"),
    [((), ()), (("gpu1", "gpu[2-3]"), ("gpu1",)), (("--drained",), ("gpu1", "gpu2", "gpu3"))],
    ids=["none", "by-name", "all"],
)
def test_drained_hosts_are_measured_by_name_or_all(
    checks: Callable[..., tuple[Result, list[Any]]], words: tuple[str, ...], drained: tuple[str, ...]
) -> None:
    _done, (_names, options) = checks([("gpu1", (RATE,))], "--level", "full", *words)
    assert options == HostCheckOptions("full", drained=frozenset(drained))


def test_silent_and_left_out_hosts(checks: Callable[..., tuple[Result, list[Any]]]) -> None:
    drained = HealthVerdict("measurement", NOT_POSSIBLE, "drained: dust", "a rule")
    loss = HealthVerdict("packet loss", WARNING, "3 % of packets are sent again", "a rule")
    done, (names, _) = checks(
        [("gpu1", (RATE, loss)), ("gpu2", (drained,))], "--level", "full", "--json", silent="gpu3"
    )
    assert done.exit_code == 5
    assert names == ["gpu1", "gpu2"]
    hosts = {each["host"]: each for each in json.loads(done.stdout)["hosts"]}
    assert (hosts["gpu1"]["level"], hosts["gpu2"]["checks"][-1]["text"]) == (WARNING, "drained: dust")
    assert {each["name"]: each["group"] for each in hosts["gpu1"]["checks"]}["packet loss"] == "network"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--bisect",), "--bisect has no effect with --level quick"),
        (("--level", "full", "--bisect"), "--bisect has no effect with --level full"),
        (("--level", "pairs", "--expect", "memory copy=2"), "--expect has no effect with --level pairs"),
        (("--wait-for-jobs", "1h"), "--wait-for-jobs has no effect with --level quick"),
        (("--drained",), "--drained has no effect with --level quick"),
        (("--level", "full", "--expect", "memory=2"), "nothing is measured under the name 'memory'"),
        (("--level", "full", "--expect", "memory copy=fast"), "'fast' is not a rate in GB/s"),
        (("--level", "full", "--expect", "memory copy=-1"), "'-1' is not a rate in GB/s"),
        (("--level", "full", "--expect", "memory copy=nan"), "'nan' is not a rate in GB/s"),
    ],
)
def test_options_that_have_no_effect_or_no_sense_are_refused(words: tuple[str, ...], message: str) -> None:
    done = call("check", *words)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert "hint: " in done.stderr


def test_what_was_checked_is_shown_where_the_measurement_fails(checks: Callable[..., tuple[Result, list[Any]]]) -> None:
    done, _given = checks(HostError("no slots", hint="wait"), "--level", "full", "--json")
    assert done.exit_code == 5
    assert [each["host"] for each in json.loads(done.stdout)["hosts"]] == ["gpu1", "gpu2", "gpu3"]
    assert done.stderr.endswith("error: no slots\nhint: wait\n")
