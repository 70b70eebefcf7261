"""check --level on four real hosts: a slow sender, lost packets and a slow CPU are named, and then nothing is."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.lab.rig import Image, Lab, made
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    words = ("--hosts", "4", "--slots", "2")
    with made("levels", tmp_path_factory.mktemp("state"), *words, image=Image.SMALL) as lab:
        done = lab.cluster.setup("--yes")
        assert done.returncode == 0, done.stderr
        yield lab


def faults(lab: Lab, level: str) -> dict[str, set[str]]:
    """Return the names of the faults of each host that has one."""
    done = lab.cluster("check", "--level", level, "--json", seconds=300)
    assert done.returncode in (0, 3), done.stderr
    found = {
        host["host"]: {each["name"] for each in host["checks"] if each["level"] == "fault"}
        for host in json.loads(done.stdout)["hosts"]
    }
    assert lab.cluster.jobs() == [], "a measurement leaves no job behind"
    return {host: every for host, every in found.items() if every}


@pytest.mark.parametrize(
    ("fault", "argument", "undo", "level", "names"),
    [
        ("slow-link", "200mbit", "heal", "pairs", {"network rate"}),
        ("loss", "3", "heal", "pairs", {"packet loss"}),
        ("slow-cpu", "6", "fast-cpu", "full", {"CPU rate"}),
    ],
)
def test_the_host_with_a_fault_is_named_and_no_other(
    four: Lab, fault: str, argument: str, undo: str, level: str, names: set[str]
) -> None:
    four.fault("gpu3", fault, argument)
    try:
        found = faults(four, level)
    finally:
        four.fault("gpu3", undo)
    assert set(found) == {"gpu3"}
    assert names <= found["gpu3"]
    assert faults(four, level) == {}


def test_a_drained_host_is_left_out_and_the_others_are_measured(four: Lab) -> None:
    four.cluster.ok("host", "drain", "gpu4", "--reason", "dust")
    try:
        done = four.cluster("check", "--level", "pairs", "gpu[2-4]", seconds=300)
    finally:
        four.cluster.ok("host", "resume", "gpu4", "--force")
    assert "gpu4: not possible: measurement: drained: dust" in done.stdout
    assert "gpu2  sends " in done.stdout


def test_a_drained_host_is_measured_by_name_and_opened_once_it_passes(four: Lab) -> None:
    four.cluster.ok("host", "drain", "gpu4", "--reason", "new power supply")
    try:
        done = four.cluster("check", "--level", "full", "gpu1", "gpu2", "gpu4", seconds=300)
        assert done.returncode == 0, done.stderr
        assert "gpu4  " in done.stdout, "it is in the table of what was measured"
        four.fault("gpu4", "slow-cpu", "6")
        done = four.cluster("host", "resume", "gpu4", "--level", "full", seconds=300)
        assert done.returncode == 3, done.stderr
        assert "gpu4: fault: CPU rate: " in done.stdout
        assert "error: not opened to jobs: gpu4" in done.stderr
        assert "drained" in four.cluster.ok("host", "list")
        four.fault("gpu4", "fast-cpu")
        four.cluster.ok("host", "resume", "gpu4", "--level", "full", seconds=300)
        assert "drained" not in four.cluster.ok("host", "list")
        assert four.cluster.jobs() == []
    finally:
        four.fault("gpu4", "fast-cpu")
        four.cluster.ok("host", "resume", "gpu4", "--force")


def test_a_host_that_is_cut_off_before_its_guard_is_connected_is_left_out_soon(four: Lab) -> None:
    four.fault("gpu2", "partition")
    try:
        begun = time.monotonic()
        refused = four.cluster("submit", "--name", "cut", "--np", "4", "-H", "gpu1,gpu2", "--", "true")
        assert refused.returncode == 5
        assert "gpu2 cannot be used: cut off while the job started: nothing heard for 20 s" in refused.stderr
        assert time.monotonic() - begun < patience(35)
    finally:
        four.fault("gpu2", "heal")
