"""The container of a job on Slurm: what stands before its command, and the options of srun."""

from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.agent.slurm import slurm_job
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.launch.command_line.nested_launcher import bare
from taco_launch.core.model.engines import SlurmContainer, SlurmOptions
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import CodeSnapshot, JobSpec
from taco_launch.core.slurm import allocation, container_lines

MOUNTS = (("/nas/x", "/data", "ro"), ("/out", "/out", "rw"))


def job(program: str, image: str, *, gpus: bool = False, **fields: str) -> JobSpec:
    options = SlurmOptions(gpus=gpus, container=SlurmContainer(program, image, MOUNTS))
    return JobSpec("j", ("python3", "t.py"), (Host("n1", "n1"),), np=2, slurm=options, **fields)  # type: ignore[arg-type]


def test_apptainer_stands_before_the_command() -> None:
    spec = job("apptainer", "docker://a:1", gpus=True, cwd="/home/u")
    before = (
        "apptainer",
        "exec",
        "--nv",
        "--bind",
        "/home/u:/home/u",
        "--bind",
        "/nas/x:/data:ro",
        "--bind",
        "/out:/out",
    )
    assert container_lines.prefix(spec, "/entry") == (*before, "docker://a:1")
    assert container_lines.of_srun(spec) == ()
    granted = allocation.granted(spec, [("n1", "n1", 2)], {}, "n1", "/entry")
    assert granted.command == (*before, "docker://a:1", "python3", "t.py")
    shown = container_lines.shown(spec)
    assert shown is not None
    assert shown.option.endswith("docker://a:1 python3 t.py")
    assert "--nv" not in container_lines.prefix(job("apptainer", "docker://a:1"), "")


def test_pyxis_is_entered() -> None:
    spec = job("pyxis", "docker://r.io#a:1", cwd="/home/u")
    assert container_lines.prefix(spec, "/entry") == ("/entry",)
    assert container_lines.of_srun(spec) == (
        "--container-image=docker://r.io#a:1",
        "--container-mounts=/tmp:/tmp,/home/u:/home/u,/nas/x:/data:ro,/out:/out",
        "--container-mount-home",
    )
    shown = container_lines.shown(spec)
    assert shown is not None
    assert shown.option.startswith("srun '--container-image=docker://r.io#a:1' --container-mounts=")


@pytest.mark.parametrize("cwd", ["", "/", "/tmp", "/tmp/x"])
def test_a_folder_that_is_there_anyway_is_not_mounted(cwd: str) -> None:
    assert container_lines.prefix(job("apptainer", "a.sif", cwd=cwd), "").count("--bind") == len(MOUNTS)
    code = replace(job("apptainer", "a.sif", cwd="/home/u"), code=CodeSnapshot("1", source=str(Path.cwd())))
    assert container_lines.prefix(code, "").count("--bind") == len(MOUNTS)


def test_a_job_without_a_container() -> None:
    spec = replace(job("pyxis", "a"), slurm=SlurmOptions())
    assert (container_lines.prefix(spec, "/entry"), container_lines.of_srun(spec)) == ((), ())
    assert container_lines.shown(spec) is None
    assert container_lines.prefix(replace(spec, slurm=None), "/entry") == ()


@pytest.mark.parametrize("program", ["apptainer", "pyxis"])
def test_remarks_look_at_the_command_behind_it(program: str) -> None:
    spec = job(program, "/a.sif", gpus=True, cwd="/home/u")
    before = container_lines.prefix(spec, str(slurm_job.entry_of(JobFolder(Path("/state/jobs/j")))))
    assert bare((*before, "sh", "-c", "echo $RANK"))[2] == ("sh", "-c", "echo $RANK")
