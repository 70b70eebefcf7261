"""A slot that looks free and is refused again and again is held by a job that cannot be seen."""

from taco_launch.agent.gang.placement_errors import HiddenHolders
from taco_launch.core.model.slots import Occupancy, SlotState


def occupancy(*foreign: str) -> Occupancy:
    return Occupancy("n1", tuple(SlotState(f"slot-{number}", foreign=why) for number, why in enumerate(foreign)))


def test_what_is_refused_three_times_is_not_free() -> None:
    hidden = HiddenHolders()
    for tries, free in ((1, 3), (2, 3), (3, 2), (4, 2)):
        hidden.note("n1", occupancy("", "", ""), occupancy("", "that another job has", ""))
        found = hidden.applied("n1", occupancy("", "", ""))
        assert found.free == free, tries
    assert found.slots[1].foreign == "held by a job of another cluster, which is not visible here"
    assert hidden.applied("n2", occupancy("", "")).free == 2


def test_what_was_held_before_is_no_refusal() -> None:
    hidden = HiddenHolders()
    for _try in range(5):
        hidden.note("n1", occupancy("used"), occupancy("used"))
    assert hidden.applied("n1", occupancy("")).free == 1
