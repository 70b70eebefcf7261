"""YAML text -> plain values and their places: what a user's file may hold at all, whatever its keys mean.

The events of the parser are read, not its objects: nothing is built that was not requested (tags), nothing is copied
(aliases), depth is bounded, and each value keeps its place and how it was written.
"""

import re
from typing import Any

import yaml

from taco_launch.core.errors import SpecError
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.inventory.schema.faults import Faults, Loc, Position
from taco_launch.hosts.inventory.schema.names import plain, shown
from taco_launch.hosts.inventory.schema.text import line_of

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

MAX_DEPTH = 16

_HALF = re.compile("[\ud800-\udfff]")  # libyaml refuses them itself
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_WORD = re.compile(r"[A-Za-z0-9_.:+-]{1,40}")
_NO_TAG = (None, "!")  # the second says "as it is written"
_TAG = "tag:yaml.org,2002:"
_YES_NO = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
# What YAML 1.1 makes of words that a user may have meant as text; none of it is of use in an inventory.
_ODD = {
    "int": "a number, but not a plain decimal one of at most 18 digits",
    "float": "a number with a fraction",
    "timestamp": "a date",
    "merge": "a merge key",
    "value": "a default value",
}


@dataclass(frozen=True)
class OddValue:
    """A value that next to no key of ours takes; `what` says what YAML makes of it, `text` how it is written."""

    what: str
    text: str


def read(text: str, faults: Faults) -> Any:
    """Return the one document of a YAML text as dicts, tuples, strings, ints, bools, None, and Odd for all else.

    What can be passed over (a key that is listed twice, an alias, a tag) is noted in `faults` and reading continues; the place
    of each value is put into `faults.places`.

    Raises:
        SpecError: the text is no YAML, or nested deeper than MAX_DEPTH.
    """
    try:
        return _Reader(text, faults).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line, mark.column) if mark else (0, 0)
        written = line_of(text, line)
        if "\t" in written[: len(written) - len(written.lstrip())] or written[column : column + 1] == "\t":
            problem = "invalid YAML: tabs are not allowed here"
            faults.add_at(line + 1, column + 1, written, problem, "use spaces")
        else:
            problem = ", ".join(plain(part) for part in (error.context, error.problem) if part)
            # in YAML a [ inside of braces starts a list, also in the middle of a word
            hint = 'between { and } a range needs quotes: {"gpu[1-2]": {}}' if written[column:].startswith("[") else ""
            if "mapping values are not allowed" in problem or "did not find expected key" in problem:
                is_key = re.match(r"\s+[\"']?[\w.-]+[\"']?:(\s|$)", written)
                quotes = "put a text that contains a colon and a space in quotes" if ": " in written else ""
                hint = "keys of one level start in the same column, and this one does not" if is_key else quotes
            faults.add_at(line + 1, column + 1, written, f"invalid YAML: {problem}", hint)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML's own scanner, on "\UFFFFFFFF"
        faults.add_at(1, 1, line_of(text, 0), f"invalid YAML: {plain(str(error))}")
    raise faults.error()


class _Reader:
    """Walks the events of one text."""

    def __init__(self, text: str, faults: Faults) -> None:
        self._loader: Any = _Loader(text)  # PyYAML's hints leave out most of what is called here
        self._text = text
        self._faults = faults

    def document(self) -> Any:
        self._next()  # the stream's start
        if isinstance(self._next(), yaml.StreamEndEvent):
            self._faults.places[()] = Position(1, 1, "(nothing)")
            return None
        value = self._value(self._next(), (), None)
        self._next()  # the document's end
        more = self._next()
        if not isinstance(more, yaml.StreamEndEvent):
            raise self._fatal(more, "a second YAML document starts here, but a file must have only one")
        return value

    def _next(self) -> Any:
        return self._loader.get_event()

    def _value(self, event: Any, loc: Loc, key: Any) -> Any:
        """Read one value; `key` is the event of its key, where it has one: the value's place is then the key's.

        Raises:
            SpecError: the document is nested too deep.
        """
        if len(loc) > MAX_DEPTH:
            raise self._fatal(event, f"nested deeper than {MAX_DEPTH} levels")
        mark = (key or event).start_mark
        value, as_shown = self._scalar(event)
        self._faults.places[loc] = Position(mark.line + 1, mark.column + 1, as_shown)
        if event.anchor is not None:
            self._faults.add(loc, "anchors (&) and aliases (*) are not allowed", "write the value out in each place")
        elif event.tag not in _NO_TAG:
            self._faults.add(loc, f"tags are not allowed: {shown(event.tag)}", "write the bare value")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(loc)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(loc)
        return value

    def _scalar(self, event: Any) -> tuple[Any, str]:
        """Return the value of a scalar, None for what is none, and how it is shown.

        Raises:
            SpecError: an escape sequence means an invalid character.
        """
        if isinstance(event, yaml.AliasEvent):
            return OddValue("an alias", ""), plain(f"*{event.anchor}")
        if not isinstance(event, yaml.ScalarEvent):
            return None, "[...]" if isinstance(event, yaml.SequenceStartEvent) else "{...}"
        written: str = event.value
        if _HALF.search(written):
            raise self._fatal(event, "invalid YAML: an escape sequence means an invalid character (a lone surrogate)")
        kind = self._loader.resolve(yaml.ScalarNode, written, event.implicit).removeprefix(_TAG)
        if kind == "str":
            return written, shown(written)
        if kind in ("null", "bool"):
            return _YES_NO.get(written.lower()), written or "(nothing)"
        if kind == "int" and _DECIMAL.fullmatch(written):
            return int(written), written
        return OddValue(_ODD[kind], written), plain(written)

    def _sequence(self, loc: Loc) -> tuple[Any, ...]:
        items: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(event, (*loc, len(items)), None))
        return tuple(items)

    def _mapping(self, loc: Loc) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(key := self._next(), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                template = "{{" in line_of(self._text, key.start_mark.line)
                raise self._fatal(
                    key, f"a key has to be text{': if this is a template, render it first' if template else ''}"
                )
            at = (*loc, key.value)
            if key.value in items:
                self._twice(key, at)
            else:
                self._key(key, at)
                items[key.value] = self._value(self._next(), at, key)
        return items

    def _key(self, event: Any, at: Loc) -> None:
        """Check a key; where it stands is noted for what is said of it."""
        value, as_shown = self._scalar(event)
        self._faults.places[at] = Position(event.start_mark.line + 1, event.start_mark.column + 1, as_shown)
        if event.anchor is not None or event.tag not in _NO_TAG:
            self._faults.add(at, "anchors (&) and tags (!) are not allowed", "write the bare key")
        elif not isinstance(value, str):
            self._faults.add(at, f"a key has to be text, but YAML reads this as {kind_of(value)}", quoted(event.value))

    def _twice(self, event: Any, at: Loc) -> None:
        """Note a key that stands there already, and pass over its value."""
        lines = f"{self._faults.places[at].line} and {event.start_mark.line + 1}"
        self._faults.add(at, f"this key is listed twice: lines {lines}")
        depth = 0
        while True:
            event = self._next()
            if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
                depth += 1
            elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
                depth -= 1
            if depth == 0:
                return

    def _fatal(self, event: Any, problem: str) -> SpecError:
        mark = event.start_mark
        self._faults.add_at(mark.line + 1, mark.column + 1, line_of(self._text, mark.line), problem)
        return self._faults.error()


def kind_of(value: Any) -> str:
    """Return what a value of `read` is, with its article."""
    if isinstance(value, OddValue):
        return value.what
    kinds = {str: "text", bool: "a yes-or-no value", int: "a number", dict: "a mapping", tuple: "a list"}
    return kinds.get(type(value), "an empty value")


def quoted(written: str) -> str:
    """Return how to make text of a word that YAML takes for something else."""
    return f'write "{written}"' if _WORD.fullmatch(written) else ""
