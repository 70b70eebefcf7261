"""What set-up finds on a host, and the files that an operation writes."""

from dataclasses import replace
from typing import Any

from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import SetupState
from taco_launch.setup.model.ops import Op


def made(**fields: Any) -> SetupState:
    nothing = Absent("not there")
    found = SetupState((), (), (), None, nothing, nothing, nothing, nothing, nothing, "enabled", "active", "/usr/bin/dockerd -H fd://", nothing)  # fmt: skip
    return replace(found, **fields)


def file(op: Op, path: str) -> str:
    return next(each.data.decode() for each in op.files if path in (each.path, each.shown))
