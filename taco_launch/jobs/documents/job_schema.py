"""The keys of a job file, as pydantic models made from the table of job fields; policies by the MPI Operator's names (v2beta1)."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field, create_model

from taco_launch.hosts.inventory.schema.section import SchemaSection
from taco_launch.hosts.inventory.schema.values import (
    Image,
    ImageFrom,
    Interface,
    Label,
    MessageAddress,
    Profile,
    Size,
)
from taco_launch.jobs.documents import job_values as values
from taco_launch.jobs.request import job_fields
from taco_launch.jobs.request.job_fields import JobField

# What a kind of field is in a file. Only what is repeated on a command line is empty, not None, where nothing is given.
_TYPES: Mapping[str, Callable[[JobField], Any]] = {
    "name": lambda _field: values.JobName,
    "count": lambda field: values.count(*field.bounds),
    "host count": lambda _field: values.HostCount,
    "time": lambda field: values.time(field.bounds[0]),
    "size": lambda _field: Size,
    "shared memory": lambda _field: Size,
    "flag": lambda _field: bool,
    "switch": lambda _field: bool,
    "choice": lambda field: Literal[tuple(field.choices)],
    "words": lambda field: Literal[tuple(job_fields.operator_word(word) for word in field.words or ())],
    "hosts": lambda _field: values.Hosts,
    "indices": lambda _field: values.Indices,
    "list": lambda _field: tuple[str, ...],
    "files": lambda _field: tuple[values.NonEmpty, ...],
    "labels": lambda _field: dict[Label, Label],
    "variables": lambda _field: dict[str, values.Variable | None],
    "knobs": lambda _field: dict[str, values.Knob],
    "parameters": lambda _field: dict[str, values.Knob],
    "profile": lambda _field: Profile,
    "interface": lambda _field: Interface,
    "queue": lambda _field: values.QueueName,
    "signal": lambda _field: values.SignalTime,
    "address": lambda _field: MessageAddress,
    "text": lambda _field: values.NonEmpty,
    "code": lambda _field: values.NonEmpty,
    "folder": lambda _field: str,
    "image": lambda _field: Image,
    "image source": lambda _field: ImageFrom,
    "working folder": lambda _field: values.WorkingDir,
}


class CommandSection(SchemaSection):
    """The part of a job file that is no option."""

    command: values.Command | None = Field(
        default=None,
        description="The program and its arguments: a list, or text, which is split into words like in a shell but never "
        "run by a shell.",
    )


def _keys(section: tuple[str, ...]) -> dict[str, Any]:
    """Return the keys of a section: the type and the description of each."""
    return {
        field.written_key: (
            _TYPES[field.kind](field) | None,
            Field(default=None, description=field.help.format_map(job_fields.KEYS)),
        )
        for field in job_fields.FIELDS
        if field.section == section
    }


def _inner(section: type[SchemaSection], description: str) -> tuple[Any, Any]:
    return section, Field(default_factory=section, description=description)


SchedulingPolicy = create_model(
    "SchedulingPolicy",
    __base__=SchemaSection,
    __doc__="The order in which jobs get their slots.",
    **_keys(job_fields.SCHEDULING),
)
RunPolicy = create_model(
    "RunPolicy",
    __base__=SchemaSection,
    __doc__="How the job is ended, and what happens then. Times are seconds, or as 90s, 15m, 3h, 2d.",
    **_keys(job_fields.POLICY),
    schedulingPolicy=_inner(SchedulingPolicy, "Queue and priority of the job, and how long it may wait."),
)
SlurmSection = create_model(
    "SlurmSection",
    __base__=SchemaSection,
    __doc__="What is requested of Slurm, as sbatch has it.",
    **_keys(job_fields.SLURM),
)
JobDocument = create_model(
    "JobDocument",
    __base__=CommandSection,
    __doc__="A job of taco-launch, as `run -f` and `submit -f` read it.",
    **_keys(job_fields.TOP),
    runPolicy=_inner(RunPolicy, "How the job is ended, and what happens then."),
    slurm=_inner(SlurmSection, "What is requested of Slurm, where Slurm keeps the queue."),
)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a job file, for editors: every key with its description."""
    return JobDocument.model_json_schema() | {"$schema": "https://json-schema.org/draft/2020-12/schema"}
