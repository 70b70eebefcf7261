"""Plain values -> InventoryFile: pydantic's errors become faults, and what is not faulty continues to be checked further."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from taco_launch.hosts.inventory.schema.document import OddValue, kind_of, quoted
from taco_launch.hosts.inventory.schema.faults import Faults, Loc
from taco_launch.hosts.inventory.schema.names import did_you_mean, plain
from taco_launch.hosts.inventory.schema.schema import InventoryFile
from taco_launch.hosts.inventory.schema.section import SchemaSection, section_in

_Section = TypeVar("_Section", bound=SchemaSection)
_FILLER = "x"
_KEY = "[key]"  # the last step of pydantic's path where a key, not its value, is wrong
_HOST = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,40}")  # what YAML takes for text inside of braces too
_MOST_IN_FORM = 4
_SHAPES = {
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "tuple_type": "a list",
    "union_tag_not_found": "a list of hosts, or a mapping with hosts",
}

_JUMPS = ("jump", "jumphost", "proxyjump", "bastion")
_KEY_FILES = ("key", "keyfile", "privatekey", "privatekeyfile", "sshkey", "pem")
_JUMP = "set a jump host in ~/.ssh/config: ProxyJump JUMPHOST below Host NAME"


def check(value: Any, faults: Faults) -> InventoryFile:
    """Check what `document.read` gave against the schema; all faults go to `faults`.

    What is wrong is left out of the result, and a required key that is missing is made up, so that the caller can continue
    looking for faults; with any fault the result is good for nothing else.

    Raises:
        SpecError: there is nothing to continue with.
    """

    def refused(detail: ErrorDetails, wrong: set[Loc]) -> Loc:
        loc = _loc(detail["loc"], faults)
        if loc not in wrong:  # else it was left out for a fault of its own
            given = detail["input"]
            hint = _hosts_form(given) if loc == ("hosts",) else _JUMP if _is_one_of(_JUMPS, loc) else ""
            if "identity_file" in _keys(loc) and _is_one_of(_KEY_FILES, loc):
                hint = "did you mean 'identity_file'?"
            if loc[:1] == ("hosts",) and len(loc) == 2 and isinstance(given, str):
                hint = f"write {loc[1]}: {{address: {plain(given)}}}"
            note(detail, loc, faults, _keys(loc), hint)
        return loc[:-1] if _goes_whole(detail["type"], loc) else loc

    return validated(InventoryFile, value, faults, refused, {"cluster": _FILLER, "hosts": {}})


def validated(
    kind: type[_Section],
    value: Any,
    faults: Faults,
    refused: Callable[[ErrorDetails, set[Loc]], Loc],
    filler: Mapping[str, Any] | None = None,
) -> _Section:
    """Return what a document holds, without what is wrong in it.

    `refused` notes what pydantic finds wrong, and returns what is to be left out, of which it is given what was so far;
    `filler` has what is made up for required keys.

    Raises:
        SpecError: there is nothing to go on with.
    """
    wrong: set[Loc] = set()
    rest = value
    while True:  # what is left out may be missed by what it stood in, which is then left out as well
        try:
            return kind.model_validate(rest)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        before = len(wrong)
        for detail in errors:
            wrong.add(refused(detail, wrong))
        if not isinstance(value, dict) or len(wrong) == before:
            raise faults.error()
        rest = {**(filler or {}), **without(value, (), wrong)}


def _goes_whole(kind: str, loc: Loc) -> bool:
    """Return whether what a faulty value stands in is left out with it: a required key, an item of a plain list."""
    return len(loc) > 1 and (kind == "missing" or (isinstance(loc[-1], int) and loc[0] != "groups"))


def _loc(steps: Iterable[str | int], faults: Faults) -> Loc:
    """Return the place in the document: without pydantic's own steps."""
    loc = tuple(steps)
    if loc[:1] == ("groups",) and len(loc) > 2 and loc[2] != _KEY:
        loc = loc[:2] + loc[3:]  # which form of a group was read
    if loc[:2] == ("container", "image") or loc[:1] in (("data_roots",), ("notify",)):
        loc = loc[:2] + loc[3:]
    return loc[:-1] if loc[-1:] == (_KEY,) and loc not in faults.places else loc


def note(detail: ErrorDetails, loc: Loc, faults: Faults, known: tuple[str, ...], hint: str = "") -> None:
    """Make a fault of one of pydantic's errors.

    `loc` is where it is in the document, `known` the keys that may stand beside it; `hint` says how a value of another
    shape is written, or which key an unknown one stands for.
    """
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        faults.add_unknown(loc, str(loc[-1]), known, "unknown key", lists="known here", meant=hint)
    elif kind == "missing":
        faults.add(loc, "this key is required", value="missing")
    elif kind == "value_error":
        problem, own = detail["ctx"]["error"].args
        faults.add(loc, problem, own or hint)
    elif kind == "literal_error":
        expected = detail["ctx"]["expected"]
        near = did_you_mean(value, re.findall(r"'([^']+)'", expected)) if isinstance(value, str) else ""
        faults.add(loc, f"must be {expected}", near)
    else:
        scalar = isinstance(value, (bool, int, OddValue)) and loc in faults.places
        text = quoted(faults.places[loc].shown) if scalar and kind == "string_type" else ""
        faults.add(loc, f"must be {_SHAPES[kind]}, but this is {kind_of(value)}", hint or text)


def _is_one_of(words: Sequence[str], loc: Loc) -> bool:
    """Return whether a key is one of the words, however it separates its parts."""
    return "".join(map(str, loc[-1:])).lower().replace("_", "").replace("-", "") in words


def _hosts_form(value: Any) -> str:
    """Show how hosts are written, with the names that were given where they are a plain list."""
    items = value if isinstance(value, tuple) else (value,)
    given = [item for item in items if isinstance(item, str) and _HOST.fullmatch(item)]
    shown = given if 0 < len(given) == len(items) <= _MOST_IN_FORM else ["gpu1", "gpu2"]
    return f"write hosts: {{{', '.join(f'{name}: {{}}' for name in shown)}}}"


def _keys(loc: Loc) -> tuple[str, ...]:
    """Return the keys that are known beside the one at `loc`."""
    section: type[SchemaSection] = InventoryFile
    for step in loc[:-1]:  # names of hosts and the like are no keys
        if field := section.model_fields.get(str(step)):
            section = section_in(field.annotation) or section
    return tuple(field.alias or name for name, field in section.model_fields.items())


def without(value: Any, loc: Loc, wrong: set[Loc]) -> Any:
    """Leave out what is wrong of the value at `loc`; hosts and items of lists keep their place, so that names and indexes still hold."""
    if isinstance(value, dict):
        kept = {key: without(item, (*loc, key), wrong) for key, item in value.items() if (*loc, key) not in wrong}
        return {key: kept.get(key) for key in value} if loc == ("hosts",) else kept
    if isinstance(value, tuple):
        places = ((*loc, index) for index in range(len(value)))
        return tuple(
            _FILLER if at in wrong else without(item, at, wrong) for at, item in zip(places, value, strict=True)
        )
    return value
