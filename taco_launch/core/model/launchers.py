"""The launchers: what the rest of the code asks of one, instead of its name. Its plan is in taco_launch/core/launch/."""

from typing import TYPE_CHECKING, Mapping

from taco_launch.core.frozen import dataclass

if TYPE_CHECKING:
    from taco_launch.core.model.jobs import JobSpec


@dataclass(frozen=True)
class Launcher:
    """How a launcher starts the ranks of a job."""

    name: str
    # Its name and what it is, in the middle of a sentence of `--help` and the references.
    description: str
    # One process on the head starts the ranks of all hosts, by daemons of its own. Else each host has a launcher of its
    # own, which its guard starts.
    is_single: bool
    # The object of Kubernetes that such a job would be; in capitals, Arena's trainer.
    kind: str
    # What starts a rank on another host than the head, in messages.
    starter: str
    # The module of taco_launch/core/launch/launchers/ that plans its jobs.
    plan: str
    # The program that is started where the inventory names no other.
    program: str = ""
    # Whether its line is one of Open MPI: MCA parameters, ports of daemons, and a version that decides both.
    is_open_mpi: bool = False
    # Whether it tells its ranks itself where they meet (MASTER_ADDR, RANK and the like).
    sets_rendezvous: bool = False
    # Whether hosts can come and go while a job runs (--elastic), and whether jobs without that can have it.
    is_elastic: bool = False
    is_always_elastic: bool = False
    # Whether it restarts all ranks where a host comes or goes, not only those of the host.
    restarts_ranks: bool = False
    # Whether it is ours, which starts any number of processes for a slot or a host.
    is_ours: bool = False
    # The agent's operation that stands before the job's own command (agent/__main__.py).
    agent_op: str = "rank"

    @property
    def trainer(self) -> str:
        """The kind as Arena's `list` has it."""
        return self.kind.upper()

    @property
    def is_mpi(self) -> bool:
        """Whether its jobs are MPIJobs: with a launcher that has no rank of its own."""
        return self.kind == "MPIJob"


LAUNCHERS: Mapping[str, Launcher] = {
    launcher.name: launcher
    for launcher in (
        Launcher(
            "mpirun",
            "mpirun (Open MPI)",
            is_single=True,
            kind="MPIJob",
            starter="mpirun's daemon",
            plan="open_mpi",
            program="mpirun",
            is_open_mpi=True,
        ),
        Launcher(
            "hydra",
            "hydra (mpiexec.hydra of MPICH or Intel MPI)",
            is_single=True,
            kind="MPIJob",
            starter="Hydra's proxy",
            plan="hydra",
            program="mpiexec.hydra",
        ),
        Launcher(
            "torchrun",
            "torchrun on each host",
            is_single=False,
            kind="PyTorchJob",
            starter="torchrun",
            plan="torchrun",
            sets_rendezvous=True,
            is_elastic=True,
            restarts_ranks=True,
        ),
        Launcher(
            "env",
            "env, which only sets the variables of torch.distributed",
            is_single=False,
            kind="PyTorchJob",
            starter="what starts the ranks of --launcher env",
            plan="per_host",
            is_ours=True,
            agent_op="start",
        ),
        Launcher(
            "horovod",
            "horovod (elastic jobs of Horovod, whose ranks survive a change of hosts)",
            is_single=False,
            kind="PyTorchJob",
            starter="Horovod's driver",
            plan="horovod",
            sets_rendezvous=True,
            is_elastic=True,
            is_always_elastic=True,
            agent_op="horovod",
        ),
    )
}


def what_starts_ranks() -> str:
    """Return the sentence of `--help` and the references that names every launcher."""
    *first, last = (launcher.description for launcher in LAUNCHERS.values())
    return f"What starts the ranks: {', '.join(first)}, or {last}. Default: {next(iter(LAUNCHERS))}."


def launcher_of(spec: "JobSpec") -> Launcher:
    """Return the launcher of a job."""
    return LAUNCHERS[spec.launcher]
