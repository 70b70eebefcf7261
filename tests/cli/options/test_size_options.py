"""--workers, --gpus and --procs-per-gpu on the command line: what they amount to, and what is refused."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import call, failing, succeeding

INVENTORY = "cluster: two\nnetwork: {interface: eth0}\nversions: {openmpi: 4.1.4}\nhosts:\n  n[1-2]: {slots: 3}\n"


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    file = tmp_path / "two.yaml"
    file.write_text(INVENTORY, encoding="ascii")
    return ["-i", str(file), "run", "--dry-run"]


@pytest.mark.parametrize(
    ("typed", "ranks"),
    [
        ("--workers 4 --gpus 1", [[0, 1, 2], [3]]),
        ("--workers 4", [[0, 1, 2], [3]]),
        ("--workers 2 --gpus 2", [[0, 1], [2, 3]]),
        ("--gpus 3", [[0, 1, 2]]),
        ("--per-host --workers 2 --gpus 3", [[0], [1]]),
        ("--np 2 --procs-per-gpu 3", [[0, 1, 2, 3, 4, 5]]),
        ("--procs-per-gpu 2 --workers 2 --gpus 2", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("--hosts 1:4", [[0, 1, 2], [3, 4, 5]]),
        ("--hosts 1:1 --slots-per-host 2", [[0, 1]]),
        ("--np 3 --slots-per-host 2", [[0, 1], [2]]),
        ("--np 2 --slots-per-host 1", [[0], [1]]),
        ("--np 2 --slots-per-host 9", [[0, 1]]),
    ],
)
def test_where_workers_are(two: list[str], typed: str, ranks: list[list[int]]) -> None:
    found = succeeding(*two, "--json", "--launcher", "env", *typed.split(), "--", "true")
    assert [one["ranks"] for one in json.loads(found.stdout)["commands"]] == ranks


def test_workers_under_mpirun(two: list[str]) -> None:
    found = call(*two, "--workers", "2", "--gpus", "2", "--", "true")
    assert "-np 4" in found.stdout
    assert "n1:2,n2:2" in found.stdout
    tokens = json.loads(call(*two, "--json", "--workers", "2", "--gpus", "2", "--", "true").stdout)["tokens"]
    assert next(token["why"] for token in tokens if token["text"] == "4") == "one process per rank; --workers x --gpus"


@pytest.mark.parametrize(
    ("typed", "code", "told"),
    [
        (
            "--workers 3 --gpus 2",
            4,
            "3 workers with 2 slots each do not fit: each must fit on one host, and there is room for 2",
        ),
        ("--workers 3 --np 2", 2, "--np and --workers: each sets how many ranks there are"),
        ("--gpus 3 --hosts 2", 2, "--hosts and --gpus: each sets how many ranks there are"),
        ("--slots-per-host 2 --np 5", 4, "5 ranks do not fit with at most 2 on each host: there are 4 slots"),
        ("--slots-per-host 2 --np 5", 4, "use --np 4 or more than --slots-per-host 2"),
        ("--slots-per-host 3 --np 2 --hosts 2", 2, "--np and --hosts: each sets how many ranks there are"),
        ("--procs-per-gpu 2", 2, "--procs-per-gpu: --launcher mpirun gives each slot one rank"),
        ("--procs-per-gpu 2 --launcher torchrun", 2, "--procs-per-gpu: --launcher torchrun gives each slot one rank"),
        (
            "--procs-per-gpu 2 --launcher env --per-host",
            2,
            "--procs-per-gpu and --per-host cannot be combined: --procs-per-gpu starts",
        ),
        ("--mps --launcher env", 2, "--mps: processes share a GPU of a job only with --procs-per-gpu N"),
        ("--hosts 4:1", 2, "'4:1' must be MIN:MAX with MIN at least 1, MAX at least MIN"),
        ("--hosts 2:", 2, "'2:' must be a whole number, or a range MIN:MAX such as 2:4"),
        ("--hosts 3:4", 4, "at least 3 whole hosts do not fit: there are 2 hosts"),
        ("--hosts 1:2 --np 2", 2, "--np and --hosts: each sets how many ranks there are"),
        ("--elastic --hosts 1:2", 2, "--elastic: requires --launcher torchrun"),
        (
            "--elastic --launcher torchrun --hosts 2",
            2,
            "--elastic: requires a range of hosts hint: for example: --hosts 2:4",
        ),
        ("--elastic --launcher torchrun --hosts 2:2", 2, "--elastic: requires a range of hosts"),
        ("--hosts n1:4", 2, "'n1:4' is not a number of hosts; select hosts with -H"),
    ],
)
def test_refusals(two: list[str], typed: str, code: int, told: str) -> None:
    found = call(*two, *typed.split(), "--", "true")
    assert (found.exit_code, found.stdout) == (code, "")
    assert told in " ".join(found.stderr.split())


@pytest.mark.parametrize(
    ("size", "typed", "ranks"),
    [
        ("workers: 2\ngpus: 2", "", [[0, 1], [2, 3]]),
        ("workers: 2\ngpus: 2", "--np 1", [[0]]),
        ("workers: 2\ngpus: 2", "--hosts 1 --slots-per-host 1", [[0]]),
        ("workers: 2\ngpus: 2", "--gpus 1", [[0, 1]]),
        ("np: 5", "--workers 1", [[0]]),
        ("hosts: 2", "--workers 1", [[0]]),
        ("np: 3\nslotsPerHost: 2", "", [[0, 1], [2]]),
        ("np: 3\nslotsPerHost: 2", "--np 2", [[0, 1]]),
        ("np: 2\nslotsPerHost: 2", "--slots-per-host 1", [[0], [1]]),
        ("np: 2\nslotsPerHost: 2", "--hosts 1", [[0, 1]]),
        ("np: 2\nslotsPerHost: 2", "--workers 1", [[0]]),
        ("hosts: 1:4", "", [[0, 1, 2], [3, 4, 5]]),
        ("hosts: 1:4", "--slots-per-host 1", [[0], [1]]),
        ("hosts: 1:4", "--hosts 1", [[0, 1, 2]]),
    ],
)
def test_a_job_file(two: list[str], tmp_path: Path, size: str, typed: str, ranks: list[list[int]]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"command: [x]\n{size}\nlauncher: env\n", encoding="ascii")
    found = succeeding(*two, "--json", "-f", str(file), *typed.split())
    assert [one["ranks"] for one in json.loads(found.stdout)["commands"]] == ranks


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("--gpu-ids 9", "--gpu-ids 9: no host of the job is known to have such a GPU: a host has at most 3"),
        ("--gpu-ids 2,3", "--gpu-ids 3: no host of the job is known to have such a GPU"),
        ("--gpu-ids 0,2", ""),
        ("--exclude n1:3", "--exclude n1:3: excludes nothing: n1 has only 3 GPUs or slots"),
        ("--exclude n1:2", ""),
    ],
)
def test_gpus_that_no_host_has(two: list[str], typed: str, told: str) -> None:
    found = succeeding(*two, *typed.split(), "--", "true")
    assert told in found.stderr
    assert ("--gpu-ids" in found.stderr or "--exclude" in found.stderr) == bool(told)


@pytest.mark.parametrize("verb", [("run",), ("run", "--dry-run"), ("submit",)])
def test_gpus_of_hosts_that_are_declared_to_have_none(tmp_path: Path, verb: tuple[str, ...]) -> None:
    file = tmp_path / "none.yaml"
    file.write_text(INVENTORY.replace("slots: 3", "slots: 3, gpus: none"), encoding="ascii")
    refused = failing("-i", str(file), *verb, "--gpus", "1", "--", "true")
    assert "n[1-2] is declared to have no GPUs (--workers W alone counts slots" in " ".join(refused.split())
    assert call("-i", str(file), "run", "--dry-run", "--workers", "2", "--", "true").exit_code == 0
