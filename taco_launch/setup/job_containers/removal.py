"""Removal of the containers that jobs have beside the cluster's own, once no job needs them."""

import os
from collections.abc import Callable, Iterable

from taco_launch.agent.store.folders import state_folder
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.fanout import Fanout, connect
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.setup.apply.host_ops import SetupEvent, SetupLog, apply
from taco_launch.setup.model import job_containers
from taco_launch.setup.model.job_containers import KnownVariant
from taco_launch.setup.stages.container import variant_removal


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
