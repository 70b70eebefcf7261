"""What the lab says while it works."""

from collections.abc import Callable

from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class Reporter:
    """Where words go: `say` keeps a line for the user, `show` may be replaced by the next one."""

    say: Callable[[str], None]
    show: Callable[[str], None]
