"""The container of a job on Slurm -> what stands before its command, and the options of srun that start it. Pure."""

from typing import Optional, Tuple

from taco_launch.core.command import shell
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.slurm.batch_script import Directive

# Sockets of MPI and the job's own folder on a node are there.
_TMP = "/tmp"  # noqa: S108 - of the nodes


def prefix(spec: JobSpec, entry: str) -> Tuple[str, ...]:
    """Return what stands before a command that runs in the job's container, () without one; `entry` is the program that enters that of pyxis."""
    container = None if spec.slurm is None else spec.slurm.container
    if spec.slurm is None or container is None:
        return ()
    if container.program == "pyxis":
        return (entry,)
    binds = tuple(word for mount in _mounts(spec) for word in ("--bind", mount))
    return ("apptainer", "exec", *(("--nv",) if spec.slurm.gpus else ()), *binds, container.image)


def of_srun(spec: JobSpec) -> Tuple[str, ...]:
    """Return the options by which srun starts the container on a node with pyxis, () for a job without one."""
    container = None if spec.slurm is None else spec.slurm.container
    if container is None or container.program != "pyxis":
        return ()
    mounts = ",".join((f"{_TMP}:{_TMP}", *_mounts(spec)))
    return (f"--container-image={container.image}", f"--container-mounts={mounts}", "--container-mount-home")


def shown(spec: JobSpec) -> Optional[Directive]:
    """Return the line that runs a rank in the job's container, and its explanation; None for a job without one."""
    options = of_srun(spec)
    if options:
        return Directive(shell(("srun", *options)), "--image: a container for all ranks of a node")
    before = prefix(spec, "")
    return Directive(shell((*before, *spec.command)), "--image: a container for each rank") if before else None


def _mounts(spec: JobSpec) -> Tuple[str, ...]:
    """Return the folders of the nodes in the container as FROM:TO or FROM:TO:ro, with the one in which the ranks start."""
    assert spec.slurm is not None
    assert spec.slurm.container is not None
    has_own = spec.code is None and spec.cwd not in ("", "/") and not f"{spec.cwd}/".startswith(f"{_TMP}/")
    start = ((spec.cwd, spec.cwd, "rw"),) if has_own else ()
    return tuple(":".join(each[:2] if each[2] == "rw" else each) for each in (*start, *spec.slurm.container.mounts))
