"""The plan of a job without starting anything (--dry-run)."""

from collections.abc import Callable

from taco_launch.launch import mpirun
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import HostSlots, LaunchPlan
from taco_launch.placement import place


def needs(spec: JobSpec) -> tuple[str, ...]:
    """Name the facts that are not declared and have to be asked of the head before `dry_run`."""
    return tuple(f"slots of {host.name}" for host in spec.hosts if host.slots is None)


def dry_run(spec: JobSpec, slots_of: Callable[[], int], *, root: bool) -> LaunchPlan:
    """Plan the job as the head would; `slots_of` asks for the slots of a host that declares none.

    Raises:
        PlacementError: it does not fit.
    """
    free = [HostSlots(host.name, slots_of() if host.slots is None else host.slots) for host in spec.hosts]
    wrapper = ("agent", "rank", spec.name, "--")
    return mpirun.plan(spec, "", place(spec.np, free), wrapper, root=root)
