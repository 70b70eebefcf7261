"""The loop of a rolling change: the order, and what stays drained where it stops."""

from collections.abc import Mapping
from typing import Any

import pytest

from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.setup.apply.rolling import Rolled, Step, Steps, grouped, roll

GROUPS = (("gpu2", "gpu3"), ("gpu4", "gpu5"), ("gpu1",))
NAMES = ("drain", "change", "check", "open")


class Fake:
    """Steps that note what they are called with, and of which one fails: with an answer, or an exception."""

    def __init__(self, step: str = "", end: Any = None) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._step, self._end = step, end

    def steps(self) -> Steps:
        return Steps(*map(self._of, NAMES))

    def _of(self, name: str) -> Step:
        def step(hosts: tuple[str, ...]) -> Mapping[str, TacoLaunchError]:
            self.calls.append((name, *hosts))
            if name != self._step or "gpu4" not in hosts:
                return {}
            if isinstance(self._end, BaseException):
                raise self._end
            return {"gpu4": HostError("gpu4: broken")}

        return step


@pytest.mark.parametrize(("size", "groups"), [(1, 3), (2, 2), (9, 1)])
def test_the_head_comes_last(size: int, groups: int) -> None:
    found = grouped(("gpu1", "gpu2", "gpu3"), "gpu1", size)
    assert (len(found), [name for each in found for name in each]) == (groups, ["gpu2", "gpu3", "gpu1"])


def test_each_group_is_opened_before_the_next_is_drained() -> None:
    fake = Fake()
    assert roll(GROUPS, fake.steps()) == Rolled(("gpu2", "gpu3", "gpu4", "gpu5", "gpu1"), (), (), {})
    assert fake.calls == [(name, *group) for group in GROUPS for name in NAMES]


@pytest.mark.parametrize(
    ("step", "drained", "untouched"),
    [
        ("drain", (), ("gpu4", "gpu1")),
        ("change", ("gpu4",), ("gpu1",)),
        ("check", ("gpu4",), ("gpu1",)),
        ("open", ("gpu4",), ("gpu1",)),
    ],
)
def test_it_stops_after_the_group_in_which_a_host_fails(
    step: str, drained: tuple[str, ...], untouched: tuple[str, ...]
) -> None:
    fake = Fake(step)
    end = roll(GROUPS, fake.steps())
    assert (end.done, end.drained, end.untouched) == (("gpu2", "gpu3", "gpu5"), drained, untouched)
    assert list(end.errors) == ["gpu4"]
    assert fake.calls[-1] == ("open", "gpu4", "gpu5") if step == "open" else ("open", "gpu5")


@pytest.mark.parametrize("end", [KeyboardInterrupt(), HostError("the head is gone")], ids=["ctrl-c", "error"])
@pytest.mark.parametrize("step", NAMES)
def test_a_group_that_is_left_in_the_middle_stays_drained(step: str, end: BaseException) -> None:
    fake = Fake(step, end)
    found = roll(GROUPS, fake.steps())
    assert (found.done, found.drained, found.untouched) == (("gpu2", "gpu3"), ("gpu4", "gpu5"), ("gpu1",))
    assert found.is_interrupted == isinstance(end, KeyboardInterrupt)
    assert set(found.errors) == (set() if found.is_interrupted else {"gpu4", "gpu5"})
    assert fake.calls[-1] == (step, "gpu4", "gpu5")
