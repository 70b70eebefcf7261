"""Removal of the containers that jobs have beside the cluster's own, once no job needs them."""

import os
import time
from collections.abc import Callable, Iterable

from taco_launch.agent.store.folders import state_folder
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.host.job_containers import VariantRecord, VariantUse
from taco_launch.hosts.fanout import Fanout, connect
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.setup.apply.host_ops import SetupEvent, SetupLog, apply
from taco_launch.setup.model import job_containers
from taco_launch.setup.stages.container import variant_removal


@dataclass(frozen=True)
class KnownVariant:
    """A container that jobs brought, as far as the head knows it; without a record it was never finished."""

    use: VariantUse
    record: VariantRecord | None

    def unused(self, now: float) -> float | None:
        """Return for how many seconds no job has needed it, None where one does."""
        if self.use.jobs:
            return None
        return max(0.0, now - (self.use.used or 0.0))


def parse_job_containers(uses: Iterable[VariantUse]) -> tuple[KnownVariant, ...]:
    """Return the variants of a head's answer."""
    found = (KnownVariant(use, job_containers.read(use.record.encode("utf-8", "surrogateescape"))) for use in uses)
    return tuple(each for each in found if job_containers.is_key(each.use.key))


def unneeded(uses: Iterable[VariantUse], seconds: float, now: float | None = None) -> tuple[KnownVariant, ...]:
    """Return those that no job that waits or runs needs, and none has for so many seconds."""
    now = time.time() if now is None else now
    return tuple(
        each for each in parse_job_containers(uses) if (unused := each.unused(now)) is not None and unused >= seconds
    )


def take_back(inventory: Inventory, key: str, fanout: Fanout) -> None:
    """Remove what there is of a variant that could not be made on all of its hosts; what fails goes with a teardown."""
    log = SetupLog(state_folder(os.environ, os.geteuid()) / "teardown" / inventory.cluster, ())
    op = variant_removal(paths.variant(inventory.cluster, key), "", 0)
    fanout.each(lambda host: apply(host, (op,), log, lambda _step: None))


def remove(
    inventory: Inventory,
    access: Credentials,
    gone: Iterable[KnownVariant],
    seconds: float,
    report: Callable[[SetupEvent], None] = lambda _step: None,
) -> tuple[TacoLaunchError, ...]:
    """Remove variants on all hosts: the head first, so that a job that comes meanwhile makes it anew. Give what failed.

    A container in which something runs, or which was asked for within `seconds`, stays.
    """
    gone = tuple(gone)
    if not gone or inventory.container is None:
        return ()
    log = SetupLog(state_folder(os.environ, os.geteuid()) / "teardown" / inventory.cluster, ())
    errors: list[TacoLaunchError] = []
    own_image = inventory.container.image
    with connect(inventory, inventory.hosts, access) as fanout:
        for each in gone:
            image = each.record.variant.image if each.record is not None else ""
            spare = "" if job_containers.same_image(image or own_image, own_image) else image
            op = variant_removal(paths.variant(inventory.cluster, each.use.key), spare, int(seconds))
            head = fanout.only((inventory.head,))
            names = each.record.hosts if each.record is not None else [host.name for host in inventory.hosts]
            others = fanout.only([name for name in names if name != inventory.head])
            for hosts in (head, others):
                answers = hosts.each(lambda host, op=op: apply(host, (op,), log, report))  # type: ignore[misc]
                failed = [answer.error for answer in answers if answer.error is not None]
                errors += failed
                if failed and hosts is head:
                    break
    return tuple(errors)
