"""What a dry run prints is what will be run."""

import re
from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.errors import PlacementError, UsageError
from taco_launch.core.launch.launchers import open_mpi as mpirun
from taco_launch.core.launch.plan import line
from taco_launch.core.model.engines import SlurmOptions
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Driver, Gpu, Gpus
from taco_launch.core.model.host.hosts import Container, GpuConstraints, Host, Network
from taco_launch.core.model.jobs import EarlySignal, JobSpec, Policy
from taco_launch.hosts.inventory import profile
from taco_launch.jobs import dry_run, sbatch_script
from tests.support.fake_backend import not_asked
from tests.support.fleet import hca, with_hcas
from tests.support.placement_machines import mesh

AUTO = profile.load("auto", "", {})
DECLARED: dict[str, Any] = {
    "network": Network(interface="eth0"),
    "versions": (("openmpi", "4.1.4"), ("nccl", "2.21.5")),
}


def test_in_containers_this_machine_is_a_host_like_the_others() -> None:
    """In its container mpirun reaches the others by SSH, and they reach its host by its name."""
    hosts = (Host("here", "10.0.0.1", slots=2, connection="local"), Host("gpu2", "10.0.0.2", slots=2))
    spec = JobSpec(
        *("job", ("true",), hosts),
        head="here",
        container=Container("image"),
        profile=profile.load("auto", "", {}),
        network=Network(interface="eth0"),
        versions=(("openmpi", "4.1.4"), ("nccl", "2.21.5")),
    )

    def asked(missing: tuple[str, ...]) -> tuple[tuple[()], tuple[()]]:
        raise AssertionError(missing)

    planned = dry_run.dry_run(spec, {}, asked, asked, root=True).plan  # type: ignore[arg-type]
    assert "-H here:2,gpu2:2" in mpirun.line(planned.tokens)


def planned(*hosts: Host, np: int, **more: Any) -> str:
    """Return the line of a job on declared hosts."""
    spec = JobSpec(
        "job", ("true",), hosts, np=np, head="a", profile=AUTO, container=Container("image"), **DECLARED, **more
    )
    refuse: Any = lambda missing: pytest.fail(str(missing))  # noqa: E731
    return mpirun.line(dry_run.dry_run(spec, {}, refuse, refuse, root=True).plan.tokens)


def on(name: str, leaf: str, **constraints: Any) -> Host:
    return Host(name, name, slots=4, labels=(("leaf", leaf),), constraints=GpuConstraints(**constraints))


def test_leaves_and_terms_are_those_of_the_job_itself() -> None:
    a, b, c = on("a", "x"), on("b", "y"), on("c", "y")
    assert "-H a:4,b:2" in planned(a, on("b", "y"), np=6)
    assert "-H b:4,c:4" in planned(a, b, c, np=8)
    assert "-H b:2,c:4" in planned(a, on("b", "y", without=(0, 1)), c, np=6)
    assert "-H a:3,b:1" in planned(on("a", "x", only=(0, 2, 3)), on("b", "x", only=(0, 2, 3)), np=4)
    few = Host("a", "a", slots=2, has=0, constraints=GpuConstraints(only=(4, 5, 6)))  # as -H a:2 names it
    assert "-H a:2" in planned(few, np=2)
    with pytest.raises(PlacementError, match=r"a: 3 slots \(only its GPUs 0,2,3 may be used\)"):
        planned(on("a", "x", only=(0, 2, 3)), np=4)


GPUS = tuple(
    Gpu(index, f"GPU-{index}", "Tesla V100-SXM2-16GB", f"0000:{index:02x}:00.0", 16 << 30, 0, False, 0, 0)
    for index in range(8)
)
DRIVER = Driver("450.80.02", "450.80.02", "11.0", False, Absent())


def test_the_choice_is_that_of_the_hosts_as_they_are() -> None:
    """Only with --explain, where a job takes some of a host's GPUs; the line is the same without it."""
    topology = mesh("dgx1v").topology
    nothing: Any = dict.fromkeys(("system", "network", "docker", "rdma", "image"), NOT_ASKED)
    facts = HostFacts("a", gpu=Gpus(DRIVER, GPUS, (), ()), topology=topology, **nothing)
    hosts = (Host("a", "10.0.0.1", slots=8, constraints=GpuConstraints(without=(1,))),)
    spec = JobSpec("job", ("true",), hosts, np=4, head="a", profile=AUTO, container=Container("image"), **DECLARED)
    asked: list[tuple[str, ...]] = []

    def look(missing: tuple[str, ...]) -> tuple[tuple[HostFacts, ...], tuple[()]]:
        asked.append(missing)
        return (facts,), ()

    plain = dry_run.dry_run(spec, {}, not_asked, look, root=True)
    assert (asked, plain.choices) == ([], ())
    told = dry_run.dry_run(spec, {}, not_asked, look, root=True, explain=True)
    assert asked == [("how GPUs are linked",)]
    assert told.plan == plain.plan
    ((host, choice),) = told.choices
    assert (host, choice.gpus, choice.bottleneck_gbps) == ("a", (4, 5, 6, 7), 25)
    pinned = dry_run.dry_run(replace(spec, np=7), {}, not_asked, look, root=True, explain=True)
    ((host, only),) = pinned.choices
    assert (only.gpus, only.ring, only.bottleneck_gbps) == ((0, 2, 3, 4, 5, 6, 7), (0, 3, 2, 6, 5, 7, 4), 25)
    assert (len(asked), only.alternatives) == (2, ())
    all_of_it = replace(spec, np=8, hosts=(replace(hosts[0], constraints=GpuConstraints()),))
    whole = dry_run.dry_run(all_of_it, {}, not_asked, look, root=True, explain=True)
    assert (whole.choices, len(asked)) == ((), 2)
    # Its links are known where it is requested something else.
    all_of_it = replace(all_of_it, hosts=(replace(hosts[0], slots=None, constraints=GpuConstraints()),))
    whole = dry_run.dry_run(all_of_it, {}, not_asked, look, root=True, explain=True)
    assert [len(choice.ring) for _host, choice in whole.choices] == [8]


def lined(launcher: str, *constraints: GpuConstraints, **more: Any) -> tuple[tuple[str, ...], list[str]]:
    """Return the lines of a job on hosts with eight GPUs each, and the notes of its GPUs."""
    hosts = tuple(Host(name, name, slots=8, constraints=each) for name, each in zip("abc", constraints, strict=False))
    spec = JobSpec(
        "job",
        ("true",),
        hosts,
        head="a",
        profile=AUTO,
        container=Container("image"),
        **{**DECLARED, "network": Network(interface="eth0", rdma="off"), "launcher": launcher, **more},
    )
    refuse: Any = lambda missing: pytest.fail(str(missing))  # noqa: E731
    found = dry_run.dry_run(spec, {}, refuse, refuse, root=True)
    lines = tuple(line(command) for command in found.plan.commands)
    notes = [note for note in found.notes if "GPUs" in note]
    return tuple(",".join(re.findall(r"(?<=CUDA_VISIBLE_DEVICES=)[0-9,]+", text)) for text in lines), notes


def test_the_line_names_gpus_that_are_sure() -> None:
    some = GpuConstraints(only=(0, 2, 4, 5, 6, 7))
    assert lined("mpirun", some, np=6) == (("0,2,4,5,6,7",), [])
    assert lined("mpirun", some, some, np=12) == (("0,2,4,5,6,7",), [])
    assert lined("torchrun", some, GpuConstraints(without=(7,))) == (("0,2,4,5,6,7", "0,1,2,3,4,5,6"), [])
    assert lined("env", GpuConstraints(only=(3,)), np=1) == (("3",), [])
    assert lined("env", some, per_host=True, host_count=1, slots_per_host=6) == (("0,2,4,5,6,7",), [])
    assert lined("mpirun", GpuConstraints(), GpuConstraints()) == (("",), [])  # whole hosts
    assert lined("mpirun", some, env=(("CUDA_VISIBLE_DEVICES", "1"),)) == (("1",), [])
    assert lined("mpirun", some, np=6, env=(("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),))[0] == ("0,2,4,5,6,7",)


@pytest.mark.parametrize(
    ("constraints", "more", "told"),
    [
        (
            (GpuConstraints(only=(0, 2, 4)), GpuConstraints(only=(0, 2, 4))),
            {"np": 4},
            "which GPUs of b the job gets is chosen",
        ),
        ((GpuConstraints(), GpuConstraints()), {"slots_per_host": 3}, "which GPUs of a,b the job gets is chosen"),
        ((GpuConstraints(without=(0, 1)),), {"np": 4}, "which GPUs of a the job gets is chosen"),
        ((GpuConstraints(only=(2, 3)), GpuConstraints()), {}, r"not the same on all of its hosts \(2,3 on a\)"),
        (
            (GpuConstraints(only=(0,)), GpuConstraints(only=(1,))),
            {},
            r"\(0 on a; 1 on b\), which an mpirun line cannot express",
        ),
    ],
)
def test_and_where_it_does_not_a_note_says_so(
    constraints: tuple[GpuConstraints, ...], more: dict[str, Any], told: str
) -> None:
    found, (note,) = lined("mpirun", *constraints, **more)
    assert found == ("",)
    assert re.search(told, note)
    assert lined("mpirun", *constraints, **more, env=(("CUDA_VISIBLE_DEVICES", "1"),)) == (("1",), [])


def test_the_hcas_are_those_near_the_chosen_gpus() -> None:
    facts = [
        replace(
            with_hcas(name, *(hca(f"mlx5_{number}") for number in range(4))),
            gpu=Gpus(DRIVER, GPUS, (), ()),
            topology=mesh("dgx1v").topology,
        )
        for name in ("gpu1", "gpu2")
    ]

    def used(*, exclusive: bool = False, **constraints: Any) -> str:
        hosts = tuple(Host(of.host, of.host, constraints=GpuConstraints(**constraints)) for of in facts)
        spec = JobSpec(
            "job",
            ("true",),
            hosts,
            slots_per_host=4,
            head="gpu1",
            profile=AUTO,
            container=Container("image"),
            exclusive=exclusive,
            **DECLARED,
        )
        found = dry_run.dry_run(spec, {}, not_asked, lambda _missing: (facts, ()), root=True, explain=True)
        plain = dry_run.dry_run(spec, {}, not_asked, lambda _missing: (facts, ()), root=True)
        made = found.plan
        assert (plain.plan, plain.notes) == (made, found.notes)
        near = [note for note in found.notes if "near the GPUs that the job really gets" in note]
        assert len(near) == (0 if exclusive or constraints.get("topology") is False else 1)
        (token,) = (token for token in made.tokens if token.text.startswith("NCCL_IB_HCA="))
        assert ("other HCAs are nearer" in token.why) == (token.text.count("mlx5_") < len(mesh("dgx1v").topology.nics))
        return token.text

    assert used() == "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1"
    assert used(without=(0,)) == "NCCL_IB_HCA==mlx5_2:1,mlx5_3:1"
    assert used(only=(4, 5, 6, 7)) == used(without=(0,))  # where nothing is chosen
    assert used(exclusive=True) == used(topology=False)
    assert used(topology=False) == "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"


# --- Scripts for sbatch that do without taco-launch; tests/e2e/test_slurm.py runs them


HARDWARE = "settings of NCCL, UCX, MPI and OpenMP that follow from the hardware of the nodes"
SPEC = JobSpec(name="j", command=("echo", "a b"), hosts=(Host("n1", "n1"),), np=4, cwd="/home/a b")


def test_the_lines_of_a_job_of_mpirun() -> None:
    spec = replace(SPEC, env=(("A", "it's"), ("B", None)), mca=(("btl", "^openib"),), policy=Policy(timeout=90.0))
    text, missing = sbatch_script.script(replace(spec, slurm=SlurmOptions(partition="gpu")))
    assert text.splitlines() == [
        "#!/bin/sh",
        "#SBATCH --job-name=j",
        "#SBATCH --ntasks=4",
        "#SBATCH --partition=gpu",
        "#SBATCH --time=2",
        "#SBATCH --output=j-%j.log",
        "set -e",
        "cd '/home/a b'",
        """export A='it'"'"'s'""",
        "MASTER_ADDR=$(hostname)",
        "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",
        "export MASTER_ADDR MASTER_PORT",
        (
            "exec mpirun -n 4 --mca btl '^openib' -x MASTER_ADDR -x MASTER_PORT -x A -x B sh -c 'export"
            " RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK"
            " LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE; exec \"$@\"' sh echo 'a b'"
        ),
    ]
    assert missing == (HARDWARE,)


def test_what_a_job_has_beside_its_command_is_kept_or_named() -> None:
    policy = Policy(signal=EarlySignal("USR1", 30.0), stall_timeout=60.0, fail_on="nan", backoff_limit=2)
    text, missing = sbatch_script.script(replace(SPEC, policy=policy, workdir="src"), "/data/proj")
    assert "#SBATCH --signal=USR1@30" in text
    assert "\ncd /data/proj/src\n" in text
    names = [words.split(",")[0] for words in missing[2:]]
    assert missing[:2] == (HARDWARE, "the copy of the code on each host: all nodes must have /data/proj")
    assert names == ["--backoff-limit", "--stall-timeout", "--fail-on"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"np": None}, "no fixed number of ranks"),
        ({"launcher": "torchrun"}, "same number of ranks on each host"),
        ({"launcher": "env", "procs_per_gpu": 2}, "no counterpart"),
    ],
)
def test_what_slurm_cannot_start_alone_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sbatch_script.script(replace(SPEC, **change))  # type: ignore[arg-type]
