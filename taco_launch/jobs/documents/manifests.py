"""A file of Kubernetes' objects, several documents or kubectl's List -> the one of them that is a job."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from taco_launch.core.errors import SpecError
from taco_launch.hosts.inventory.schema import document
from taco_launch.hosts.inventory.schema.faults import Faults, Loc
from taco_launch.hosts.inventory.schema.names import plain
from taco_launch.jobs.documents import volcano_job
from taco_launch.jobs.documents.manifest import ConvertedManifest, Manifest
from taco_launch.jobs.documents.mpi_job import MpiJob
from taco_launch.jobs.documents.pytorch_job import PyTorchJob, TrainJob

# At the start of a line, it ends a document even within a text of several lines (YAML 1.2, 9.1.2).
_MARKER = re.compile(r"---(?:\s|$)")
_JOBS: Mapping[str, type[Manifest]] = {"MPIJob": MpiJob, "PyTorchJob": PyTorchJob, "TrainJob": TrainJob}
KINDS = "an MPIJob, PyTorchJob, TrainJob or Volcano Job"
_ITEMS = "items"
LINE = "the line that starts its ranks can be read alone: taco-launch translate -- LINE"


def read(text: str, faults: Faults) -> tuple[Any, tuple[str, ...]]:
    """Return the document of a job file, or the job among a manifest's objects, and what the others are.

    Raises:
        SpecError: the text is no YAML, or holds several documents that are not one job and other objects.
    """
    parts = list(_documents(text))
    objects = [(part, _peeked(part, faults)) for part in parts] if len(parts) > 1 else []
    objects = [(part, value) for part, value in objects if value is not None]
    if len(objects) == 1:
        text = objects[0][0]
    if len(objects) < 2 or not any(isinstance(value, dict) and "kind" in value for _part, value in objects):
        return _of_list(document.read(text, faults), faults)
    jobs = [part for part, value in objects if _is_job(value)]
    if len(jobs) != 1:
        second = objects[1][0]
        line = len(second) - len(second.lstrip("\n")) + 1
        faults.add_at(line, 1, second.lstrip("\n").partition("\n")[0], *_not_one([value for _part, value in objects]))
        raise faults.error()
    return document.read(jobs[0], faults), tuple(_told(value) for part, value in objects if part != jobs[0])


def convert(value: dict[str, Any], faults: Faults) -> ConvertedManifest:
    """Read a manifest; what is wrong with it, or cannot be a job here, goes to `faults`."""
    if not _is_job(value):
        faults.add(("kind",), f"the only Kubernetes object that can be read is {KINDS}")
        return ConvertedManifest({}, {}, ())
    reader = volcano_job.reader(value) if volcano_job.is_one(value) else _JOBS[value["kind"]]
    return reader(value, faults).converted()


def _documents(text: str) -> Iterator[str]:
    """Yield each document with empty lines for those before it, so that its lines keep their numbers."""
    lines = text.splitlines(keepends=True)
    first = next((at for at, line in enumerate(lines) if line.strip() and line[0] not in "#%"), 0)
    begins = [0, *(at for at, line in enumerate(lines) if at > first and _MARKER.match(line))]
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        yield "\n" * begin + "".join(lines[begin:end])


def _peeked(text: str, faults: Faults) -> Any:
    """Return the value of a document, whose faults do not matter yet; None where it is empty."""
    try:
        return document.read(text, Faults(""))
    except SpecError:
        return document.read(text, faults)  # which is raised again, of this file


def _of_list(value: Any, faults: Faults) -> tuple[Any, tuple[str, ...]]:
    """Return the one job of what `kubectl get -o yaml` prints of several objects, or of an object around it; other documents as they are.

    Raises:
        SpecError: there is no job, or more than one.
    """
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str) or _is_job(value):
        return value, ()
    items = value.get(_ITEMS) if value["kind"] == "List" else None
    jobs = [*_jobs_in(value, ())]
    if isinstance(items, tuple):
        jobs = [((_ITEMS, at), item) for at, item in enumerate(items) if _is_job(item)]
    elif not jobs or value["kind"] == "List":
        return value, ()
    if len(jobs) != 1:
        faults.add(*(((_ITEMS,), *_not_one(items)) if items else (("kind",), *_not_one([job for _loc, job in jobs]))))
        raise faults.error()
    ((here, job),) = jobs
    faults.places = {loc[len(here) :]: place for loc, place in faults.places.items() if loc[: len(here)] == here}
    others = [value] if items is None else [item for item in items if item is not job]
    return job, tuple(map(_told, others))


def _jobs_in(value: Any, loc: Loc) -> Iterator[tuple[Loc, dict[str, Any]]]:
    """Yield the jobs within an object, each with its place; one that has a `spec` of its own is meant."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, tuple) else ()
    for step, inside in steps:
        if _is_job(inside) and isinstance(inside.get("spec"), dict):
            yield (*loc, step), inside
        else:
            yield from _jobs_in(inside, (*loc, step))


def is_read(value: Any) -> bool:
    """Return whether an object is a job, a list, or has a job within it."""
    kind = value.get("kind", "List") if isinstance(value, dict) else ""
    return kind == "List" or _is_job(value) or next(_jobs_in(value, ()), None) is not None


def _not_one(objects: Any) -> tuple[str, str]:
    """Return what is wrong with a file that has no job or several, and what to do."""
    jobs = [_told(each) for each in objects if _is_job(each)]
    if jobs:
        return f"the file has {len(jobs)} jobs: {', '.join(jobs)}", "put each job into a file of its own"
    return f"none of the file's objects is {KINDS}: {', '.join(map(_told, objects))}", ""


def _is_job(value: Any) -> bool:
    kind = value.get("kind") if isinstance(value, dict) else None
    return isinstance(kind, str) and (kind in _JOBS or volcano_job.is_one(value))


def _told(value: Any) -> str:
    """Return an object's kind and name."""
    if not isinstance(value, dict):
        return "a document without a kind"
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return (
        plain(" ".join(word for word in (value.get("kind"), name) if isinstance(word, str)))
        or "a document without a kind"
    )
