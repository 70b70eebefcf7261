"""Host ranges as ClusterShell writes them: `gpu[1-3,7]` to names in the order of the text, and names folded back.

Expanding is done here, not by ClusterShell's NodeSet: it sorts, so `gpu[2,1]` would be paired with the wrong addresses,
and it makes a hundred million names of `gpu[1-99999999]` before anyone can object.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable

from taco_launch.hosts.inventory.schema.names import shown

MAX_HOSTS = 10_000

_MAX_NAME = 253  # RFC 1035, section 2.3.4
# ClusterShell takes the others for ranges, sets and groups, or counts on with them.
_PLAIN = re.compile(r"(?!.*[0-9]{19})[^\[\],!^&@*?{}\s]{1,253}")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?:/([0-9]{1,9}))?)?")


def expand(text: str) -> tuple[str, ...]:
    """Return the names that `text` stands for: itself, or with ranges every combination, the last range fastest.

    `gpu[1-3,7]`, `gpu[01-16]` (leading zeros are kept), `gpu[0-8/2]` (every second), `r[1-2]n[1-4]`.

    Raises:
        ValueError: the brackets are wrong, a name is listed twice, or there are more than MAX_HOSTS; says what is allowed.
    """
    pieces = _BRACKETS.split(text)
    fixed, ranges = pieces[::2], pieces[1::2]
    if any("[" in piece or "]" in piece for piece in fixed):
        raise ValueError("has an unmatched bracket; a range is written gpu[1-4] or gpu[1,3]")
    if sum(map(len, fixed)) > _MAX_NAME:
        raise ValueError(f"is longer than any host name ({_MAX_NAME} characters)")
    count = 1
    numbers = []
    for body in ranges:
        numbers.append(_numbers(body))
        count *= len(numbers[-1])
        if count > MAX_HOSTS:
            raise ValueError(_too_many())
    names = tuple(
        "".join(itertools.chain.from_iterable(itertools.zip_longest(fixed, combination, fillvalue="")))
        for combination in itertools.product(*numbers)
    )
    if len(set(names)) < len(names):
        raise ValueError(f"names {shown(Counter(names).most_common(1)[0][0])} twice")
    return names


def fold(names: Iterable[str]) -> str:
    """Return names in ClusterShell's short form, sorted: `gpu[1-3,7],head`.

    A host may say that it has any name: what ClusterShell would take for ranges or sets stands behind the others as it is.
    """
    every = list(names)
    plain = [name for name in every if _PLAIN.fullmatch(name)]
    others = sorted({name for name in every if not _PLAIN.fullmatch(name)})
    if not plain:
        return ",".join(others)
    # 20 ms that only messages need; ClusterShell has no type hints
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # type: ignore[import-untyped] # noqa: PLC0415

    return ",".join((str(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP)), *others))


def _numbers(body: str) -> list[str]:
    numbers: list[str] = []
    for item in body.split(","):
        found = _NUMBERS.fullmatch(item)
        if not found:
            raise ValueError("has an invalid range; allowed are [1-4], [01-16], [1,3] and [0-8/2], of up to 9 digits")
        first, last, step = found[1], found[2] or found[1], int(found[3] or "1")
        if step == 0 or int(last) < int(first):
            raise ValueError(f"has an empty range: {item}")
        padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
        if padded and len(first) != len(last):
            raise ValueError(f"has a range whose ends have different numbers of digits: {item}")
        span = range(int(first), int(last) + 1, step)
        if len(numbers) + len(span) > MAX_HOSTS:
            raise ValueError(_too_many())
        numbers.extend(str(number).zfill(len(first)) for number in span)
    return numbers


def _too_many() -> str:
    return f"means more than {MAX_HOSTS} hosts, which is the limit"
