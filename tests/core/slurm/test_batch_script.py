"""What a job requests of Slurm, line by line."""

from typing import Any

import pytest

from taco_launch.core.model.engines import SlurmOptions
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec, Policy
from taco_launch.core.slurm.batch_script import directives, script


def options(asked: SlurmOptions, **fields: Any) -> list[str]:
    spec = JobSpec("j", ("true",), (Host("n1", "n1"),), slurm=asked, **fields)
    return [each.option for each in directives(spec, "out")]


@pytest.mark.parametrize(
    ("fields", "gpus", "lines"),
    [
        ({"np": 16}, False, ["--ntasks=16"]),
        ({"np": 16}, True, ["--ntasks=16", "--gpus-per-task=1"]),
        ({"np": 16, "most_per_host": 8}, True, ["--ntasks=16", "--ntasks-per-node=8", "--gpus-per-task=1"]),
        ({"host_count": 2, "slots_per_host": 8}, True, ["--nodes=2", "--ntasks-per-node=8", "--gres=gpu:8"]),
        ({"least_hosts": 2, "host_count": 4, "slots_per_host": 8}, False, ["--nodes=2-4", "--ntasks-per-node=8"]),
        ({"np": 6, "slots_per_worker": 2}, True, ["--nodes=3", "--ntasks-per-node=2", "--gres=gpu:2"]),
        ({"np": 1, "exclusive": True}, False, ["--ntasks=1", "--exclusive"]),
        ({"np": 1, "policy": Policy(timeout=7200.0)}, False, ["--ntasks=1", "--time=122"]),
    ],
)
def test_size(fields: dict[str, Any], gpus: bool, lines: list[str]) -> None:
    listed = options(SlurmOptions(gpus=gpus), **fields)
    assert listed[0] == "--job-name=j"
    assert listed[1 : listed.index("--no-requeue")] == lines


def test_what_is_passed_on() -> None:
    listed = options(SlurmOptions("p", "a", "q", "c&d", "r", "afterok:1", ("n3", "n4")), np=1)
    assert listed[2:9] == [
        *("--exclude=n3,n4", "--partition=p", "--account=a", "--qos=q"),
        *("--constraint=c&d", "--reservation=r", "--dependency=afterok:1"),
    ]


def test_the_script_is_one_of_a_shell_and_quotes_its_paths() -> None:
    spec = JobSpec("j", ("true",), (Host("n1", "n1"),), np=1, slurm=SlurmOptions())
    lines = script(directives(spec, "/a b/50%"), "/a b/agent.pyz", "/a b/j").splitlines()
    assert lines[0] == "#!/bin/sh"
    assert '#SBATCH --output="/a b/50%%"' in lines
    assert lines[-1] == "exec python3 -I -S '/a b/agent.pyz' allocation '/a b/j'"
