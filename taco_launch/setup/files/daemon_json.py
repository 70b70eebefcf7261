"""daemon.json, dockerd's settings: keys of ours are merged into its text, or taken out of it; the rest stays as it is."""

import json
from json.decoder import scanstring  # type: ignore[attr-defined]  # in the standard library, not in its types
from typing import Any, NoReturn

from taco_launch.frozen import dataclass
from taco_launch.model.host.hosts import DockerEngine

# Lists to which ours are added: whoever wrote the others wants them still.
_ADDED_TO = frozenset(("insecure-registries", "registry-mirrors"))
# What dockerd takes on SIGHUP, without a restart (dockerd's reference, "Configuration reload behavior").
RELOADED = frozenset(
    (
        "authorization-plugins",
        "debug",
        "default-runtime",
        "features",
        "insecure-registries",
        "labels",
        "live-restore",
        "max-concurrent-downloads",
        "max-concurrent-uploads",
        "max-download-attempts",
        "registry-mirrors",
        "runtimes",
        "shutdown-timeout",
    )
)
# dockerd's flags whose names are not those of their keys; of a list, a flag gives one entry.
_FLAGS = {
    "D": "debug",
    "G": "group",
    "H": "hosts",
    "b": "bridge",
    "g": "data-root",
    "l": "log-level",
    "s": "storage-driver",
    "authorization-plugin": "authorization-plugins",
    "cluster-store-opt": "cluster-store-opts",
    "default-ulimit": "default-ulimits",
    "dns-opt": "dns-opts",
    "exec-opt": "exec-opts",
    "graph": "data-root",
    "host": "hosts",
    "insecure-registry": "insecure-registries",
    "label": "labels",
    "log-opt": "log-opts",
    "registry-mirror": "registry-mirrors",
    "storage-opt": "storage-opts",
}
_BLANKS = " \t\r\n"
_GONE: Any = object()


class NotOursError(ValueError):
    """A daemon.json that is left as it is: the message says what is wrong, with line and column."""


@dataclass(frozen=True)
class MergedConfig:
    """A daemon.json with our keys: its text, the keys that came new or changed, and `added` for `taken_back`.

    `added` is one line of JSON that says what was put in; empty where nothing was.
    """

    text: str
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    added: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return all keys that are not as they were."""
        return (*self.new, *self.changed)


@dataclass(frozen=True)
class _Member:
    """A key in a text, and where the key, its value and the object that it is of begin; `end` is the value's."""

    name: str
    place: int
    start: int
    end: int
    of: int


def wanted(engine: DockerEngine) -> dict[str, Any]:
    """Return the keys of daemon.json that an inventory asks for, and their values."""
    keys: dict[str, Any] = {name: json.loads(text) for name, text in engine.settings}
    if engine.mirrors:
        keys["registry-mirrors"] = list(engine.mirrors)
    if engine.insecure_registries:
        keys["insecure-registries"] = list(engine.insecure_registries)
    if engine.data_root is not None:
        keys["data-root"] = engine.data_root
    return keys


def merge(text: str, keys: dict[str, Any]) -> MergedConfig:
    """Put keys into the text of a daemon.json; an empty text is that of a file that does not exist.

    Objects are merged key by key, `registry-mirrors` and `insecure-registries` get the entries that they lack, any
    other value takes the place of the one that stands there. All else keeps its order and its form.

    Raises:
        NotOursError: the text is not JSON, not an object, or has a key twice.
    """
    members = read(text)
    new: list[str] = []
    changed: list[str] = []
    added: dict[str, Any] = {}
    for name, value in keys.items():
        before = members.get(name)
        after = _merged(name, before, value) if name in members else value
        if name in members and _same(before, after):
            continue
        (changed if name in members else new).append(name)
        added[name] = {"is": after, **({"was": before} if name in members else {})}
        text = _put(text, name, after)
    line = json.dumps(added, ensure_ascii=False) if added else ""
    return MergedConfig(text, tuple(new), tuple(changed), line)


def taken_back(text: str, added: str) -> str:
    """Take out of a daemon.json what was put in: `added` holds the lines of `MergedConfig.added`, oldest first.

    What somebody has changed since is no longer ours, and stays.

    Raises:
        NotOursError: the text is not JSON, not an object, or has a key twice.
    """
    for line in filter(None, reversed(added.split("\n"))):
        for name, change in json.loads(line).items():
            members = read(text)
            if name not in members:
                continue
            after = _without(name, change.get("was", _GONE), change["is"], members[name])
            if after is _GONE:
                text = _remove(text, name)
            elif not _same(after, members[name]):
                text = _put(text, name, after)
    return text


def read(text: str) -> dict[str, Any]:
    """Read a daemon.json; an empty text has no keys.

    Raises:
        NotOursError: it is not JSON, not an object, or has a key twice.
    """
    if not text.strip(_BLANKS):
        return {}
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise NotOursError(f"line {error.lineno} column {error.colno}: {error.msg}") from None
    except _ConstantError as error:
        raise NotOursError(f"{where(text, text.find(str(error)))}: {error} is no JSON") from None
    except RecursionError:
        raise NotOursError("line 1 column 1: nested too deep") from None
    if not isinstance(value, dict):
        raise NotOursError("line 1 column 1: not an object, which starts with '{'")
    seen: set[tuple[int, str]] = set()
    for member in _members(text):
        if (member.of, member.name) in seen:
            raise NotOursError(f"{where(text, member.place)}: the key {json.dumps(member.name)} is there twice")
        seen.add((member.of, member.name))
    return value


def restarts(key: str, before: str, after: str) -> bool:
    """Return whether dockerd takes a key that was changed only when it starts; both texts can be read.

    Of `features` it takes all on SIGHUP but `cdi`, by which it makes ready for devices as it starts.
    """
    if key != "features":
        return key not in RELOADED
    was, now = (read(text).get(key) for text in (before, after))
    return (was.get("cdi") if isinstance(was, dict) else None) != (now.get("cdi") if isinstance(now, dict) else None)


def conflict(text: str, keys: dict[str, Any], command: str) -> str | None:
    """Return which key of daemon.json, there or to come, is a flag of dockerd's command line too; None where none is.

    dockerd takes a setting from one of the two only, and does not start otherwise; `runtimes` alone may be in both.

    Raises:
        NotOursError: the text is not JSON, not an object, or has a key twice.
    """
    flags: dict[str, str] = {}
    for word in command.split():
        name = word.lstrip("-").partition("=")[0]
        short = word.startswith("-") and not word.startswith("--")
        if word.startswith("-"):
            flags.setdefault(_FLAGS.get(name[:1] if short else name, name), word)
    there = read(text)
    for name in (*there, *(key for key in keys if key not in there)):
        if name in flags:
            spot = next((where(text, member.place) for member in _top(text) if member.name == name), "")
            place = f"{spot}: the key" if spot else "the key"
            return f"{place} {json.dumps(name)} and dockerd's own flag {flags[name]} set the same"
    return None


def where(text: str, place: int) -> str:
    """Return a place in a text as people count: `line 3 column 7`."""
    return f"line {text.count(chr(10), 0, place) + 1} column {place - text.rfind(chr(10), 0, place)}"


class _ConstantError(ValueError):
    pass


def _integer(digits: str) -> int:
    """Return a number; Python refuses to read one of more than 4300 digits, and no setting has as many as 19."""
    if len(digits) > 20:
        raise _ConstantError(digits[:20])
    return int(digits)


def _no_constant(word: str) -> NoReturn:
    raise _ConstantError(word)


def _same(one: Any, other: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _entry(value: Any) -> Any:
    """Return an entry of a list in the form in which dockerd compares it: a mirror's last slash says nothing."""
    return value.rstrip("/") if isinstance(value, str) else value


def _merged(name: str, before: Any, value: Any) -> Any:
    if isinstance(before, dict) and isinstance(value, dict):
        both = {key: _merged("", before[key], value[key]) if key in before else value[key] for key in value}
        return {**before, **both}
    if name in _ADDED_TO and isinstance(before, list) and isinstance(value, list):
        there = [_entry(each) for each in before]
        return [*before, *(each for each in value if _entry(each) not in there)]
    return value


def _without(name: str, before: Any, ours: Any, now: Any) -> Any:
    """Return what a value is without our part in it: `before` us (_GONE: not there), as we left it (`ours`), and `now`."""
    if name in _ADDED_TO and isinstance(ours, list) and isinstance(now, list):
        old = before if isinstance(before, list) else []
        rest: Any = [each for each in now if each in old or each not in ours]
    elif isinstance(ours, dict) and isinstance(now, dict):
        was = before if isinstance(before, dict) else {}
        kept = {key: _without("", was.get(key, _GONE), ours[key], now[key]) if key in ours else now[key] for key in now}
        rest = {key: value for key, value in kept.items() if value is not _GONE}
    else:
        return before if _same(ours, now) else now
    return rest if rest or isinstance(before, type(now)) else before


def _put(text: str, name: str, value: Any) -> str:
    """Write one key's value into the text of an object, in the form that its neighbours have."""
    top = _top(text) if text.strip(_BLANKS) else []
    words = json.dumps(value, ensure_ascii=False)
    for member in top:
        if member.name == name:
            if "\n" in text[member.start : member.end]:
                margin = _margin(text, top[0].place)
                indent = margin.strip("\n") or "    "
                words = json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", f"\n{indent}")
            return f"{text[: member.start]}{words}{text[member.end :]}"
    pair = f"{json.dumps(name, ensure_ascii=False)}: {words}"
    if not top:
        return f"{{\n  {pair}\n}}\n"
    margin = _margin(text, top[0].place) or " "
    return f"{text[: top[-1].end]},{margin}{pair}{text[top[-1].end :]}"


def _remove(text: str, name: str) -> str:
    """Cut a key and its comma out of the text of an object."""
    top = _top(text)
    place = next(index for index, member in enumerate(top) if member.name == name)
    if len(top) == 1:
        return "{}\n"
    if place:
        return text[: top[place - 1].end] + text[top[place].end :]
    return text[: top[0].place] + text[top[1].place :]


def _margin(text: str, place: int) -> str:
    """Return the blanks before the first key, from its line's start on where it has a line of its own."""
    blanks = text[len(text[:place].rstrip(_BLANKS)) : place]
    return blanks[blanks.rfind("\n") :] if "\n" in blanks else blanks


def _top(text: str) -> list[_Member]:
    """Find the keys of the object that the text is."""
    members = _members(text) if text.strip(_BLANKS) else []
    return [member for member in members if member.of == members[0].of]


def _members(text: str) -> list[_Member]:
    """Find all keys of all objects in a text that is valid JSON; an object's own key comes before those in its value."""
    decoder = json.JSONDecoder()
    found: list[_Member] = []

    def blanks(place: int) -> int:
        while place < len(text) and text[place] in _BLANKS:
            place += 1
        return place

    def walk(place: int) -> int:
        """Note the keys in the value at `place`, and give where it ends."""
        begin, kind = place, text[place]
        if kind not in "{[":
            return decoder.raw_decode(text, place)[1]
        place = blanks(place + 1)
        while text[place] not in "}]":
            if kind == "{":
                key, index = place, len(found)
                name, place = scanstring(text, key + 1)
                start = blanks(blanks(place) + 1)
                place = walk(start)
                found.insert(index, _Member(name, key, start, place, begin))
            else:
                place = walk(place)
            place = blanks(place)
            place = blanks(place + 1) if text[place] == "," else place
        return place + 1

    walk(blanks(0))
    return found
