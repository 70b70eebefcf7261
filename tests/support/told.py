"""What a request says, as JSON has it."""

import json
from dataclasses import asdict
from typing import Any

from taco_launch.core.model.job_request import JobRequest


def told(request: JobRequest) -> dict[str, Any]:
    """Return the fields that say something, through JSON, so that tuples and lists are one."""
    nothing = asdict(JobRequest())
    found = {name: value for name, value in asdict(request).items() if value != nothing[name] and name != "written"}
    plain: dict[str, Any] = json.loads(json.dumps(found, default=lambda value: value.value))
    return plain
