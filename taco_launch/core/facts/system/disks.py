"""Read the file systems of a host, as df shows them."""

import re
from dataclasses import replace
from typing import List, Tuple

from taco_launch.core.facts.text.sections import Sections, failure
from taco_launch.core.facts.text.strip_terminal import shown
from taco_launch.core.model.host.fact_value import Found, Unknown
from taco_launch.core.model.host.facts import Disk


def disk(text: str) -> Found[Tuple[Disk, ...]]:
    """Read the rows of `df -PkT`; the header and lines before it are passed over."""
    rows = text.rstrip("\n").split("\n")
    begin = next((place for place, row in enumerate(rows) if re.match(r"Filesystem\s+Type\s", row)), None)
    if begin is None:
        return Unknown(f"df -PkT: no header is there: {shown(text)}")
    found = []
    for row in rows[begin + 1 :]:
        words = list(re.finditer(r"\S+", row))
        at = next((place for place in range(1, len(words) - 5) if _is_row_from(words[place : place + 6])), None)
        # A device's name may hold spaces; busybox moves a type to the right behind a long name, and nothing to the left.
        if at is None or words[at].start() < rows[begin].index("Type"):
            return Unknown(f"df -PkT: {shown(row)} is not understood")
        kind, size, _used, free, _share, folder = words[at : at + 6]
        path = row[folder.start() :].rstrip()
        found.append(Disk(path, kind[0], int(size[0]) << 10, max(int(free[0]), 0) << 10))
    return tuple(found)


def parse_disks(text: Found[str]) -> Found[Tuple[Disk, ...]]:
    """Read the folders that were requested, then df's row for each; equal ones once."""
    if not isinstance(text, str):
        return Unknown(text.reason)
    asked = re.findall(r"(?m)^asked (/.*)$", text)
    found = disk(text)
    if not isinstance(found, tuple):
        return found
    if len(found) != len(asked):
        return Unknown(f"df -PkT was given {len(asked)} folders and has {len(found)} rows")
    return tuple({each.path: each for each in found}.values())


def with_types(disks: Found[Tuple[Disk, ...]], sections: Sections) -> Found[Tuple[Disk, ...]]:
    """Fill in what xfs_info says: `MOUNT ftype=0`."""
    if not isinstance(disks, tuple) or failure(sections, "system.xfs") is not None:
        return disks
    told = dict(re.findall(r"(?m)^(/.*) ftype=([01])$", sections["system.xfs"].stdout))
    return tuple(replace(each, typed=told[each.path] == "1") if each.path in told else each for each in disks)


def _is_row_from(words: "List[re.Match[str]]") -> bool:
    """Return whether the words from a type on are those of a row of df: size, used and free, the share in use, a path."""
    _kind, size, used, free, share, path = (word[0] for word in words)
    numbers = all(re.fullmatch("[0-9]{1,16}", word) for word in (size, used)) and re.fullmatch("-?[0-9]{1,16}", free)
    return bool(numbers and re.fullmatch("[0-9]{1,3}%|-", share) and path.startswith("/"))
