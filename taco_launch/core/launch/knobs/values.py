"""What a value is to the library that reads it: refused where it is not what it looks like, put right on request."""

import math
import re
from dataclasses import replace
from fractions import Fraction
from typing import Callable, Dict

from taco_launch.core.launch.knobs import find
from taco_launch.core.launch.knobs import lists as knob_lists
from taco_launch.core.launch.knobs.knob import LIBRARIES, Knob
from taco_launch.core.launch.knobs.lists import FINE, Fault

_ON = frozenset(("1", "true", "t", "yes", "y", "on", "enable", "enabled"))
_OFF = frozenset(("0", "false", "f", "no", "n", "off", "disable", "disabled"))
# torch/csrc/distributed/c10d/Utils.hpp, getCvarBool
_TORCH_SWITCH = frozenset(("y", "yes", "1", "t", "true", "n", "no", "0", "f", "false"))
# What Open MPI 4.1, Open MPI 5.0 and its PRRTE all read alike (tried with ompi_info and prte_info).
_MCA_SWITCH = frozenset(("0", "1", "true", "false", "t", "f"))
_WHOLE = {
    "nccl": re.compile(r"[+-]?(?:0|[1-9][0-9]*|0[xX][0-9a-fA-F]+)"),
    "openmpi": re.compile(r"[+-]?[0-9]+[kKmMgG]?"),
}
_DECIMAL = re.compile(r"[+-]?[0-9]+")
_FRACTION = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_C_START = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?)")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")
_BYTES = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SECONDS = {
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "sec": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
}
_UNITS = {"bytes": " bytes", "ms": " milliseconds", "s": " seconds"}
_NUMERIC = ("switch", "integer", "number", "level")
_LONGEST_NUMBER = 64  # Python gives up on some thousand digits
_PSK_LENGTH = 32


def verbatim(name: str, value: str) -> None:
    """Let a value pass that means what it looks like; an unknown name passes with any.

    Raises:
        ValueError(problem, hint): the library would read something else, ignore it, or fail; or no version of the
            library reads that name any more. The hint may be empty.
    """
    knob = find(name)
    if knob is None:
        return
    if knob.instead:
        raise ValueError(f"{LIBRARIES[knob.library]} stopped reading it in {knob.until}", f"use {knob.instead}")
    problem, hint = _fault(knob, value)
    if problem:
        fixed = _converted(knob, value)
        if fixed != value and _fault(knob, fixed) == FINE:
            hint = f"write {fixed}, or --knob {name}={value}"
        raise ValueError(problem, hint)


def normalise(name: str, text: str) -> str:
    """Return the value that the library reads as people mean `text`; it passes `verbatim`.

    64MiB, 64M and 64MB are all 64 * 1024 * 1024 bytes; 1ms, 0.5s, 2m, 2min and 1h are turned into what the knob counts;
    true, yes and on are 1, false, no and off are 0; words get the case that the library wants. The rest stays.

    Raises:
        ValueError(problem, hint): there is nothing that it could mean.
    """
    knob = find(name)
    value = text if knob is None else _converted(knob, text.strip())
    verbatim(name, value)
    return value


def _fault(knob: Knob, value: str) -> Fault:
    if not value:
        # NCCL takes an empty variable for none at all; Horovod and Open MPI do not, of the others nobody says so
        return (
            FINE
            if knob.name.startswith("NCCL_")
            else (f"is empty, which {LIBRARIES[knob.library]} does not treat as unset", "")
        )
    if knob.kind in _NUMERIC and len(value) > _LONGEST_NUMBER:
        return f"has {len(value)} characters, which is too long for a number", ""
    check = _CHECKS.get(knob.kind)
    return check(knob, value) if check else FINE


def _switch(knob: Knob, value: str) -> Fault:
    if knob.library == "openmpi":
        if value in _MCA_SWITCH:
            return FINE
        return (
            "is read differently by different versions: Open MPI 5 reads 'yes' as off, and 4.1 and 5 refuse 'on'",
            "write 1 or 0",
        )
    if knob.library == "pytorch":
        return (
            FINE
            if value.lower() in _TORCH_SWITCH
            else ("must be 0 or 1, or a word such as yes or no; PyTorch fails at this value", "")
        )
    if value in ("0", "1"):
        return FINE
    return _no_number(knob, value) if not _DECIMAL.fullmatch(value) else ("must be 0 or 1", "")


def _integer(knob: Knob, value: str) -> Fault:
    scaled = knob.library == "openmpi" and value[-1] in "kKmMgG"
    if scaled and knob.unit not in ("bytes", "") and _DECIMAL.fullmatch(value[:-1]):
        shift, unit = _BYTES[value[-1].lower()], _UNITS[knob.unit]
        return f"Open MPI reads {value!r} as {value[:-1]} times {1 << shift}{unit}", f"must be {knob.allowed}"
    if not _WHOLE.get(knob.library, _DECIMAL).fullmatch(value):
        if knob.library == "nccl" and _DECIMAL.fullmatch(value):
            return _octal(value)
        return _no_number(knob, value)
    if knob.choices:
        return FINE if value in knob.choices else (f"must be {knob.allowed}", "")
    shift = _BYTES[value[-1].lower()] if scaled else 0
    number = int(value[:-1] if shift else value, 16 if "x" in value.lower() else 10) << shift
    return _range(knob, number, 63 if knob.unit == "bytes" or knob.library == "nccl" else 31)


def _octal(value: str) -> Fault:
    return f"NCCL reads a number that starts with 0 as octal: {value} is not {int(value)}", f"write {int(value)}"


def _number(knob: Knob, value: str) -> Fault:
    if not _FRACTION.fullmatch(value):
        return _no_number(knob, value)
    number = float(value)
    return _range(knob, number, 63) if math.isfinite(number) else ("is too large", "")


def _range(knob: Knob, number: float, bits: int) -> Fault:
    low = -math.inf if knob.low is None else knob.low
    high = math.inf if knob.high is None else knob.high
    if not low <= number <= high or (knob.positive and number <= 0):
        return f"must be {knob.allowed}", ""
    return (
        FINE if abs(number) < 1 << bits else (f"is too large: {LIBRARIES[knob.library]} stores it in {bits} bits", "")
    )


def _no_number(knob: Knob, value: str) -> Fault:
    """Return what a C program makes of a text that is not a number, or not only one."""
    found = _C_START.match(value)
    number = found[1] if found else "0"
    if knob.kind != "number":
        number = number.split(".")[0]
    if knob.library == "lightcc":
        return f"must be {knob.allowed}; how LightCC reads any other value is not documented", ""
    meaning = _UNITS.get(knob.unit, "")
    if knob.kind == "switch":
        on = int(number) > 0 if knob.library == "horovod" else int(number) != 0
        meaning = ", which is on" if on else ", which is off"
    reader = {"nccl": "with strtoll", "horovod": f"with strto{'f' if knob.kind == 'number' else 'l'}"}
    how = reader.get(knob.library, "as C does")
    return (
        f"{LIBRARIES[knob.library]} reads this number {how}: {value!r} is {number}{meaning}",
        f"must be {knob.allowed}",
    )


def _word(knob: Knob, value: str) -> Fault:
    known = knob.choices if knob.exact else tuple(choice.lower() for choice in knob.choices)
    if (value if knob.exact else value.lower()) in known:
        return FINE
    if knob.name == "NCCL_DEBUG":
        return f"NCCL knows {knob.allowed}; with any other word it logs nothing at all", ""
    ending = ": NCCL ignores anything else without a message" if knob.library == "nccl" else ""
    case = ", in exactly this spelling" if knob.exact else ""
    return f"must be {knob.allowed}{case}{ending}", ""


def _verbosity(knob: Knob, value: str) -> Fault:
    """Check how much a framework of Open MPI is to say (ompi_info: a word or -1 to 100)."""
    if value in knob.choices:
        return FINE
    number = replace(knob, choices=(), values=knob.allowed)
    return _integer(number, value) if _DECIMAL.fullmatch(value) else (f"must be {knob.allowed}", "")


def _level(knob: Knob, value: str) -> Fault:
    """Check a distance (NCCL, src/graph/paths.cc, ncclGetLevel: a number is what starts with a digit)."""
    if value in knob.choices:
        return FINE
    if not _DECIMAL.fullmatch(value):
        hint = "write PHB: within one host bridge or NUMA node" if value.upper() == "NODE" else ""
        return f"NCCL knows {knob.allowed}, in upper case; anything else it ignores without a message", hint
    if value[0] in "+-":
        hint = "write LOC for never" if value[0] == "-" else f"write {value[1:]}"
        return f"starts with {value[0]}: NCCL ignores it without a message", hint
    return _octal(value) if len(value) > 1 and value[0] == "0" else FINE


def _path(knob: Knob, value: str) -> Fault:
    if value.startswith("~"):
        return (
            f"{LIBRARIES[knob.library]} does not expand ~: it looks for a folder of that name",
            "write the absolute path",
        )
    return FINE


def _options(_knob: Knob, value: str) -> Fault:
    if "'" in value or '"' in value:
        return (
            "Open MPI splits it at spaces and does not interpret quotes",
            "omit the quotes, and use no path with a space",
        )
    return FINE


def _key(_knob: Knob, value: str) -> Fault:
    return FINE if len(value) >= _PSK_LENGTH else (f"is shorter than {_PSK_LENGTH} characters, which NCCL refuses", "")


def _converted(knob: Knob, text: str) -> str:
    """Return what `text` means to people in the form that the library reads; `text` itself where nothing is known."""
    low = text.lower()
    if knob.kind == "switch":
        return "1" if low in _ON else "0" if low in _OFF else text
    if knob.kind in ("integer", "number"):
        return _counted(knob, text)
    if knob.kind == "words":
        sign = "^" if text.startswith("^") else ""
        return sign + ",".join(_spelt(knob, item.strip()) for item in text[len(sign) :].split(","))
    return _spelt(knob, text)


def _spelt(knob: Knob, text: str) -> str:
    return next((choice for choice in knob.choices if choice.lower() == text.lower()), text)


def _counted(knob: Knob, text: str) -> str:
    found = _QUANTITY.fullmatch(text)
    if not found or len(text) > _LONGEST_NUMBER:
        return text
    amount, unit = Fraction(found[1]), found[2].lower()
    if knob.unit == "bytes" and unit[0] in _BYTES and unit[1:] in ("", "b", "ib") and unit not in ("bb", "bib"):
        amount *= 1 << _BYTES[unit[0]]
    elif knob.unit in ("ms", "s") and unit in _SECONDS and found[2] != "M":
        amount *= _SECONDS[unit] / _SECONDS[knob.unit]
    else:
        return text
    if amount.denominator == 1:
        return str(amount.numerator)
    return repr(float(amount)) if knob.kind == "number" else text


def _text(knob: Knob, value: str) -> Fault:
    if not knob.form or re.fullmatch(knob.form, value):
        return FINE
    return f"must be {knob.allowed}", ""


_CHECKS: Dict[str, Callable[[Knob, str], Fault]] = {
    "text": _text,
    "switch": _switch,
    "integer": _integer,
    "number": _number,
    "word": _word,
    "level": _level,
    "verbosity": _verbosity,
    "path": _path,
    "options": _options,
    "key": _key,
    "words": knob_lists.describe,
    "hca": knob_lists.hca,
    "interfaces": knob_lists.interfaces,
    "networks": knob_lists.networks,
    "components": knob_lists.components,
    "functions": knob_lists.functions,
    "cidr": knob_lists.cidr,
    "ports": knob_lists.ports,
    "endpoint": knob_lists.endpoint,
}
