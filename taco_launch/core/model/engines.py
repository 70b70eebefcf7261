"""The engines that keep the jobs of a cluster and run them, by the word for them in an inventory; and what jobs request of one."""

from typing import Literal, Mapping, Optional, Tuple, get_args

from taco_launch.core.frozen import dataclass

# How the name of an inventory starts that is a Slurm cluster: this alone on a login node, else followed by USER@LOGIN.
SLURM_PREFIX = "slurm:"


@dataclass(frozen=True)
class Engine:
    """The properties of an engine that code for all engines uses."""

    # In the middle of a sentence of the references.
    description: str
    # How jobs run where the inventory names no container.
    without_image: str = "jobs run on the head only, without a container"
    # What to do to run a job in an image where the inventory names no container.
    image_hint: str = "name the image in an inventory (container: {image: ...}), then: taco-launch -i FILE setup"
    # Whether jobs may run in containers of the site's own programs, which `slurm: {containers: ...}` names.
    has_sites_containers: bool = False
    # The module whose `options` reads what a request asks of it; "" where it has no options of its own.
    options: str = ""


# taco_launch/jobs/backend/NAME has the `connect` of each.
ENGINES: Mapping[str, Engine] = {
    "agent": Engine("the queue of taco-launch itself, kept by its agent on the head"),
    "slurm": Engine(
        "Slurm, on whose login node the head is",
        without_image="jobs run as plain processes on the nodes that Slurm chooses",
        image_hint="add what the nodes have to the inventory, or for -i slurm: to ~/.config/taco-launch/config.yaml: slurm: {containers: apptainer} "
        "or slurm: {containers: pyxis}; or start the container in the command: -- apptainer exec --nv IMAGE python3 train.py",
        has_sites_containers=True,
        options="taco_launch.core.slurm.requested",
    ),
}


def has_sites_containers(engine: str) -> bool:
    """Return whether jobs of an engine may run in containers of the site's own programs; no engine of another package has them."""
    return engine in ENGINES and ENGINES[engine].has_sites_containers


@dataclass(frozen=True)
class SlurmArray:
    """The job array of Slurm that a job belongs to; its jobs are called NAME-NUMBER."""

    # how many jobs the array has, and at most how many of them may run at a time; None: all of them
    count: int = 1
    limit: Optional[int] = None
    # the same for all jobs of one submission, and for no others
    id: str = ""


# The programs by which jobs of Slurm run in containers.
ContainerProgram = Literal["apptainer", "pyxis"]
CONTAINERS: Tuple[str, ...] = get_args(ContainerProgram)


@dataclass(frozen=True)
class SlurmContainer:
    """The container that the ranks of a job on Slurm run in."""

    # one of CONTAINERS
    program: str
    # its image, as the program calls it
    image: str
    # (path on the nodes, path inside, `rw` or `ro`)
    mounts: Tuple[Tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class SlurmOptions:
    """The options that a job passes to Slurm besides its size; "" keeps Slurm's default."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    dependency: str = ""
    # nodes that the job must not use
    exclude: Tuple[str, ...] = ()
    # True: each rank is to have a GPU
    gpus: bool = False
    array: Optional[SlurmArray] = None
    container: Optional[SlurmContainer] = None
