"""What may stand behind the keys of a job file: each kind of value, its check and its JSON schema side by side.

Checks are as those of `values.py`, which has the kinds that inventories share.
"""

import math
import re
import shlex
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, PlainValidator, Tag, WithJsonSchema

from taco_launch.core.errors import SpecError
from taco_launch.hosts.inventory import durations, select
from taco_launch.hosts.inventory.durations import parse_early_signal
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.schema.document import OddValue, kind_of
from taco_launch.hosts.inventory.schema.values import named, whole, whole_schema
from taco_launch.jobs.request import selection, sizes

# A shell would make something else of these; here they would be words like any other.
_OPERATORS = frozenset(("&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1", "&>"))


# A number that means the same as it is typed; not 1_000.5 or 1:30.5, which YAML takes for numbers, too.
_FRACTION = re.compile(r"[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?")


def _plain_number(value: Any) -> Any:
    """Make text of a number, which YAML reads as one where text is meant: digit by digit as it is typed."""
    if isinstance(value, OddValue) and _FRACTION.fullmatch(value.text):
        return value.text
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _signal(text: str) -> str:
    try:
        parse_early_signal(text)
    except ValueError as error:
        raise ValueError(str(error), "write it as USR1@120: 120 s before") from None
    return text


def _switch(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL byte, which is not possible in a command line", "")
    if len(text.encode()) >= names.MAX_STRING_BYTES:
        raise ValueError(
            f"is longer than {names.MAX_STRING_BYTES - 1} bytes, the maximum for one argument (execve(2))", ""
        )
    return text


def _split(text: str) -> tuple[str, ...]:
    try:
        words = shlex.split(_argument(text))
    except ValueError as error:
        if len(error.args) == 2:
            raise
        raise ValueError(f"cannot be split into words as a shell does it: {str(error).lower()}", "") from None
    if not words:
        raise ValueError("is empty, but must name a program", "")
    if found := next((word for word in words if word in _OPERATORS), ""):
        hint = "if you need a shell, write [bash, -c, '...']"
        raise ValueError(f"{found} has an effect only in a shell, but the command is started without one", hint)
    return tuple(words)


def _not_empty(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not words[0]:
        raise ValueError("is empty, but must name a program", "")
    return words


def _words_or_text(value: Any) -> Any:
    words = isinstance(value, (str, tuple))
    if not words:
        problem = f"must be a list of words, or text, and this is {kind_of(value)}"
        raise ValueError(problem, "put it in quotes to make it text" if not isinstance(value, dict) else "")
    return value


def _form(value: Any) -> str:
    return "text" if isinstance(value, str) else "list"


def _hosts(text: str) -> str:
    try:
        select.parse_hosts(text)
    except SpecError as error:
        fault = error.faults[0]
        raise ValueError(f"{fault.path}: {fault.problem}", fault.hint) from None
    return text


def _indices(text: str) -> str:
    try:
        selection.indices(text, "gpuIds")
    except SpecError as error:
        raise ValueError(error.faults[0].problem, "") from None
    return text


def _host_count(value: Any) -> int | tuple[int, int]:
    """Check a number of hosts, or MIN:MAX, which YAML 1.1 takes for a number of base 60.

    Raises:
        ValueError: the value is neither.
    """
    text = value.text if isinstance(value, OddValue) else value
    if isinstance(text, str) and re.fullmatch(sizes.PATTERN, text):
        try:
            return sizes.parse_range(text)
        except ValueError as error:
            raise ValueError(str(error), "for example 2:4") from None
    number = isinstance(value, int) and not isinstance(value, bool)
    if not number or not 1 <= value <= sizes.MOST_HOSTS:
        found = "" if number else f", and this is {kind_of(value)}"
        raise ValueError(f"must be a whole number from 1 to {sizes.MOST_HOSTS}, or MIN:MAX{found}", "")
    return int(value)


def _non_empty(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError("is empty, or holds a NUL byte", "")
    return text


def time(least: float) -> Any:
    """Return the type of a time in seconds, of at least so many, written as 90, 90s, 15m, 3h or 2d."""

    def check(value: Any) -> float:
        whole_number = isinstance(value, int) and not isinstance(value, bool)
        if not whole_number and not isinstance(value, str):
            raise ValueError(f"must be {durations.FORM}, and this is {kind_of(value)}", "")
        try:
            seconds = durations.parse_duration(str(value))
        except ValueError as error:
            raise ValueError(str(error), "") from None
        if seconds < least:
            raise ValueError(f"must be at least {least:g} second{'' if least == 1 else 's'}", "")
        return seconds

    number = {"type": "integer", "minimum": math.ceil(least), "maximum": int(durations.MOST_SECONDS)}
    text = {"type": "string", "pattern": f"^{durations.PATTERN}$"}
    return Annotated[float, PlainValidator(check), WithJsonSchema({"anyOf": [number, text]})]


def count(least: int, most: int) -> Any:
    """Return the type of a whole number from `least` to `most`."""
    return Annotated[int, whole(least, most), whole_schema(least, most)]


_TEXT_OR_NUMBER = WithJsonSchema({"type": ["string", "number"]})
_Argument = Annotated[str, BeforeValidator(_plain_number), AfterValidator(_argument), _TEXT_OR_NUMBER]
Command = Annotated[
    Annotated[tuple[_Argument, ...], AfterValidator(_not_empty), Tag("list")]
    | Annotated[str, AfterValidator(_split), Tag("text")],
    Discriminator(_form),
    BeforeValidator(_words_or_text),
]
Arguments = tuple[_Argument, ...]
JobName = Annotated[str, named("a job name")]
SignalTime = Annotated[str, AfterValidator(_signal)]
QueueName = Annotated[str, named("a queue name")]
Hosts = Annotated[str, AfterValidator(_hosts)]
Indices = Annotated[str, BeforeValidator(_plain_number), AfterValidator(_indices), _TEXT_OR_NUMBER]
HostCount = Annotated[
    int | tuple[int, int],
    PlainValidator(_host_count),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": sizes.MOST_HOSTS},
                {"type": "string", "pattern": f"^{sizes.PATTERN}$"},
            ]
        }
    ),
]
NonEmpty = Annotated[str, AfterValidator(_non_empty), WithJsonSchema({"type": "string", "minLength": 1})]
Variable = Annotated[str, BeforeValidator(_plain_number), _TEXT_OR_NUMBER]
Knob = Annotated[
    str,
    BeforeValidator(_plain_number),
    BeforeValidator(_switch),
    WithJsonSchema({"type": ["string", "integer", "boolean"]}),
]
LeastSecond = time(1)


NO_WHOLE_PATH = "must be an absolute path, such as /workspace"


def _working_dir(text: str) -> str:
    if not text or "\0" in text or len(text) >= names.PATH_MAX:
        raise ValueError(NO_WHOLE_PATH, "")
    return text


WorkingDir = Annotated[str, AfterValidator(_working_dir)]
