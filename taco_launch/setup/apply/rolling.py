"""Change hosts in groups, one group after another, while jobs run on the others: drain, change, check, open."""

from collections.abc import Callable, Mapping, Sequence

from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass

# The reason of its drains. By it they are told from those of people, which stay.
REASON = "setup --rolling"
# What is done to a group of hosts; it returns the hosts that failed, with their errors.
Step = Callable[[tuple[str, ...]], Mapping[str, TacoLaunchError]]


@dataclass(frozen=True)
class Steps:
    """What is done to each group, in this order; a host that fails in one is left out of those after it."""

    drain: Step
    change: Step
    check: Step
    open: Step


@dataclass(frozen=True)
class Rolled:
    """How a rolling change ended: the hosts that are done, those that stay drained, and those that were not touched.

    `errors` say why it stopped, by host. It is empty where all is done, and after Ctrl-C.
    """

    done: tuple[str, ...]
    drained: tuple[str, ...]
    untouched: tuple[str, ...]
    errors: Mapping[str, TacoLaunchError]
    is_interrupted: bool = False


def grouped(names: Sequence[str], head: str, size: int) -> tuple[tuple[str, ...], ...]:
    """Return hosts in groups of `size`, in the order in which they are changed: the head comes last."""
    order = sorted(names, key=lambda name: name == head)
    return tuple(tuple(order[at : at + size]) for at in range(0, len(order), size))


def roll(groups: Sequence[tuple[str, ...]], steps: Steps) -> Rolled:
    """Change the groups one after another; stop after the first one in which a host fails, and at Ctrl-C."""
    done: list[str] = []
    for number, group in enumerate(groups):
        left = tuple(name for later in groups[number + 1 :] for name in later)
        errors: dict[str, TacoLaunchError] = {}
        closed = well = group
        try:
            for step in (steps.drain, steps.change, steps.check, steps.open):
                errors |= step(well)
                well = tuple(name for name in well if name not in errors)
                if step is steps.drain:
                    closed = well
                if not well:
                    break
        except KeyboardInterrupt:
            return Rolled(tuple(done), closed, left, errors, is_interrupted=True)
        except TacoLaunchError as error:
            errors |= dict.fromkeys(well, error)
            well = ()
        done += well
        if errors:
            open_ = tuple(name for name in group if name not in closed)
            return Rolled(tuple(done), tuple(name for name in closed if name not in well), (*open_, *left), errors)
    return Rolled(tuple(done), (), (), {})
