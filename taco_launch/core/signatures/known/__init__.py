"""The known texts, one file per speaker: mpirun, NCCL, torch, ssh, docker, the kernel."""

import enum
from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass


class FailureText(enum.IntEnum):
    """What a text says of a failure; what comes first here is told first."""

    CAUSE = 0  # why it failed
    OUTCOME = 1  # that a rank ended badly, and how, or that a program raised an error of its own
    ECHO = 2  # what a rank says because another one has failed or does not answer
    FALLBACK = 3  # told only where nothing of the kinds above explains the failure
    NOTE = 4  # no failure: what makes a job slower than it could be, or an option that does nothing


@dataclass(frozen=True)
class Signature:
    """A known text.

    A line is looked at when one of `keys` stands in it. `pattern` (a regular expression, searched in that line and the
    `lines` - 1 after it) has to match then; without one the key is enough. Its groups fill `cause` and `next`, where
    `host` stands for the host (for "that host" or HOST when nothing names it), and a part in double brackets is told
    only if a group has a value: [[port?, port {port},]] or [[port?port {port}||a port]]. A group whose name ends in a
    digit is another place for the same value.

    With `packages`, pairs of a module and its package, the value `package` is told by its package's name.

    With `more`, two groups, it is told only where the first one's number is larger than the other's.

    `unless` names signatures that say the same more precisely: where one of them is found this one is not told. Nor is
    it told where `only_with` names signatures and none of them is found, nor right below a line with `not_after` in it.

    A text with `at_end` is a warning, after which programs may continue well: it is told where something else tells of a
    failure, or where `at_end` is found in the log's last line. A text that is often `survived` says a failure only where
    a program raised it, at the end of its log or shortly above another failure, and never on a line that warns or tells
    of a new try; the last one counts. One that is often `handled` says a failure only where its rank says hardly anything
    after it, or where no label tells whose it is, at the end of the log or shortly above another failure. One with both says a failure only there, raised or not. Of those whose cause is
    `unknown` only the first that ended a rank is told, and only where nothing else tells why. One that is `compared` is told
    only of what the lines of several ranks say together (watchdogs.py).
    """

    name: str
    keys: Tuple[str, ...]
    cause: str
    next: str
    pattern: str = ""
    kind: FailureText = FailureText.CAUSE
    lines: int = 1
    unless: Tuple[str, ...] = ()
    only_with: Tuple[str, ...] = ()
    not_after: str = ""
    at_end: str = ""
    survived: bool = False
    handled: bool = False
    unknown: bool = False
    compared: bool = False
    more: Tuple[str, ...] = ()
    packages: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Qualifier:
    """What the words near a text change.

    `pattern` is searched in the lines near the text (`nearby` in lines.py), those of its own included; ^ and $ stand for
    the start and the end of each line. Its groups and those of the signature fill `cause` and `next`. `kind` takes the
    place of the signature's own where it is given.
    """

    pattern: str
    cause: str
    next: str
    kind: Optional[FailureText] = None
