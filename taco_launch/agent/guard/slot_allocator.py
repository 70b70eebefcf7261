"""How a guard takes a job's slots on its host: which are tried first, and what is told when they cannot be had."""

import os
import time
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.host import facts, leases, occupancy, ports
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.store.folders import JobFolder, lease_folder
from taco_launch.core.errors import HostError
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.host.hosts import GpuConstraints
from taco_launch.core.model.job_facts import LocalHcas
from taco_launch.core.model.slots import Occupancy, port_name
from taco_launch.core.placement.gpu_constraints import allowed
from taco_launch.core.protocol.guard_messages import HostReport, Lease, Leased, Supervise

if TYPE_CHECKING:  # it is needed where a job takes some of the GPUs alone
    from taco_launch.core.placement.mesh import GpuMesh

# Who uses the GPUs is looked at on all hosts side by side, and not again when their slots are taken one after another.
_RECENT_SECONDS = 10.0
# The chosen GPUs alone, then those chosen of what is left; the last time any others besides.
_TRIES = 3


class JobSlots:
    """The slots and ports of this host that a guard has for its job."""

    def __init__(self, folder: JobFolder) -> None:
        """Have none yet."""
        self._folder = folder
        self._place = lease_folder(os.environ, folder.path.parent.parent, root=os.geteuid() == 0)
        self._leases = leases.Leases(self._place, folder.path.parent)
        self._slots: Optional[occupancy.Slots] = None
        self._port = 0  # where the ranks meet, if that is here
        self.taken: Sequence[str] = ()

    def report(self, message: Supervise) -> HostReport:
        """Return what the supervisor asks of the host: its slots and who has them, which ports are in use."""
        try:
            slots = occupancy.Slots(self._place, self._folder.path.parent, message.size, message.gpus)
        except HostError as error:
            return HostReport(error=error.message, hint=error.hint)
        self._slots = slots
        found = facts.host_with(slots.uuids) if message.look else facts.cpus()
        seen, taken = slots.read_thoroughly(before_taking=True), ports.listening_ports(message.ports)
        return HostReport(host=found, occupancy=seen, taken=taken, boot=facts.boot_id())

    def take(self, job_id: str, message: Lease) -> Optional[Leased]:
        """Take as many as the message asks for; None before `report`."""
        if self._slots is None:
            return None
        answer = take(self._folder, job_id, self._leases, self._slots, message)
        self._port = answer.port or 0
        self.taken = answer.slots or ()
        return answer

    def occupancy(self) -> Optional[Occupancy]:
        """Return who has which slots now; None before `report`."""
        return None if self._slots is None else self._slots.read_thoroughly()

    def release(self, *, gone: bool) -> None:
        """Let them go; `gone` says that nothing of the job is left on them."""
        self._leases.release(gone=gone)

    def listener(self) -> str:
        """Return who listens on the port where the ranks meet, "" where nobody does or it is on another host."""
        return ports.listener(self._port) if self._port else ""


def take(folder: JobFolder, job_id: str, held: leases.Leases, slots: occupancy.Slots, asked_for: Lease) -> Leased:
    """Take as many slots as the message asks for; say which and why these, or who has those that are missing.

    With `rendezvous`, also the port where the ranks are to meet: that one, or any for 0, which is told then.
    """
    holder = Holder(
        folder.name,
        job_id,
        time.time(),
        asked_for.cluster,
        asked_for.owner,
        pid=os.getpid(),
    )
    count, asked, port, fresh = asked_for.count, list(asked_for.ports), asked_for.rendezvous, 0
    order = _Order(folder, slots, asked_for)
    recent = time.monotonic() - slots.used_at < _RECENT_SECONDS
    use = slots.use if recent else None
    try:
        if port is not None:
            fresh = 0 if port else ports.free(asked_for.allowed, held.is_leased)
            port = port or fresh
            asked.append(port)
        for tried in range(_TRIES):
            names = order.names(held.refused if tried else {}, last=tried == _TRIES - 1)
            wanted = len(slots.names) if asked_for.whole and count else count
            taken = held.take(names, wanted, holder, use, asked, while_drained=slots.while_drained)
            if taken or not order.matters:
                break
    except HostError as error:
        return Leased(slots=None, error=f"{error.message} ({error.hint})")
    heard = ports.heard([each for each in asked if each != fresh]) if taken else []
    if heard:  # whoever has them holds no lease of them
        held.release(gone=True)
    if heard or not taken:
        found = slots.read_thoroughly()
        refused = held.refused
        missing = [each for each in asked if port_name(each) in refused or each in heard]
        who = (held.holder(port) or ports.listener(port)) if port is not None and port in missing else ""
        return Leased(slots=None, ports=missing, occupancy=found.without(refused), who=who)
    return order.answer(taken).replace(port=port)


class _Order:
    """The order in which slots are tried; `matters` says that a job takes some of the free GPUs, and not all."""

    def __init__(self, folder: JobFolder, slots: occupancy.Slots, message: Lease) -> None:
        self._state = folder.path.parent.parent
        self._slots = slots
        self._count = message.count
        self._shared = message.shared
        self._whole = message.whole
        self._constraints = message.constraints
        self._numbers = range(len(slots.names))
        if slots.gpus or self._constraints != GpuConstraints():
            self._numbers = allowed(self._constraints, slots.read())  # type: ignore[assignment]
        self._gpus = [number for number in self._numbers if number < slots.gpus]
        self.matters = False
        self._choice: Optional[GpuChoice] = None

    def names(self, refused: Mapping[str, str], *, last: bool) -> Tuple[str, ...]:
        """Return the slots to be tried, the best ones first; `last` says that any others will do, too."""
        every = self._slots.names
        others = [every[number] for number in (range(len(every)) if self._whole else self._numbers)]
        self._choice = self._chosen(refused)
        self.matters = self._choice is not None and not self._whole
        if self._choice is None or self._whole:
            return tuple(others)
        chosen = [every[number] for number in self._choice.gpus]
        return (*chosen, *(name for name in others if name not in chosen)) if last else tuple(chosen)

    def _chosen(self, refused: Mapping[str, str]) -> Optional[GpuChoice]:
        """Choose among the GPUs that are free, None where there is no choice."""
        if not 0 < self._count < len(self._gpus):
            return None
        states = self._slots.read().slots
        free = [number for number in self._gpus if states[number].is_free and states[number].name not in refused]
        return self._pick(free) if len(free) > self._count else None

    def _pick(self, free: List[int]) -> GpuChoice:
        from taco_launch.core.placement.host_gpus import pick  # noqa: PLC0415 - only where there is a choice

        return pick(self._count, free, self._mesh(), self._shared, self._constraints.topology)

    def answer(self, taken: Sequence[str]) -> Leased:
        """Return which slots the ranks have, in ascending order, and why."""
        had = [number for number, name in enumerate(self._slots.names) if name in taken]
        choice = self._choice
        if self._whole and had:
            mine = [number for number in had if number in self._numbers]
            had = sorted(choice.gpus) if choice is not None else mine[: self._count]
        elif choice is not None and sorted(choice.gpus) != had:  # others were faster: what is left
            choice = self._pick(had)
        if choice is None:
            choice = self._score_of_only_set([number for number in had if number < self._slots.gpus])
        slots = [self._slots.names[number] for number in had]
        return Leased(slots=slots, choice=choice, near=self._near(had))

    def _score_of_only_set(self, had: Sequence[int]) -> Optional[GpuChoice]:
        """Return the score of a GPU set that had no alternative; of a whole host only if the links are known already."""
        mesh = self._mesh(ask=len(had) < len(self._slots.uuids or ())) if had else None
        if mesh is None:
            return None
        from taco_launch.core.placement.host_gpus import only  # noqa: PLC0415 - only where the links are known

        return only(had, mesh)

    def _near(self, had: Sequence[int]) -> LocalHcas:
        """Return which HCAs are near the GPUs of a job that leaves others of them to other jobs, as far as it is known."""
        gpus = [number for number in had if number < self._slots.gpus]
        if self._whole or not self._constraints.topology or not 0 < len(gpus) < len(self._slots.uuids or ()):
            return ()
        from taco_launch.core.facts.gpus.hca_distance import nearest_first  # noqa: PLC0415 - only for some of the GPUs

        mesh = self._mesh()
        return () if mesh is None else nearest_first(mesh.topology, gpus)

    def _mesh(self, *, ask: bool = True) -> Optional["GpuMesh"]:
        from taco_launch.agent.host import gpu_topology  # noqa: PLC0415 - only for some of the GPUs

        uuids, models = self._slots.uuids, self._slots.models
        return gpu_topology.mesh(self._state, uuids, models, ask=ask) if uuids else None
