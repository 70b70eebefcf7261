"""What may stand behind the keys of an inventory: each kind of value, its check and its JSON schema side by side.

A check raises ValueError(problem, hint): pydantic gathers those, `check.py` makes faults of them.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

from taco_launch.core.errors import SpecError
from taco_launch.core.messages import address
from taco_launch.core.model.engines import ENGINES
from taco_launch.hosts import plugins
from taco_launch.hosts.inventory.schema import mounts, names
from taco_launch.hosts.inventory.schema.document import OddValue, kind_of

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
# Printable, and nothing that a shell or ssh's configuration file makes something else of.
_FILE = re.compile(r"""(?:~?/)[^\s\x00-\x1f\x7f"'`$&|;<>*?(){}!#%\\\[\]]{0,1023}""")
_PROGRAM = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9._+-]*(?:/[A-Za-z0-9._+-]+)*")
# A file of the controller, from where the inventory lies: harmless in every shell.
_PROFILE_FILE = re.compile(r"(?:~/|[A-Za-z0-9_./])[A-Za-z0-9_./+@=,:-]{0,1023}")
_VERSION = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,5}){1,2}")
_PORTS = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_URL = re.compile(r"https?://[A-Za-z0-9\[][^\s\x00-\x1f\x7f\"'`\\<>]{0,1023}")
_REGISTRY = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]{0,253}(?:/[0-9]{1,3})?")
_LOGIN = re.compile(r"[^\s:\x00-\x1f\x7f]{1,255}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_NO_PROXY = re.compile(r"[A-Za-z0-9.*_:,/\[\] -]{1,1024}")
_SETTING = re.compile(r"[a-z][a-z0-9-]{0,62}")
# What of daemon.json has a key of its own in the inventory.
_OWN_SETTINGS = {
    "registry-mirrors": "docker.mirrors",
    "insecure-registries": "docker.insecure_registries",
    "data-root": "docker.data_root",
    "proxies": "docker.proxy",
}
_NO_VERSION = """is not a version: two or three numbers joined by '.', in quotes, such as "4.1.4\""""


def _ruled(rule: Callable[[str], str]) -> AfterValidator:
    def check(text: str) -> str:
        try:
            return rule(text)
        except SpecError as error:
            fault = error.faults[0]
            raise ValueError(fault.problem, fault.hint) from None

    return AfterValidator(check)


def one_of(choices: Iterable[str], problem: str, listed: str) -> AfterValidator:
    """Return the check that a text is one of `choices`; its error names the nearest one, else all after `listed`."""
    allowed = tuple(choices)

    def check(text: str) -> str:
        if text not in allowed:
            raise ValueError(problem, names.did_you_mean(text, allowed) or f"{listed} {', '.join(allowed)}")
        return text

    return AfterValidator(check)


def _message_address(text: str) -> str:
    try:
        return address.check(text)
    except ValueError as error:
        raise ValueError(str(error), address.FORMS) from None


def _matching(pattern: re.Pattern[str], problem: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text) or not text.isprintable():
            raise ValueError(problem, "")
        return text

    return AfterValidator(check)


def whole(low: int, high: int, *, auto: bool = False) -> PlainValidator:
    """Make the check of a whole number from `low` to `high`."""
    wanted = f"must be a whole number from {low} to {high}" + (", or auto" if auto else "")

    def check(value: Any) -> int | str:
        if auto and value == "auto":
            return "auto"
        number = isinstance(value, int) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise ValueError(wanted + ("" if number else f", but this is {kind_of(value)}"), "")
        return int(value)

    return PlainValidator(check)


def whole_schema(low: int, high: int, *, auto: bool = False) -> WithJsonSchema:
    """Return the schema of what `whole` checks."""
    number: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
    return WithJsonSchema({"anyOf": [{"const": "auto"}, number]} if auto else number)


def _switch(value: Any) -> str:
    if isinstance(value, bool):  # YAML 1.1 reads a bare on or off as a boolean
        return "on" if value else "off"
    if value in ("auto", "on", "off"):
        return str(value)
    hint = names.did_you_mean(value, ("auto", "on", "off")) if isinstance(value, str) else ""
    raise ValueError("must be auto, on or off", hint)


def _on_or_off(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in ("on", "off"):
        return str(value)
    raise ValueError("must be on or off", "omit it: the default is on" if value == "auto" else "")


def _auto_or_off(value: Any) -> str:
    if value == "auto" or value in (False, "off"):
        return "auto" if value == "auto" else "off"
    hint = names.did_you_mean(value, ("auto", "off")) if isinstance(value, str) else ""
    raise ValueError("must be auto or off", hint)


def _ports(value: Any) -> tuple[int, int]:
    found = _PORTS.fullmatch(value) if isinstance(value, str) else None
    if found and int(found[1]) > int(found[2]):
        raise ValueError("the first port is above the last", f"did you mean {found[2]}-{found[1]}?")
    if not found or not 1 <= int(found[1]) <= int(found[2]) <= 65535:
        raise ValueError("must be two ports FIRST-LAST from 1 to 65535, such as 40000-45000", "")
    return int(found[1]), int(found[2])


def _size(value: Any) -> int:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return mounts.parse_size(text if isinstance(text, str) else "")


def _image_from(text: str) -> str:
    if text in ("registry", "controller") or _FILE.fullmatch(text):
        return text
    raise ValueError(
        "must be registry, controller, or a tar file of this machine: a path from / or ~/",
        names.did_you_mean(text, ("registry", "controller")),
    )


def _profile(text: str) -> str:
    if not names.is_profile_path(text):
        return names.word(text, "a profile name (nor a path, which holds a '/' or ends with .yaml)", "")
    if not _PROFILE_FILE.fullmatch(text):
        raise ValueError("is not the path of a profile: no spaces, no shell characters, no '-' first", "")
    return text


def _version(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole:
        raise ValueError(_NO_VERSION, "")
    return value


def _mount(value: Any) -> tuple[str, str, str]:
    return mounts.parse_mount(value if isinstance(value, str) else "")


def _data_root(text: str) -> str:
    path = mounts.mount(text, "/x")[0]
    if mounts.belongs_to_the_host(path):
        raise ValueError(
            "belongs to the host: anyone who runs a rank could become root on the host", "name the folders with data"
        )
    return path


def _variable(name: str) -> str:
    names.env_name(name)
    if name.startswith("TACO_LAUNCH_"):
        raise ValueError("variables TACO_LAUNCH_* are set by taco-launch", "")
    return name


def _value(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL byte, which no environment can hold", "")
    if "\n" in text or "\r" in text:
        raise ValueError(
            "holds a line break, which docker's --env-file cannot hold", "put it into a file and mount that"
        )
    if len(text) > names.MAX_STRING_BYTES // 2:
        raise ValueError(
            f"is longer than {names.MAX_STRING_BYTES // 2} characters", "put it into a file and mount that"
        )
    return text


def _setting_name(name: str) -> str:
    if name in _OWN_SETTINGS:
        raise ValueError(f"must be set by its own key in the inventory: {_OWN_SETTINGS[name]}", "")
    if not _SETTING.fullmatch(name):
        raise ValueError("is not a key of daemon.json: lower-case letters, digits and '-', a letter first", "")
    return name


def _setting(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_no_json)
    except TypeError:
        raise ValueError("daemon.json accepts text, whole numbers, true, false, lists and mappings here", "") from None


def _no_json(value: Any) -> Any:
    raise TypeError(str(OddValue if isinstance(value, OddValue) else type(value)))


def named(what: str) -> AfterValidator:
    """Make the check of a name of our own; `what` it names, with its article."""
    return _ruled(lambda text: names.word(text, what, ""))


def _engine(text: str) -> str:
    if text in ENGINES:
        return text
    engines = (*ENGINES, *(entry.name for entry in plugins.list_backends()))
    if text not in engines:
        raise ValueError(f"must be {' or '.join(map(repr, engines))}", names.did_you_mean(text, engines))
    return text


ClusterName = Annotated[str, named("a cluster name")]
DataName = Annotated[str, named("a data set's name")]
DataPath = Annotated[str, AfterValidator(lambda text: mounts.mount(text, "/x")[0])]
GroupName = Annotated[str, named("a group name")]
Profile = Annotated[str, _ruled(_profile)]
Feature = Annotated[str, named("a feature name")]
User = Annotated[str, _ruled(names.user)]
Interface = Annotated[str, _ruled(names.interface)]
Image = Annotated[str, AfterValidator(names.image)]
ImageFrom = Annotated[str, AfterValidator(_image_from)]
Label = Annotated[
    str,
    _matching(_LABEL, "is not a label: letters, digits, '.', '_', '/' and '-', at most 63, a letter or digit first"),
]
FilePath = Annotated[
    str,
    _matching(_FILE, "is not a valid file: give a path that starts with / or ~/, without spaces or shell characters"),
]
OwnFile = Annotated[
    str,
    _matching(
        _FILE, "is not a valid path on this machine: it must start with / or ~/, without spaces or shell characters"
    ),
]
Program = Annotated[
    str,
    _matching(
        _PROGRAM,
        "is not a valid program: give an absolute path, or a name without a folder, without spaces or shell characters",
    ),
]
Mount = Annotated[
    tuple[str, str, str],
    PlainValidator(_mount),
    WithJsonSchema({"type": "string", "pattern": "^/[^:]*:/[^:]*(:(ro|rw))?$"}),
]
MessageAddress = Annotated[
    str, AfterValidator(_message_address), WithJsonSchema({"type": "string", "pattern": f"^({address.ADDRESS})$"})
]
EngineName = Annotated[str, AfterValidator(_engine)]
EnvName = Annotated[str, _ruled(_variable)]
EnvValue = Annotated[str, AfterValidator(_value)]
HostPath = Annotated[
    str,
    _matching(mounts.PATH, "is not an absolute path: it must start with / and have no ':', ',' or control characters"),
]
DataRoot = Annotated[HostPath, AfterValidator(_data_root)]
Url = Annotated[str, _matching(_URL, "is not a URL: http://... or https://..., without spaces or quotes")]
# Plans, logs and package sources show such a URL.
PublicUrl = Annotated[
    str,
    _matching(
        re.compile(rf"(?!https?://[^/]*@){_URL.pattern}"),
        "is not a URL without a login: http://... or https://..., without USER:PASSWORD@, spaces or quotes",
    ),
]
RegistryName = Annotated[
    str, _matching(_REGISTRY, "is not a registry: HOST, HOST:PORT or a network such as 10.0.0.0/8, without http://")
]
RegistryLogin = Annotated[str, _matching(_LOGIN, "is not a valid registry user: it must not contain blanks or ':'")]
Sha256 = Annotated[str, _matching(_SHA256, "is not a SHA-256: 64 digits 0-9 a-f, as sha256sum prints them")]
NoProxy = Annotated[
    str, _matching(_NO_PROXY, "is not a list of hosts, domains and networks with commas, such as localhost,10.0.0.0/8")
]
SettingName = Annotated[str, AfterValidator(_setting_name)]
Setting = Annotated[str, PlainValidator(_setting), WithJsonSchema({})]
Port = Annotated[int, whole(1, 65535), whole_schema(1, 65535)]
ConnectTimeout = Annotated[int, whole(1, 3600), whole_schema(1, 3600)]
HostLossTimeout = Annotated[int, whole(5, 86400), whole_schema(5, 86400)]
Slots = Annotated[
    int | Literal["auto"], whole(1, names.MAX_SLOTS, auto=True), whole_schema(1, names.MAX_SLOTS, auto=True)
]
MaxSlots = Annotated[int, whole(1, names.MAX_SLOTS), whole_schema(1, names.MAX_SLOTS)]
Version = Annotated[
    str,
    BeforeValidator(_version),
    _matching(_VERSION, _NO_VERSION),
    WithJsonSchema({"type": "string", "pattern": f"^{_VERSION.pattern}$"}),
]
GidIndex = Annotated[int | Literal["auto"], whole(0, 255, auto=True), whole_schema(0, 255, auto=True)]
# docker run --ulimit; the limits of getrlimit(2)
LimitName = Literal[
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
]
Limit = Annotated[int, whole(-1, (1 << 53) - 1), whole_schema(-1, (1 << 53) - 1)]
AutoOrOff = Annotated[
    Literal["auto", "off"], PlainValidator(_auto_or_off), WithJsonSchema({"enum": ["auto", "off", False]})
]
OnOff = Annotated[
    Literal["on", "off"], PlainValidator(_on_or_off), WithJsonSchema({"enum": ["on", "off", True, False]})
]
Switch = Annotated[
    Literal["auto", "on", "off"], PlainValidator(_switch), WithJsonSchema({"enum": ["auto", "on", "off", True, False]})
]
PortRange = Annotated[
    tuple[int, int], PlainValidator(_ports), WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,5}-[0-9]{1,5}$"})
]
PackageName = Annotated[str, _matching(_PACKAGE, "is not the name of a package: letters, digits and . _ + -")]
Size = Annotated[
    int,
    PlainValidator(_size),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": "^[1-9][0-9]*[bkmgtBKMGT]?$"}, {"type": "integer"}]}),
]
