"""Gathers all that is wrong with one document, each fault with its path, line and value."""

import re
from collections.abc import Iterable, Sequence

from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.inventory.schema.names import PATH_MAX, did_you_mean, plain, shown

# Where a value stands in a document: keys of mappings and indexes of lists, from the top.
Loc = tuple[str | int, ...]

# A message longer than this helps nobody; the last line then says how many more there are.
MAX_FAULTS = 100
_MOST_LISTED = 24

_HINT = "`taco-launch inventory --schema` describes every key"
_HARMLESS = re.compile(r"[A-Za-z0-9_./\[\],-]{1,80}")


@dataclass(frozen=True)
class Position:
    """Where a value starts, counted from 1, and how it is shown in a message."""

    line: int
    column: int
    shown: str


class Faults:
    """The faults of one document; `source` names it in the message, `places` is filled as it is read."""

    def __init__(self, source: str, hint: str = _HINT, whole: str = "inventory") -> None:
        """Start without faults; `hint` says where to read on, `whole` what the document is."""
        self.source = plain(source, PATH_MAX)
        self.whole = whole
        self._hint = hint
        self.places: dict[Loc, Position] = {}
        self._found: list[tuple[int, int, Fault]] = []
        self._locs: set[Loc] = set()
        self._count = 0

    def __contains__(self, loc: Loc) -> bool:
        """Whether something is wrong at `loc` itself."""
        return loc in self._locs

    @property
    def full(self) -> bool:
        """Whether there are as many faults as are shown: further ones are only counted."""
        return self._count >= MAX_FAULTS

    def add(self, loc: Loc, problem: str, hint: str = "", value: str = "") -> None:
        """Note a fault of the value at `loc`, unless it has one: what follows from the first is no news.

        `value` replaces what is shown of it (already escaped).
        """
        if loc in self._locs:
            return
        place = self.places.get(loc)
        near = next((self.places[loc[:end]] for end in range(len(loc), 0, -1) if loc[:end] in self.places), None)
        path = path_of(loc) or self.whole
        where = f"{path} (line {near.line})" if near else path
        self._locs.add(loc)
        fault = Fault(where, value or (place.shown if place else ""), problem, hint)
        self._keep(near.line if near else 0, near.column if near else 0, fault)

    def add_unknown(
        self, loc: Loc, text: str, known: Iterable[str], problem: str, *, lists: str = "", meant: str = ""
    ) -> None:
        """Note that `text`, a key or value at `loc`, is none of the `known`.

        These are listed after `lists` if none is near, and they are few: the schema has all. `meant` is a hint that
        replaces the search for the nearest.
        """
        known = tuple(known)
        # looking for the nearest costs: not for faults that are only counted
        near = meant or ("" if self.full else did_you_mean(text, known))
        self.add(
            loc,
            problem if near or not lists or len(known) > _MOST_LISTED else f"{problem}; {lists}: {', '.join(known)}",
            near,
        )

    def add_at(self, line: int, column: int, value: str, problem: str, hint: str = "") -> None:
        """Note a fault of the text itself at `line` and `column`, counted from 1; `value` is what stands there."""
        self._keep(line, column, Fault(f"line {line} column {column}", shown(value), problem, hint))

    def error(self) -> SpecError:
        """Return all faults in the order of their lines, as the error to raise."""
        faults = [fault for _, _, fault in sorted(self._found, key=lambda found: found[:2])]
        return SpecError(self.source, limited(faults, self._count), self._hint)

    def raise_any(self) -> None:
        """Raise what was found, if anything was.

        Raises:
            SpecError: all faults.
        """
        if self._count:
            raise self.error()

    def _keep(self, line: int, column: int, fault: Fault) -> None:
        self._count += 1
        if len(self._found) < MAX_FAULTS:
            self._found.append((line, column, fault))


def limited(faults: Sequence[Fault], count: int) -> tuple[Fault, ...]:
    """Return the faults to show of `count` that were found, with one at the end that says how many are not shown."""
    more = count - len(faults)
    return (*faults, Fault("further", str(more), "faults are not shown")) if more else tuple(faults)


def path_of(loc: Loc) -> str:
    """Return a place as a message shows it: hosts.gpu1.slots, groups.a[0]; nothing for the whole document."""
    text = ""
    for step in loc:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _HARMLESS.fullmatch(step) else shown(step))
    return text
