"""Set-up of the containers that jobs have beside the cluster's own: made anew where they are gone, or the inventory has changed."""

import base64
from collections.abc import Collection, Iterator, Sequence

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError, TacoLaunchError, last_line
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.host.job_containers import VariantRecord
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup.apply.setup_run import SetupResult
from taco_launch.setup.job_containers.prepare import SetupListener, make, set_up_of
from taco_launch.setup.model import job_containers
from taco_launch.setup.model.ops import Stage
from taco_launch.setup.plan.host_plan import HostPlan
from taco_launch.setup.plan.stage_rules import RULES

_SECONDS = 60
_MOST = 1000
# Of each variant that the head knows a line: its key, and its record in base64.
_LIST = """for record in "$1"/*/variant.json; do
  [ -f "$record" ] || continue
  key=${record%/*}
  printf '%s %s\\n' "${key##*/}" "$(base64 <"$record" | tr -d '\\n')"
done"""


@dataclass(frozen=True)
class Upkeep:
    """A variant that is there: what is kept of it, and what is to be done for it on the hosts that have it."""

    record: VariantRecord
    plans: tuple[HostPlan, ...]


def known(head: Transport, cluster: str) -> tuple[VariantRecord, ...]:
    """Return the variants of a cluster by what its head's host keeps.

    Raises:
        HostError: the head does not answer.
    """
    folder = f"{paths.folder(cluster)}/variants"
    result = head.run(Command(("/bin/sh", "-c", _LIST, "list", folder), sudo=True, timeout=_SECONDS))
    if result.exit_code:
        raise HostError(f"{head.name}: its containers cannot be listed: {last_line(result.stderr)}")
    found = []
    for line in result.stdout.decode("ascii", "replace").splitlines()[:_MOST]:
        key, _blank, text = line.partition(" ")
        try:
            record = job_containers.read(base64.b64decode(text))
        except ValueError:
            continue
        if record is not None and job_containers.is_key(key) and record.variant.key == key:
            found.append(record)
    return tuple(found)


class Variants:
    """The variants of a cluster, in one call of set-up."""

    def __init__(
        self,
        inventory: Inventory,
        chosen: Sequence[Host],
        fanout: Fanout,
        stages: Collection[Stage],
        listener: SetupListener,
    ) -> None:
        """Look after those on the `chosen` hosts, where set-up is asked for containers at all."""
        self._inventory, self._chosen, self._fanout, self._listener = inventory, chosen, fanout, listener
        self._wanted = inventory.container is not None and any(RULES[stage].makes_container for stage in stages)

    def look(self, plans: Sequence[HostPlan]) -> tuple[HostPlan, ...]:
        """Return what is to be done for variants; `plans` is what is to be done for the cluster's own containers.

        Where these are to be made, the variants are looked at after that, as `apply` does.
        """
        if any(RULES[op.stage].makes_container for plan in plans for op in plan.ops):
            return ()
        found = self._found([plan.host for plan in plans if not plan.problems])
        return tuple(plan for each in found for plan in each.plans if not plan.empty)

    def apply(self, done: SetupResult) -> tuple[TacoLaunchError, ...]:
        """Make and start what is missing, once set-up has done the rest; return what went wrong."""
        errors: list[TacoLaunchError] = []
        for each in self._found([host.host for host in done.hosts if host.error is None]):
            hosts = {plan.host for plan in each.plans if not plan.empty}
            if not hosts:
                continue
            self._listener.say(f"container for {each.record.variant.told}")
            only, mpirun = self._fanout.only({*hosts, self._inventory.head}), self._inventory.mpirun
            try:
                make(self._inventory, each.record.variant, only, each.record, self._listener, mpirun=mpirun)
            except TacoLaunchError as error:
                errors.append(error)
        return tuple(errors)

    def _found(self, alive: Collection[str]) -> Iterator[Upkeep]:
        head = self._fanout.only((self._inventory.head,)).transports
        if not self._wanted or not head or self._inventory.head not in alive:
            return
        there = {host.name for host in self._chosen} & set(alive)
        for record in known(head[0], self._inventory.cluster):
            hosts = self._fanout.only({*(there & set(record.hosts)), self._inventory.head})
            work = set_up_of(
                self._inventory, record.variant, hosts, record.port, self._listener, self._inventory.mpirun
            )
            work.refresh()
            yield Upkeep(record, tuple(plan for plan in work.plan() if plan.host in there))
