"""daemon.json, dockerd's settings: keys of ours are merged into it, or taken out of it; the others stay, and their order."""

import json
import re
from typing import Any, NoReturn

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import DockerEngine

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
    other value takes the place of the one that stands there. All else keeps its order.

    Raises:
        NotOursError: the text is not JSON, not an object, or has a key twice.
    """
    config = read(text)
    new: list[str] = []
    changed: list[str] = []
    added: dict[str, Any] = {}
    for name, value in keys.items():
        is_there, before = name in config, config.get(name)
        after = _merged(name, before, value) if is_there else value
        if is_there and _same(before, after):
            continue
        (changed if is_there else new).append(name)
        added[name] = {"is": after, **({"was": before} if is_there else {})}
        config[name] = after
    if not added:
        return MergedConfig(text)
    return MergedConfig(_written(config, text), tuple(new), tuple(changed), json.dumps(added, ensure_ascii=False))


def taken_back(text: str, added: str) -> str:
    """Take out of a daemon.json what was put in: `added` holds the lines of `MergedConfig.added`, oldest first.

    What somebody has changed since is no longer ours, and stays.

    Raises:
        NotOursError: the text is not JSON, not an object, or has a key twice.
    """
    config, before = read(text), read(text)
    for line in filter(None, reversed(added.split("\n"))):
        for name, change in json.loads(line).items():
            if name in config:
                config[name] = _without(name, change.get("was", _GONE), change["is"], config[name])
                if config[name] is _GONE:
                    del config[name]
    return text if _same(config, before) else _written(config, text)


def read(text: str) -> dict[str, Any]:
    """Read a daemon.json; an empty text has no keys.

    Raises:
        NotOursError: it is not JSON, not an object, or has a key twice.
    """
    if not text.strip(_BLANKS):
        return {}
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_int=_integer, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise NotOursError(f"line {error.lineno} column {error.colno}: {error.msg}") from None
    except _ConstantError as error:
        raise NotOursError(f"{where(text, text.find(str(error)))}: {error} is not valid JSON") from None
    except _TwiceError as error:
        raise NotOursError(f"{where(text, text.rfind(str(error)))}: the key {error} appears twice") from None
    except RecursionError:
        raise NotOursError("line 1 column 1: nested too deep") from None
    if not isinstance(value, dict):
        raise NotOursError("line 1 column 1: not an object, which starts with '{'")
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
            spot = re.search(rf"{re.escape(json.dumps(name))}\s*:", text)
            place = f"{where(text, spot.start())}: the key" if spot else "the key"
            return f"{place} {json.dumps(name)} and dockerd's own flag {flags[name]} set the same option"
    return None


def where(text: str, place: int) -> str:
    """Return a place in a text as people count: `line 3 column 7`."""
    return f"line {text.count(chr(10), 0, place) + 1} column {place - text.rfind(chr(10), 0, place)}"


class _ConstantError(ValueError):
    pass


class _TwiceError(ValueError):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, no key of which is there twice.

    Raises:
        _TwiceError: a key is there twice.
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(json.dumps(name))
        found[name] = value
    return found


def _written(config: dict[str, Any], like: str) -> str:
    """Return the text of settings, with the indent that an earlier text has."""
    indent = re.search(r'\n([ \t]+)"', like)
    return json.dumps(config, ensure_ascii=like.isascii(), indent=indent[1] if indent else "  ") + "\n"


def _integer(digits: str) -> int:
    """Return a number; Python refuses to read one of more than 4300 digits, and no setting has as many as 19.

    Raises:
        _ConstantError: the number has too many digits.
    """
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
