"""What sinfo, squeue and scontrol print, as captured of Slurm 22.05, and what is not theirs."""

from typing import Any

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.engines import SlurmArray, SlurmOptions
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec, JobState, Policy
from taco_launch.core.slurm import allocation, job_states, nodes
from taco_launch.core.slurm.batch_script import directives, script

_JOB = (
    "JobId=2 JobName=b.py UserId=root(0) JobState=RUNNING Reason=None Requeue=1 ExitCode=0:0 RunTime=00:00:00 "
    "TimeLimit=00:10:00 EndTime=2026-11-29T19:15:34 NodeList=n[1-2] JOB_GRES=gpu:4   "
    "Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1) MinCPUsNode=1 TresPerTask=gres:gpu:1"
)


def test_nodes() -> None:
    text = "n1|10.0.0.1|p*|0/2/0/2|gpu:2|gpu:1|mixed|\nn1|10.0.0.1|q|0/2/0/2|gpu:2|gpu:1|mixed|\nc1|c1|p*|3/61/0/64|(null)|gpu:0|idle|\n"
    assert nodes.parse_nodes(text) == (
        nodes.Node("n1", "10.0.0.1", 2, 1, 2, ("p", "q"), "mixed"),
        nodes.Node("c1", "c1", 64, 3, 0, ("p",), "idle"),
    )


@pytest.mark.parametrize(("gres", "count"), [("gpu:a100:8(S:0-1)", 8), ("gpu:a:2,gpu:b:4", 6), ("craynetwork:4", 0)])
def test_gpus_of_a_node(gres: str, count: int) -> None:
    (node,) = nodes.parse_nodes(f"n1|n1|p|0/2/0/2|{gres}|gpu:0|idle|\n")
    assert node.gpus == count


@pytest.mark.parametrize("line", ["slurm_load_node: error", "n1|n1|p|2|gpu:2|gpu:0|idle|", "-n|n|p|0/2/0/2|a|b|idle|"])
def test_what_is_no_line_of_sinfo(line: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        nodes.parse_nodes(line)


def test_jobs() -> None:
    lines = ("7|7_N/A|PENDING|Resources", "8|8_3|PENDING|JobArrayTaskLimit", "10|8_1|RUNNING|None", "slurm: error", "")
    jobs = job_states.parse_squeue("\n".join(lines))
    assert [(id_, job.id, job.number) for id_, job in jobs.items()] == [
        *(("7", "7", 7), ("8_3", "8_3", 8), ("8_1", "8_1", 10))
    ]
    assert jobs["7"].waits
    assert jobs["7"].words == "Slurm job 7: nodes that fit are in use (Resources)"
    assert jobs["8_3"].words.startswith("Slurm job 8_3: as many jobs of its array run")
    assert jobs["8_1"].lives
    assert job_states.SlurmJob("1", "PENDING", "SomethingNew").words == "Slurm job 1: SomethingNew"


@pytest.mark.parametrize(
    ("pairs", "state", "code", "words"),
    [
        ({"JobState": "CANCELLED", "ExitCode": "0:15"}, JobState.CANCELLED, 143, "cancelled in Slurm"),
        ({"JobState": "PREEMPTED", "ExitCode": "0:15"}, JobState.CANCELLED, 143, "preempted by a job"),
        ({"JobState": "TIMEOUT", "TimeLimit": "01:00:00"}, JobState.FAILED, 124, "time limit of 01:00:00"),
        ({"JobState": "NODE_FAIL", "ExitCode": "0:0"}, JobState.FAILED, 125, "a node failed"),
        ({"JobState": "OUT_OF_MEMORY", "ExitCode": "0:125"}, JobState.FAILED, 253, "more memory than Slurm allows"),
        ({"JobState": "COMPLETED", "ExitCode": "0:0"}, JobState.LOST, 125, "before its supervisor recorded an end"),
        (None, JobState.LOST, 125, "Slurm does not know job 7 any more"),
    ],
)
def test_ends(pairs: "dict[str, str] | None", state: JobState, code: int, words: str) -> None:
    end = job_states.end_of("7", pairs)
    assert (end.state, end.exit_code) == (state, code)
    assert words in end.reason


def test_an_allocation() -> None:
    assert allocation.tasks_per_node("2(x2),1") == [2, 2, 1]
    assert allocation.gpus_by_nodes(_JOB) == {"n[1-2]": (0, 1)}
    two = _JOB.replace("gpu:2(IDX:0-1)", "gpu:a:1(IDX:0),gpu:b:1(IDX:2)")
    assert allocation.gpus_by_nodes(two) == {"n[1-2]": (0, 2)}
    assert job_states.parse_pairs(_JOB)["ExitCode"] == "0:0"
    with pytest.raises(HostError, match="cannot be read"):
        allocation.tasks_per_node("two")
    spec = JobSpec("j", ("true",), (Host("n9", "n9"),), host_count=2, slots_per_host=2, slurm=SlurmOptions(gpus=True))
    found = allocation.granted(spec, [("n1", "10.0.0.1", 2), ("n2", "10.0.0.2", 2)], {"n1": (4, 5)}, "n1")
    assert [(host.name, host.address, host.slots, host.connection) for host in found.hosts] == [
        ("n1", "10.0.0.1", 2, "local"),
        ("n2", "10.0.0.2", 2, "ssh"),
    ]
    assert found.hosts[0].constraints.only == (4, 5)
    assert (found.head, found.host_count, found.slurm) == ("n1", None, None)


# --- What a job requests of Slurm, line by line


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


def test_one_script_for_the_jobs_of_an_array() -> None:
    array = SlurmArray(5, 2)
    spec = JobSpec("a 1-3", ("true",), (Host("n1", "n1"),), np=1, slurm=SlurmOptions(array=array))
    listed = directives(spec, "/j/a 1-3/debug.log", numbers=(3, 0, 1, 2, 9))
    options = [each.option for each in listed]
    assert options[0] == "--job-name=a 1"
    assert "--array=0-3,9%2" in options
    assert '--output="/j/a 1-%a/debug.log"' in options
    assert (
        script(listed, "z", "/j/a 1", is_array=True).splitlines()[-1].endswith("""'/j/a 1'"-$SLURM_ARRAY_TASK_ID\"""")
    )
