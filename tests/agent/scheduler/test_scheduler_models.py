"""The scheduler and the models of GPUs: no job is tried where GPUs are free that it may not have, and it is told so."""

import pytest

from taco_launch.agent.scheduler.slot_watch import HERE
from taco_launch.agent.store import records
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.slots import Occupancy, SlotHolder, SlotState
from tests.support.queues import Queue

V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"
HELD = SlotHolder("x", "id-x", 0.0)


def submit(queue: Queue, np: int, constraints: GpuConstraints) -> None:
    hosts = (
        Host("me", "127.0.0.1", connection="local", constraints=constraints),
        Host("gpu2", "10.0.0.2", constraints=constraints),
    )
    with queue.jobs.create("a") as draft:
        draft.agent.symlink_to(queue.agent)
        records.write_spec(draft, JobSpec("a", ("true",), hosts, head="me", np=np))
        records.write_json(draft.caller, {})
        records.Events(draft).add(state.SUBMITTED, "why", id="id-a")
        records.Events(draft).add(state.WAITING, state.FOR_SLOTS, hosts=(("me", "as its supervisor said"),))
        queue.jobs.mark("a")
        queue.jobs.publish(draft, "a")


def tell(queue: Queue, here: str, there: str) -> None:
    """Have a host with V100s and one with A100s tell their slots: a dot for a free one."""
    for name, slots, model in ((HERE, here, V100), ("gpu2", there, A100)):
        states = (SlotState(f"GPU-{number}", None if slot == "." else HELD) for number, slot in enumerate(slots))
        queue.hosts.slots[name] = Occupancy(name, tuple(states), len(slots), (model,) * len(slots))


@pytest.mark.parametrize(
    ("np", "constraints", "told"),
    [
        (
            2,
            GpuConstraints(models=("A100",)),
            (("me", f"0 of 0 free (GPU 0,1: {V100}, not A100)"), ("gpu2", "1 of 2 free, 1 {}")),
        ),
        (
            3,
            GpuConstraints(),
            (("", "the job fits only on GPUs of several models"), ("me", "2 of 2 free"), ("gpu2", "1 of 2 free, 1 {}")),
        ),
    ],
)
def test_a_job_waits_for_gpus_of_its_model(
    queue: Queue, np: int, constraints: GpuConstraints, told: tuple[tuple[str, str], ...]
) -> None:
    submit(queue, np, constraints)
    tell(queue, "..", "x.")
    for _ in range(20):
        queue.step(2)
    held = "held by job x (another queue) since"
    waiting = tuple((host, why.partition(" since ")[0]) for host, why in queue.record("a").waiting)
    assert waiting == tuple((host, why.format(held).partition(" since")[0]) for host, why in told)
    assert queue.scheduler._pending.entries["a"].begun is None  # it was not tried in vain
    tell(queue, "...", "..")
    queue.until(lambda: queue.runs("a"), 2)
