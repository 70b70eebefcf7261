"""The text of a matrix in YAML -> Matrix: its keys are checked by pydantic, those of its jobs as in a job file."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from taco_launch.bench.model.matrix import LogFormat, Matrix, MatrixPart, Variant, Workload
from taco_launch.bench.run.matrix_schema import (
    ELSEWHERE,
    JOB_KEYS,
    SECTIONS,
    MatrixDocument,
    VariantEntry,
    WorkloadEntry,
)
from taco_launch.hosts.inventory.schema import check, document, names
from taco_launch.hosts.inventory.schema.faults import Faults, Loc
from taco_launch.hosts.inventory.schema.notify import notices
from taco_launch.jobs.documents import job_file
from taco_launch.jobs.documents.job_file import check_job, hide_values

# More cells than anybody reads a table of, or waits for.
MOST_CELLS = 10_000
# What stands for required keys that are missing or wrong, so that the rest can be looked at.
_FILLER: Mapping[str, Any] = {"name": "x", "workloads": {}, "sizes": (), "variants": {}}
_OF_REGEX = ("pattern", "unit", "better", "which")


class MatrixCheck:
    """Finds all that is wrong with a document."""

    def __init__(self, faults: Faults, environ: Mapping[str, str], source: str) -> None:
        """Note what is wrong in `faults`; the rest is as `matrix_file.parse` has it."""
        self._faults = faults
        self._environ = environ
        self._source = source

    def matrix(self, text: str, digest: str) -> Matrix:
        """Return the matrix that a text in YAML describes; without what is wrong with it.

        Raises:
            SpecError: it is not YAML.
        """
        value = document.read(text, self._faults)
        found = self._shape(value)
        written = value if isinstance(value, dict) else {}
        self._cells(written, found)
        self._only(written, found)
        hide_values(self._faults, ("job", "env"))
        job = self._keys(found.job, ("job",), JOB_KEYS)
        check_job(job, self._faults, self._environ, lambda loc: ("job", *loc))
        return Matrix(
            name=found.name,
            workloads=tuple(self._workload(name, entry) for name, entry in found.workloads.items()),
            variants=tuple(self._variant(name, entry or VariantEntry(), job) for name, entry in found.variants.items()),
            sizes=found.sizes,
            repeats=found.repeats,
            warm_ups=found.warmUps,
            min_effect=found.minEffect,
            time_budget=found.timeBudget,
            seed=found.seed,
            only=tuple(
                MatrixPart(one.workloads or (), one.variants or (), one.sizes or ()) for one in found.only or ()
            ),
            notify=notices(found.notify),
            source=self._source,
            digest=digest,
        )

    def _shape(self, value: Any) -> MatrixDocument:
        """Check keys and values; what is wrong is left out, so that the rest can be looked at."""

        def refused(detail: ErrorDetails, _wrong: set[Loc]) -> Loc:
            loc = _loc(detail["loc"])
            section = SECTIONS.get(str(loc[0]), MatrixDocument) if len(loc) > 2 else MatrixDocument
            check.note(detail, loc, self._faults, tuple(section.model_fields))
            return _left_out(loc)

        return check.validated(MatrixDocument, value, self._faults, refused, _FILLER)

    def _cells(self, written: Mapping[str, Any], found: MatrixDocument) -> None:
        for key in ("workloads", "variants", "sizes"):
            if written.get(key) in ({}, ()):
                self._faults.add((key,), "is empty, so there is nothing to measure")
        sizes = written.get("sizes", ())
        for index, size in enumerate(sizes if isinstance(sizes, tuple) else ()):
            if size in sizes[:index]:
                self._faults.add(("sizes", index), "is listed twice")
        count = len(found.workloads) * len(found.variants) * len(found.sizes)
        if count > MOST_CELLS:
            parts = f"{len(found.workloads)} workloads x {len(found.variants)} variants x {len(found.sizes)} sizes"
            self._faults.add(
                (), f"{parts} are {count} cells, but at most {MOST_CELLS} are allowed", "split it into several matrices"
            )

    def _only(self, written: Mapping[str, Any], found: MatrixDocument) -> None:
        """Check that each part names what there is; a name may be that of an entry with faults of its own."""
        for index, one in enumerate(found.only or ()):
            for key in ("workloads", "variants", "sizes"):
                there = written.get(key)
                known = tuple(dict.fromkeys(map(str, there if isinstance(there, (dict, tuple)) else ())))
                for at, name in enumerate(getattr(one, key) or ()):
                    if known and str(name) not in known:
                        problem = f"is not one of this matrix's {key}: {', '.join(known)}"
                        near = "" if key == "sizes" else names.did_you_mean(name, known)
                        self._faults.add(("only", index, key, at), problem, near)

    def _workload(self, name: str, entry: WorkloadEntry) -> Workload:
        at = ("workloads", name)
        if entry.kind == LogFormat.REGEX.value:
            for key in ("pattern", "unit"):
                if getattr(entry, key) is None and (*at, key) not in self._faults:
                    self._faults.add((*at, key), "this key is required with kind regex", value="missing")
        else:
            for key in _OF_REGEX:
                if getattr(entry, key) is not None:
                    self._faults.add(
                        (*at, key), "is only for kind regex", f"remove it: kind {entry.kind} does not need it"
                    )
        return Workload(
            name,
            LogFormat(entry.kind),
            tuple(entry.command),
            entry.pattern or "",
            entry.unit or "",
            entry.better != "lower",
            entry.which == "last",
        )

    def _variant(self, name: str, entry: VariantEntry, job: dict[str, Any]) -> Variant:
        at = ("variants", name)
        hide_values(self._faults, (*at, "env"))
        own = self._keys(entry.model_extra or {}, at, ("args", *JOB_KEYS))
        place = _places(job, own, at)
        right = check_job(_merged(job, own), self._faults, self._environ, place)
        request = job_file.request_of(right, self._source)
        if request.suspend:
            self._faults.add(place(("runPolicy", "suspend")), "nothing resumes the jobs of a matrix", "omit it")
        return Variant(name, entry.args, request)

    def _keys(self, section: Mapping[str, Any], at: Loc, known: tuple[str, ...]) -> dict[str, Any]:
        """Return the keys of a job that a section may have."""
        for key in section:
            if key in ELSEWHERE:
                self._faults.add((*at, key), "is not allowed here", ELSEWHERE[key])
            elif key not in known:
                self._faults.add_unknown((*at, key), key, known, "unknown key", lists="known here")
        return {key: value for key, value in section.items() if key in JOB_KEYS}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any], path: Loc = ()) -> dict[str, Any]:
    """Put a variant's keys over those for all; a key without a value counts as not written, but in env."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            merged[key] = _merged(below[key], value, (*path, key))
        elif value is not None or path == ("env",):
            merged[key] = value
    return merged


def _places(job: Mapping[str, Any], own: Mapping[str, Any], at: Loc) -> Callable[[Loc], Loc]:
    """Return where a value of a variant's job stands: with the variant, or with what holds for all."""

    def place(loc: Loc) -> Loc:
        return ("job", *loc) if _holds(job, loc) and not _holds(own, loc) else (*at, *loc)

    return place


def _holds(value: Any, loc: Loc) -> bool:
    for step in loc:
        if isinstance(value, dict) and step in value:
            value = value[str(step)]
        elif isinstance(value, tuple) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return False
    return value is not None


def _loc(steps: tuple[str | int, ...]) -> Loc:
    """Return the place in the document: without pydantic's own steps."""
    loc = steps[:-1] if steps[-1:] == ("[key]",) else steps
    if loc[:1] == ("notify",):
        return (*loc[:2], *loc[3:])
    return (*loc[:3], *loc[4:]) if loc[:1] == ("workloads",) and loc[2:3] == ("command",) else loc


def _left_out(loc: Loc) -> Loc:
    """Return what is left out for a fault: a whole workload, a variant's arguments, else a key."""
    return loc[: {"workloads": 2, "variants": 3}.get(str(loc[0]), 1)] if loc else loc
