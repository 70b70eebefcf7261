"""A request over another one: options of the command line go before what a job file says."""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from taco_launch.core.launch import knobs
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import Restart

_OF_WORKERS = ("workers", "gpus", "slots_per_worker")
# Where one of these is requested, what is below says nothing of the others.
_EITHER = (
    (("np",), ("hosts", "slots_per_host", *_OF_WORKERS, "line_np")),
    (("hosts", "slots_per_host"), ("np", *_OF_WORKERS)),
    (_OF_WORKERS, ("np", "hosts", "slots_per_host")),
    (("gpus",), ("slots_per_worker",)),
    (("slots_per_worker",), ("gpus",)),
    (("no_wait",), ("queue_timeout", "suspend")),
)
_PAIR = frozenset(("np", "slots_per_host"))
_PUT_TOGETHER = ("env", "knobs", "mca")
# All of both are asked for, those of `below` first: a later file goes before an earlier one.
_ONE_BEHIND_THE_OTHER = ("config_files", "env_files")


def over(below: JobRequest, above: JobRequest) -> JobRequest:
    """Return what both ask for together: `above` decides where both say something; variables are put together."""
    told = _given_fields(above)
    kept = _given_fields(below) - told
    # A number of ranks and the most on each host are one size: one of them may be replaced alone.
    both = _given_fields(below) >= _PAIR and not told & {"hosts", *_OF_WORKERS}
    for given, others in _EITHER:
        if told & set(given):
            kept -= set(others) - (_PAIR if both else frozenset())
    if "suspend" in told and below.queue_timeout == 0:
        kept.discard("queue_timeout")
    if above.restart is Restart.NEVER:
        kept -= {"backoff_limit", "backoff"}
    elif above.backoff_limit and below.restart is Restart.NEVER:
        kept.discard("restart")
    values: dict[str, Any] = {name: getattr(below, name) for name in kept}
    named = {_known_as(name) for key in _PUT_TOGETHER for name, _value in getattr(above, key)}
    for key in _PUT_TOGETHER:
        values[key] = (*_others(getattr(below, key), named), *getattr(above, key))
    for key in _ONE_BEHIND_THE_OTHER:
        values[key] = (*getattr(below, key), *getattr(above, key))
    written = {name: place for name, place in below.written.items() if name not in told}
    return replace(above, **values, source=below.source, written={**written, **above.written})


def _given_fields(request: JobRequest) -> set[str]:
    """Return the fields that say something."""
    of_itself = {"source", "written", *_PUT_TOGETHER, *_ONE_BEHIND_THE_OTHER}
    return {
        each.name
        for each in fields(request)
        if each.name not in of_itself
        and (value := getattr(request, each.name)) is not None
        and value != ()
        and (value is not False or each.default is None)
    }


def _others(pairs: Iterable[tuple[str, Any]], named: set[str]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in pairs if _known_as(name) not in named]


def _known_as(name: str) -> str:
    """Return the one name that all aliases of a knob share."""
    knob = knobs.find(name)
    return knob.name if knob else name
