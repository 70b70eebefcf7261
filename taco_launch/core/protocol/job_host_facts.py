"""What the agent reports of its own host before a job is placed."""

from typing import TYPE_CHECKING, Optional, Sequence

from taco_launch.core.protocol.message import Message

if TYPE_CHECKING:
    from taco_launch.core.model.job_facts import JobHost

_MOST_SLOTS = 1 << 12


class JobHostFacts(Message):
    """The facts of one host, as JobHost has them; None is "not known"."""

    slots: Optional[int] = None
    gpus: Optional[int] = None
    # whether a process may read the memory of a sibling
    single_copy: Optional[bool] = None
    cpus: Optional[int] = None
    cores: Optional[int] = None
    models: Sequence[str] = ()
    # by what the engine knows the image of the container: id and digests; none where that is not known
    image: Sequence[str] = ()

    def check(self) -> None:
        """Check that a job can be on a host of these sizes."""
        if not all(0 <= (count or 0) <= _MOST_SLOTS for count in (self.slots, self.gpus, self.cpus, self.cores)):
            raise ValueError(f"slots, GPUs, CPUs or cores are fewer than 0 or more than {_MOST_SLOTS}")

    def job_host(self, name: str) -> "JobHost":
        """Return the host under the name that the inventory has for it."""
        from taco_launch.core.model.job_facts import JobHost  # noqa: PLC0415 - who reports the facts does not need it

        return JobHost(name, self.slots, self.gpus, self.single_copy, tuple(self.models), self.cpus, self.cores)
