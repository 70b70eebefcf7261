"""The call `facts`: what the line of a job depends on, of the agent's own host."""

from typing import TYPE_CHECKING, Any, Mapping, Optional

from taco_launch.core.model.codec import from_json
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.job_host_facts import JobHostFacts

if TYPE_CHECKING:
    from taco_launch.core.model.host.hardware import Topology


class GetFacts(Request):
    """Return what is known of the host, and of the Open MPI that `mpirun` on the caller's `path` is of. Reply: FactsReply."""

    op = "facts"
    mpirun: str
    path: str
    # whether to count the host's slots by its GPUs
    count_slots: bool
    # whether to read the links between its GPUs
    topology: bool = False


class FactsReply(Reply):
    """What is known of the host, its Topology as JSON; `problem` says why `openmpi` is None."""

    op = "known"
    known: JobHostFacts
    openmpi: Optional[str]
    problem: str = ""
    topology: Optional[Mapping[str, Any]] = None

    def links(self) -> "Optional[Topology]":
        """Return the links between the host's GPUs, None where they were not requested or are not known.

        Raises:
            ValueError: they are no topology.
        """
        from taco_launch.core.model.host.hardware import Topology  # noqa: PLC0415

        return None if self.topology is None else from_json(Topology, self.topology)
