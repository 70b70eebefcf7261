"""Tables of the containers that jobs have beside the cluster's own: `image list`, `top node -o wide`, `prune`."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import render
from taco_launch.core.model.job_view import age
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.setup.model.job_containers import KnownVariant, parse_job_containers, unneeded


def rows(settings: Settings, access: Credentials) -> list[dict[str, Any]]:
    """Return what is known of each container; none without an inventory that has containers."""
    if settings.source is None or settings.load().container is None:
        return []
    return [_row(each) for each in parse_job_containers(settings.cluster(access).variants())]


def prune(settings: Settings, access: Credentials, unused: float, *, dry_run: bool) -> list[dict[str, Any]]:
    """Remove the containers that no job has needed for so many seconds; return them, without those that stay."""
    if settings.source is None or settings.load().container is None:
        return []
    gone = unneeded(settings.cluster(access).variants(), unused, time.time())
    if dry_run or not gone:
        return [_row(each) for each in gone]
    from taco_launch.setup.job_containers import removal  # noqa: PLC0415 - `list` and `get` need nothing that changes hosts

    errors = removal.remove(settings.load(), access, gone, unused)
    for error in errors:
        render.error(error.message, error.hint)
    return [] if errors else [_row(each) for each in gone]


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of them."""
    now = time.time()
    lines = [
        (
            each["key"],
            each["image"] or "inventory's",
            ",".join(each["hosts"]),
            "in use" if each["jobs"] else age(now - each["used"]) if each["used"] else "never",
            ",".join(each["jobs"]) or "-",
            each["data"] or "-",
        )
        for each in found
    ]
    return render.columns(("CONTAINER", "IMAGE", "HOSTS", "UNUSED", "JOBS", "DATA"), lines)


def _row(each: KnownVariant) -> dict[str, Any]:
    record = each.record
    variant = None if record is None else record.variant
    mounts = () if variant is None else (*variant.mounts, *variant.data)
    return {
        "key": each.use.key,
        "image": "" if variant is None else variant.image,
        "hosts": [] if record is None else list(record.hosts),
        "port": None if record is None else record.port,
        "used": each.use.used,
        "jobs": list(each.use.jobs),
        "data": " ".join(f"{source}:{inside}{':ro' if mode == 'ro' else ''}" for source, inside, mode in mounts),
        "told": "never finished" if variant is None else variant.told,
    }
