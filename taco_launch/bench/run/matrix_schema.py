"""The keys of a matrix, as pydantic models; a variant may have those of a job file, whose own schema says which."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from taco_launch.bench.logs import patterns
from taco_launch.bench.model.matrix import ALL
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.schema.document import OddValue, kind_of
from taco_launch.hosts.inventory.schema.notify import NoticesEntry
from taco_launch.hosts.inventory.schema.section import SchemaSection
from taco_launch.hosts.inventory.schema.values import named, whole, whole_schema
from taco_launch.jobs.documents.job_schema import JobDocument
from taco_launch.jobs.documents.job_values import Arguments, Command, LeastSecond

_SIZES = "the sizes of the matrix set how many ranks a job has"
# The keys of a job file that a matrix gives otherwise, and what does.
ELSEWHERE = {
    "name": "each job is named after its cell",
    "command": "the command is the workload's; a variant adds args to it",
    **dict.fromkeys(("np", "hosts", "slotsPerHost", "workers", "gpus", "slotsPerWorker"), _SIZES),
}
JOB_KEYS = tuple(key for key in JobDocument.model_fields if key not in ELSEWHERE)

_MOST_RANKS = 1_000_000
_MOST_REPEATS = 1000
_PERCENT = r"[0-9]{1,3}(\.[0-9]{1,6})? ?%"
_UNIT = r"[^\s\x00-\x1f\x7f]{1,20}"


def _size(value: Any) -> int | str:
    number = isinstance(value, int) and not isinstance(value, bool)
    if value == ALL or (number and 1 <= value <= _MOST_RANKS):
        return int(value) if number else ALL
    hint = names.did_you_mean(value, (ALL,)) if isinstance(value, str) else ""
    found = "" if number or isinstance(value, str) else f", and this is {kind_of(value)}"
    raise ValueError(f"must be a number of ranks from 1 to {_MOST_RANKS}, or all{found}", hint)


def _percent(value: Any) -> float:
    text = value.text if isinstance(value, OddValue) else str(value)
    if not isinstance(value, str) or not re.fullmatch(_PERCENT, text) or not float(text.rstrip("% ")) <= 100:
        bare = float(text) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", text) else 0.0
        hint = f"write {bare * 100 if bare < 1 else bare:g}%" if bare else ""
        raise ValueError("must be a percentage from 0% to 100%, such as 3%", hint)
    return float(text.rstrip("% ")) / 100


def _pattern(text: str) -> str:
    try:
        patterns.compiled(text)
    except ValueError as error:
        raise ValueError(str(error), r"for example 'latency: ([0-9.]+) ms'") from None
    return text


def _unit(text: str) -> str:
    if not re.fullmatch(_UNIT, text) or not text.isprintable():
        raise ValueError("must be a unit of at most 20 characters without blanks, such as GB/s", "")
    return text


Size = Annotated[
    int | Literal["all"],
    PlainValidator(_size),
    WithJsonSchema({"anyOf": [{"const": ALL}, {"type": "integer", "minimum": 1, "maximum": _MOST_RANKS}]}),
]
Percent = Annotated[float, PlainValidator(_percent), WithJsonSchema({"type": "string", "pattern": f"^{_PERCENT}$"})]
Repeats = Annotated[int, whole(1, _MOST_REPEATS), whole_schema(1, _MOST_REPEATS)]
WarmUps = Annotated[int, whole(0, 100), whole_schema(0, 100)]
Seed = Annotated[int, whole(0, (1 << 53) - 1), whole_schema(0, (1 << 53) - 1)]


class WorkloadEntry(SchemaSection):
    """A program that measures something."""

    kind: Literal["horovod", "tf_cnn", "nccl-tests", "regex"] = Field(
        description="The format of its output: that of Horovod's synthetic benchmark or ours (horovod), of "
        "tf_cnn_benchmarks (tf_cnn), of a program of nccl-tests (nccl-tests), or lines that match a pattern (regex)."
    )
    command: Command = Field(
        description="The program and its arguments: a list, or text, which is split into words like in a shell but never "
        "run by a shell."
    )
    pattern: Annotated[str, AfterValidator(_pattern)] | None = Field(
        default=None,
        description="With kind regex: a Python regular expression with one group, which matches the number. It is searched for in each "
        "line, without the rank's tag.",
    )
    unit: Annotated[str, AfterValidator(_unit)] | None = Field(
        default=None, description="With kind regex: the number's unit, which is also its name in tables."
    )
    better: Literal["higher", "lower"] | None = Field(
        default=None, description="With kind regex: which numbers are better. Default: higher."
    )
    which: Literal["only", "last"] | None = Field(
        default=None,
        description="With kind regex, where several lines match: all must give the same number (only), or the last "
        "one counts (last). Default: only.",
    )


class VariantEntry(SchemaSection):
    """A way to run the workloads: arguments for their commands, and any key of a job file but those for its size."""

    model_config = ConfigDict(extra="allow")

    args: Arguments = Field(default=(), description="Arguments to add after those of the workload's command.")


class Only(SchemaSection):
    """Some cells: those of these workloads, variants and sizes; what is not named is all of them."""

    workloads: tuple[str, ...] | None = Field(default=None, description="Names of workloads. Default: all.")
    variants: tuple[str, ...] | None = Field(default=None, description="Names of variants. Default: all.")
    sizes: tuple[Size, ...] | None = Field(default=None, description="Entries of the matrix's sizes. Default: all.")


class MatrixDocument(SchemaSection):
    """A matrix of taco-launch: what `bench ladder` and `nightly run` measure."""

    name: Annotated[str, named("the name of a matrix")] = Field(
        description="Name of the matrix, under which the history keeps its results."
    )
    workloads: dict[Annotated[str, named("the name of a workload")], WorkloadEntry] = Field(
        description="What is run, by name."
    )
    sizes: tuple[Size, ...] = Field(
        description="Numbers of ranks; all means one rank for each slot of the hosts. Those larger than the cluster are left out."
    )
    variants: dict[Annotated[str, named("the name of a variant")], VariantEntry | None] = Field(
        description="The ways to run it, by name; ratios refer to the first one."
    )
    job: dict[str, Any] = Field(
        default={}, description="Keys of a job file for all variants; a variant's own keys override them."
    )
    repeats: Repeats = Field(default=5, description="Number of runs of each cell that count.")
    warmUps: WarmUps = Field(  # noqa: N815 - as a job file's keys
        default=1, description="Number of runs of each cell that come first and do not count."
    )
    minEffect: Percent = Field(  # noqa: N815
        default=0.03, description="The smallest change that matters, such as 3%."
    )
    timeBudget: LeastSecond | None = Field(  # noqa: N815
        default=None, description="The longest time for a ladder, such as 2h. Default: no limit."
    )
    seed: Seed | None = Field(default=None, description="Seed of the order of the runs. Default: random.")
    notify: NoticesEntry = Field(
        default=(),
        description="Who gets messages about its nightly runs besides those of the inventory: as `notify` there.",
    )
    only: tuple[Only, ...] | None = Field(
        default=None, description="The cells to measure: all cells that match one of these entries. Default: all cells."
    )


SECTIONS: dict[str, type[SchemaSection]] = {"workloads": WorkloadEntry, "only": Only}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a matrix, for editors: every key with its description."""
    schema = MatrixDocument.model_json_schema()
    job = JobDocument.model_json_schema()
    keys = {key: job["properties"][key] for key in JOB_KEYS}
    schema["$defs"] |= job["$defs"]
    variant = schema["$defs"]["VariantEntry"]
    variant["properties"] |= keys
    variant["additionalProperties"] = False
    schema["properties"]["job"] |= {"properties": keys, "additionalProperties": False}
    return schema | {"$schema": "https://json-schema.org/draft/2020-12/schema"}
