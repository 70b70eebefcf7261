"""Variables that a user gives, which every rank gets as they stand: what of them is not as hoped."""

import re
from typing import Iterator, Mapping, Sequence

from taco_launch.core.launch.command_line.env import VISIBLE_GPUS
from taco_launch.core.launch.command_line.overrides import Option
from taco_launch.core.model.plans import Placement

# What a shell would put in; a password may look so, a path does not.
_REFERENCE = re.compile(r"(?<!\\)\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})")
_MEETING = ("MASTER_ADDR", "MASTER_PORT")


def reference(name: str, value: str) -> str:
    """Return the $NAME in the value of a variable of paths, "" where there is none: the ranks get it as it stands."""
    found = _REFERENCE.search(value) if name.endswith("PATH") else None
    return found[0] if found else ""


def given_remarks(given: Sequence[Option], placement: Placement, gpus: Mapping[str, int]) -> Iterator[str]:
    """Yield the remarks on what is given by name; `gpus` are the numbers of GPUs of hosts, as far as they are known."""
    there = max((gpus.get(share.host, 0) for share in placement.shares), default=0)
    most = max((share.ranks for share in placement.shares), default=0)
    for name, value in (pair for option in given for pair in option.env):
        if value is None:
            continue
        if text := reference(name, value):
            yield f"{name}: no shell expands the value, so the ranks get {text} literally: write its value instead"
        elif name in _MEETING:
            yield f"{name}={value} overrides what taco-launch sets so that the ranks of this job meet: omit it"
        elif name == VISIBLE_GPUS and 0 < len(value.split(",")) < most:
            yield f"ranks share GPUs: {name}={value} names {len(value.split(','))} for up to {most} ranks on a host"
        elif name == VISIBLE_GPUS and value and len(value.split(",")) < there:
            yield (
                f"{name}={value}: the ranks see these GPUs, whichever the job has, and other jobs may use them: "
                "choose the job's GPUs with --gpu-ids instead"
            )
