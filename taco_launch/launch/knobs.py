"""The table of knobs: all of them, and how one is found by its name, its beginning or a name nearly like it."""

import difflib
from typing import Dict, Optional, Tuple

from taco_launch.launch.knob import Knob
from taco_launch.launch.knobs_horovod import HOROVOD, LIGHTCC
from taco_launch.launch.knobs_nccl import LOGGING, NETWORK
from taco_launch.launch.knobs_nccl_tuning import NEIGHBOURS, TUNING, UNDOCUMENTED
from taco_launch.launch.knobs_openmpi import OPENMPI, UCX

__all__ = ["KNOWN_PREFIXES", "TABLE", "Knob", "find", "matching", "near", "slip", "strict"]

TABLE: Tuple[Knob, ...] = (
    *NETWORK,
    *LOGGING,
    *TUNING,
    *NEIGHBOURS,
    *(
        Knob(name, "text", "", "Not documented: for NCCL's own developers.", "NCCL 2.29.7, its library")
        for name in UNDOCUMENTED
    ),
    *HOROVOD,
    *LIGHTCC,
    *OPENMPI,
    *UCX,
)
# Every name with one of these is in the table; of UCX_ and MCA parameters there are thousands.
KNOWN_PREFIXES = ("NCCL_", "HOROVOD_", "LIGHT_")

_BY_NAME: Dict[str, Knob] = {name: knob for knob in TABLE for name in (knob.name, *knob.aliases)}


def find(name: str) -> Optional[Knob]:
    """Give the knob of that name or alias, None where the table has none."""
    return _BY_NAME.get(name)


def matching(text: str) -> Tuple[Knob, ...]:
    """Give the knob of exactly that name, else all whose name or an alias begins with `text`, upper or lower case."""
    exact = find(text)
    if exact:
        return (exact,)
    start = text.lower()
    return tuple(knob for knob in TABLE if any(name.lower().startswith(start) for name in (knob.name, *knob.aliases)))


def near(name: str) -> str:
    """Give the known name that is most like `name`, empty where none is."""
    text = name.upper() if name.upper().startswith(KNOWN_PREFIXES) else name
    found = difflib.get_close_matches(text[:80], _BY_NAME, n=1, cutoff=0.7)
    return found[0] if found else ""


def strict(name: str) -> bool:
    """Say whether the table has to know a name: by its prefix, or because it is a known one in lower case."""
    return name.startswith(KNOWN_PREFIXES) or (not name.isupper() and name.upper() in _BY_NAME)


def slip(name: str) -> str:
    """Give the known name from which `name` is one slip of the finger away, empty where there is none.

    A slip is a letter too many, too few or wrong, two swapped, or upper for lower case. A digit is none: `..._v6`
    beside `..._v4` is another name, and so are short ones and those of other frameworks: bml, pml_base_verbose.
    """
    if find(name) or len(name) < 6 or name.endswith("_base_verbose"):
        return ""
    return next((known for known in _BY_NAME if _one_slip(name, known)), "")


def _one_slip(one: str, other: str) -> bool:
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
        return swapped or (left[1:] == right[1:] and not left[0].isdigit() and not right[0].isdigit())
    longer, shorter = (left, right) if len(one) > len(other) else (right, left)
    return longer[1:] == shorter and not longer[0].isdigit()
