"""Values that are lists or addresses: what is wrong with one, as (problem, hint), two empty texts where nothing is."""

import ipaddress
import re
from typing import Tuple

from taco_launch.core.launch.knobs.knob import Knob

Fault = Tuple[str, str]
FINE: Fault = ("", "")

_HCA = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)((?::[0-9]*){0,3})")
# mlx5_1 is the start of mlx5_10; mlx5 is a start that is wanted, and nothing is called mlx5_00
_BEGINS_OTHERS = re.compile(r".*_[a-z]*[0-9]*[1-9]")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,14}")  # IFNAMSIZ of linux/if.h: 15 and a NUL
_COMPONENT = re.compile(r"[a-z0-9_]+")
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_ENDPOINT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):([0-9]{1,5})")
_FUNCTIONS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
_MAX_HCAS = 32


def hca(_knob: Knob, value: str) -> Fault:
    """Check a list of HCAs (NCCL, env.rst: NCCL_IB_HCA)."""
    exclude, exact, items = _signs(value)
    fault = _items(exclude + exact, items, "HCA")
    if fault != FINE:
        return fault
    names = []
    for item in items:
        found = _HCA.fullmatch(item)
        if not found:
            return f"{item!r} is not HCA[:PORT[:RAIL[:PLANE]]]", "such as =mlx5_0:1,mlx5_1:1"
        port = found[2].split(":")[1] if found[2] else ""
        if port and not 1 <= int(port) <= 255:
            return f"{item!r}: ports are counted from 1", f"{found[1]} alone means all its ports"
        names.append(found[1])
    if len(items) > _MAX_HCAS:
        return f"names {len(items)} HCAs, and NCCL accepts {_MAX_HCAS} at most", ""
    wide = next((name for name in names if _BEGINS_OTHERS.fullmatch(name)), "")
    if wide and not exact:
        does = "excludes" if exclude else "includes"
        return f"is a prefix: {wide} also {does} {wide}0 to {wide}9", f"write {exclude}={','.join(items)}"
    return FINE


def interfaces(_knob: Knob, value: str) -> Fault:
    """Check a list of interfaces (NCCL, env.rst: NCCL_SOCKET_IFNAME)."""
    exclude, exact, items = _signs(value)
    fault = _items(exclude + exact, items, "interface")
    if fault != FINE:
        return fault
    for item in items:
        if _network(item):
            what = "a network" if "/" in item else "an address"
            return (
                f"{item!r} is {what}, and NCCL requires names of interfaces",
                "such as =bond0; ip -br addr lists them",
            )
        if not _INTERFACE.fullmatch(item):
            return f"{item!r} is not an interface: a name has at most 15 letters, digits, '_', '.' and '-'", ""
    return FINE


def networks(_knob: Knob, value: str) -> Fault:
    """Check interfaces and networks for Open MPI (ompi_info: btl_tcp_if_include)."""
    for item in value.split(","):
        if not item:
            return "has nothing between two commas", ""
        if item[0] in "^=":
            return f"{item!r}: Open MPI accepts plain names only, without ^ and =", ""
        if "/" in item:
            if not _network(item):
                return f"{item!r} is not a network", "such as 10.0.0.0/16"
        elif _network(item):
            return f"{item!r} is an address, and Open MPI requires an interface or a network", f"write {item}/32"
        elif not _INTERFACE.fullmatch(item):
            return f"{item!r} is neither an interface nor a network", "such as eth0 or 10.0.0.0/16"
    return FINE


def components(knob: Knob, value: str) -> Fault:
    """Check a list of MCA components: builds have others than those of the table, but none that are nearly them."""
    items = value[1:].split(",") if value.startswith("^") else value.split(",")
    if any(item.startswith("^") for item in items):
        return (
            "has a ^ inside: it may only stand at the very start, and applies to the whole list",
            "include or exclude, not both",
        )
    for item in items:
        if item in knob.choices:
            continue
        meant = next((known for known in knob.choices if edit_distance_one(item, known)), "")
        if meant:
            return f"{item!r} is not a component of {knob.name}", f"did you mean {meant!r}?"
        if not _COMPONENT.fullmatch(item):
            return f"{item!r} is not a component: lower-case letters, digits and '_'", ""
    return FINE


def functions(knob: Knob, value: str) -> Fault:
    """Check NCCL_ALGO or NCCL_PROTO: `ring,tree` or, since 2.24, `ring;allreduce:^tree` (NCCL, env.rst)."""
    known = {choice.lower() for choice in knob.choices}
    for index, part in enumerate(value.split(";")):
        function, colon, names = part.rpartition(":")
        if colon and function.lower() not in _FUNCTIONS:
            return f"{function!r} is not one of {', '.join(_FUNCTIONS)}", ""
        if index and not colon:
            return f"{part!r} has no FUNCTION: in front; only the first part may omit it", "such as ring;allreduce:tree"
        for name in names[names.startswith("^") :].split(","):
            if name.lower() not in known:
                return f"{name!r} is not one of {', '.join(knob.choices)}: NCCL fails, or ignores it before 2.24", ""
    return FINE


def cidr(_knob: Knob, value: str) -> Fault:
    """Check one network."""
    return (
        FINE if "/" in value and _network(value) else ("is not a network with a prefix length", "such as 10.0.0.0/16")
    )


def ports(_knob: Knob, value: str) -> Fault:
    """Check ports with commas and ranges."""
    for item in value.split(","):
        found = _PORTS.fullmatch(item)
        if not found or not 1 <= int(found[1]) <= int(found[2] or found[1]) <= 65535:
            return f"{item!r} is neither a port nor a range of ports from 1 to 65535", "such as 40000-40999"
    return FINE


def endpoint(_knob: Knob, value: str) -> Fault:
    """Check a host and its port."""
    found = _ENDPOINT.fullmatch(value)
    return (
        FINE
        if found and 1 <= int(found[1]) <= 65535
        else ("is not HOST:PORT", "such as localhost:28028 or [::1]:28028")
    )


def describe(knob: Knob, value: str) -> Fault:
    """Check words of `choices` with commas, a ^ first or none."""
    known = {choice.lower() for choice in knob.choices}
    for item in value[value.startswith("^") :].split(","):
        if item.lower() not in known:
            inside = item.startswith("^")
            hint = "a ^ at the very start applies to the whole list" if inside else ""
            return f"{item!r} is not one of {', '.join(knob.choices)}: NCCL ignores it without a message", hint
    return FINE


def _signs(value: str) -> Tuple[str, str, Tuple[str, ...]]:
    """Cut a list of NCCL's into ^, = and items."""
    exclude = "^" if value.startswith("^") else ""
    value = value[len(exclude) :]
    exact = "=" if value.startswith("=") else ""
    return exclude, exact, tuple(value[len(exact) :].split(","))


def _items(signs: str, items: Tuple[str, ...], what: str) -> Fault:
    for item in items:
        if not item:
            return f"has an empty item in place of the name of an {what}", ""
        if item[0] in "^=":
            problem = f"{item!r}: ^ and = may only stand at the start of the list, ^ first, and apply to all of it"
            if "^" in item:
                return problem, "include or exclude, not both"
            return problem, f"write {signs or '='}{','.join(other.lstrip('=') for other in items)}"
        if any(character.isspace() for character in item):
            return f"{item!r} has a space in it", ""
    return FINE


def _network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


_LOOK_ALIKE = (frozenset("1il"), frozenset("0o"))


def edit_distance_one(one: str, other: str) -> bool:
    """Return whether two words differ by one letter too many, too few or wrong, two swapped, or upper for lower case.

    A digit is none: `..._v6` beside `..._v4` is another name, and so is `psm2` beside `psm`. Only where it looks like
    the letter that stands there (`obi` for `ob1`) it is one. Equal words differ by nothing, which counts as well.
    """
    if one.lower() == other.lower():
        return True
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    left, right = one[start:], other[start:]
    if len(one) == len(other):
        swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
        return swapped or (left[1:] == right[1:] and _for_another(left[0].lower(), right[0].lower()))
    longer, shorter = (left, right) if len(one) > len(other) else (right, left)
    return longer[1:] == shorter and not longer[0].isdigit()


def _for_another(one: str, other: str) -> bool:
    """Return whether a character may stand for another by mistake."""
    if one.isdigit() or other.isdigit():
        return any(one in alike and other in alike for alike in _LOOK_ALIKE)
    return True
