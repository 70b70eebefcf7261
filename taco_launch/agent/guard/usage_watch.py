"""Samples how much of this host its job uses, every ten seconds, and reports that to the supervisor."""

from typing import TYPE_CHECKING, Callable, Collection, List, Mapping, Optional

from taco_launch.core.model.slots import is_gpu
from taco_launch.core.protocol.guard_messages import UsageSample
from taco_launch.core.protocol.message import Message

if TYPE_CHECKING:
    from taco_launch.agent.counters.gpu_usage import GpuSampler
    from taco_launch.agent.counters.host_usage import Reading
    from taco_launch.agent.counters.process_trees import Key

SECONDS = 10
# A walk through all processes of the host costs more than all else: the job's are looked up once in so many samples.
_WALK_EVERY = 6


class UsageWatcher:
    """The sampler of one host of a job. What reads counters is loaded when the ranks run, not while they start."""

    def __init__(self) -> None:
        """Sample nothing before the first rank has run for some seconds."""
        self._due: Optional[float] = None
        self._before: Optional[Reading] = None
        self._gpus: Optional[GpuSampler] = None
        self._members: List[Key] = []
        self._count = 0

    def check(
        self,
        now: float,
        roots: "Mapping[int, Key]",
        slots: Collection[str],
        tell: Callable[[Message], None],
    ) -> None:
        """Sample, if that is due at this monotonic time; `roots` are the wrappers of the ranks that run."""
        if not roots or (self._due is not None and now < self._due):
            return
        first, self._due = self._due is None, now + SECONDS
        if first:
            return
        self._due = now + SECONDS
        from taco_launch.agent.counters import gpu_usage, host_usage, process_trees  # noqa: PLC0415 - see above

        if self._count % _WALK_EVERY == 0:
            self._members = [key for keys in process_trees.trees(roots).values() for key in keys[1:]]
        self._count += 1
        if self._gpus is None:
            self._gpus = gpu_usage.GpuSampler([slot for slot in slots if is_gpu(slot)], SECONDS)
        before, self._before = self._before, host_usage.read(self._members)
        if before is not None:
            usage = host_usage.between(before, self._before)
            numbers = self._gpus.read()
            tell(UsageSample(usage=gpu_usage.added(usage, numbers) if numbers else usage))

    def close(self) -> None:
        """End what it has started."""
        if self._gpus is not None:
            self._gpus.close()
