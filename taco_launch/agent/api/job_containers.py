"""The calls `variant` and `variants`: what set-up has prepared of containers beside the cluster's own, and who needs them."""

import contextlib
import os
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Set, Type

from taco_launch.agent.host import containers
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import Jobs, make_private
from taco_launch.agent.upkeep import recovery
from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.protocol.calls import Notice, Reply, Request
from taco_launch.core.protocol.calls.job_containers import FindVariant, GetVariants, VariantReply

_MOST_BYTES = 1 << 20
_MOST = 4096


def _find(jobs: Jobs, _agent: str, request: FindVariant) -> Iterator[Reply]:
    if not containers.is_key(request.key):
        return
    used = _used(jobs) / request.key
    with contextlib.suppress(OSError):
        make_private(used.parent)
        os.close(untrusted.open_regular(used, os.O_WRONLY | os.O_CREAT))
        os.utime(used)
    yield _reply(jobs, request.key)


def _all(jobs: Jobs, _agent: str, _request: GetVariants) -> Iterator[Reply]:
    keys: Set[str] = set()
    with contextlib.suppress(OSError, HostError):
        keys.update(filter(containers.is_key, os.listdir(containers.variants_folder())[:_MOST]))
    needed: Dict[str, List[str]] = {}
    ended: Dict[str, float] = {}
    for folder in jobs.all():
        try:
            key = containers.of(records.read_spec(folder))
            record = recovery.current_record(folder) if key else None
        except TacoLaunchError as error:
            yield Notice(text=error.message)
            continue
        if record is not None and not record.state.is_terminal:
            needed.setdefault(key, []).append(folder.name)
        elif record is not None:
            ended[key] = max(ended.get(key, 0.0), record.ended or 0.0)
    for key in sorted(keys | needed.keys()):
        reply = _reply(jobs, key)
        times = [time for time in (reply.used, ended.get(key)) if time]
        yield reply.replace(used=max(times, default=None), jobs=needed.get(key, []))


def _reply(jobs: Jobs, key: str) -> VariantReply:
    record, used = "", None
    with contextlib.suppress(OSError, HostError):
        path = containers.variants_folder() / key / "variant.json"
        record = untrusted.read(path, _MOST_BYTES).decode("utf-8", "replace")
    with contextlib.suppress(OSError):
        used = (_used(jobs) / key).stat().st_mtime
    return VariantReply(key=key, record=record, used=used)


def _used(jobs: Jobs) -> Path:
    """Return the folder of a file for each variant, whose time is when it was last asked for."""
    return jobs.path / ".variants"


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {FindVariant: _find, GetVariants: _all}
