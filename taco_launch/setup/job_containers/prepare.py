"""A job's container, where it is not the inventory's own: found on its hosts, or made by set-up's own stages."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError, last_line
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.core.model.host.image_reference import parse_reference
from taco_launch.core.model.host.job_containers import Variant, VariantRecord, VariantUse
from taco_launch.core.model.jobs import JobSpec, Profile
from taco_launch.core.model.launchers import launcher_of
from taco_launch.hosts.fanout import Fanout, connect
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup import scripts
from taco_launch.setup.apply import image_source, sources
from taco_launch.setup.apply.host_ops import SetupEvent
from taco_launch.setup.apply.setup_run import Setup, SetupRequest, refused
from taco_launch.setup.job_containers import removal
from taco_launch.setup.job_containers.build import is_built_here
from taco_launch.setup.model import job_containers
from taco_launch.setup.model.job_containers import ports
from taco_launch.setup.plan.host_plan import HostPlan
from taco_launch.setup.plan.stage_rules import RULES

# What a variant shares with the cluster's own container, set-up has made with that.
STAGES = tuple(name for name, stage in RULES.items() if stage.of_container)
# How the source of an image is told that nobody has named: see `_identified`.
AUTO = "auto"
# Any program that every image has: without MPI, nothing is to be looked for in the image.
_NO_MPI = "sh"
# What set-up hints at where a disk is full (setup/stages/image.py).
_NO_SPACE = "free some space"
# Where space is short, what nobody has asked for so long makes room.
_SPARE_SECONDS = 600.0


class NoSpaceError(HostError):
    """A host has no room for the image."""


@dataclass(frozen=True)
class SetupListener:
    """Functions that a set-up of hosts calls, one call at a time."""

    # A step on a host starts, waits, reports how far it is, or has ended.
    step: Callable[[SetupEvent], None] = lambda _step: None
    # What is proved or read now.
    proof: Callable[[str], None] = lambda _what: None
    # What the user should know, such as a job that is in the way, in a sentence.
    say: Callable[[str], None] = lambda _what: None


def wanted(spec: JobSpec, inventory: Inventory) -> Variant:
    """Return which variant a job runs in, as far as it is known without this machine's engine; Variant() for none."""
    have, base = spec.container, inventory.container
    if have is None or base is None or not have.variant:
        return Variant()
    mounts = tuple(mount for mount in have.mounts if mount not in base.mounts)
    asked = Variant(have.image, have.source, mounts=mounts, data=have.data, shm_size=have.shm_size)
    return job_containers.variant_of(asked, base)


def in_variant(spec: JobSpec, inventory: Inventory, variant: Variant, port: int) -> JobSpec:
    """Return a job as it runs in a variant; `port` is of its sshd."""
    assert inventory.container is not None
    made = job_containers.container_of(inventory.container, variant, port)
    return replace(spec, container=made)


def prepare(
    spec: JobSpec,
    inventory: Inventory,
    access: Credentials,
    find: Callable[[str], str],
    listener: SetupListener,
    uses: Callable[[], Iterable[VariantUse]] = tuple,
) -> JobSpec:
    """Return a job whose container is there on all of its hosts; one that is not is made first.

    `find(key)` asks the head for its record of a variant, "" for none, and has it noted as used. A host that cannot be
    reached is left out of the job. `uses` tells which variants there are: where a disk is full, unneeded ones make room.

    Raises:
        HostError: the head cannot be reached, or the container cannot be made on a host.
        UsageError: the image is said to come from this machine, which has none of that name.
    """
    variant = _identified(wanted(spec, inventory), inventory, listener)
    if not variant.key:
        return spec
    known = job_containers.read(find(variant.key).encode("utf-8", "surrogateescape"))
    names = _hosts(spec, inventory)
    if known is not None and set(names) <= set(known.hosts):
        return in_variant(spec, inventory, variant, known.port)
    listener.say(f"preparing a container for {variant.told} on {fold(names)}")
    hosts = tuple(host for host in inventory.hosts if host.name in names)
    with connect(inventory, hosts, access) as fanout:
        try:
            record, failed = make(inventory, variant, fanout, known, listener, mpirun=_mpirun(spec, inventory))
        except NoSpaceError:
            spare = job_containers.unneeded(uses(), _SPARE_SECONDS, time.time())
            if not spare or removal.remove(inventory, access, spare, _SPARE_SECONDS):
                raise
            listener.say(f"removed {len(spare)} containers that no job needs, to make room")
            record, failed = make(inventory, variant, fanout, known, listener, mpirun=_mpirun(spec, inventory))
    for name, error in failed.items():
        listener.say(f"warning: {name} is left out of the job: {error.message}")
    find(variant.key)  # it is used from now on
    left = tuple(host for host in spec.hosts if host.name not in failed)
    return in_variant(replace(spec, hosts=left), inventory, variant, record.port)


def make(
    inventory: Inventory,
    variant: Variant,
    fanout: Fanout,
    known: VariantRecord | None,
    listener: SetupListener,
    *,
    mpirun: str,
) -> tuple[VariantRecord, Mapping[str, TacoLaunchError]]:
    """Make a variant on the hosts of `fanout`, the head among them; give its record, and which hosts cannot be reached.

    Raises:
        HostError: it cannot be made on a host, or the head cannot be reached.
    """
    work, port = _set_up(inventory, variant, fanout, known, listener, mpirun)
    try:
        return _made(inventory, variant, fanout, known, work, port)
    except HostError:
        if known is None:  # nobody would know of the half that is there
            removal.take_back(inventory, variant.key, fanout)
        raise


def _made(
    inventory: Inventory, variant: Variant, fanout: Fanout, known: VariantRecord | None, work: Setup, port: int
) -> tuple[VariantRecord, Mapping[str, TacoLaunchError]]:
    names = [transport.name for transport in fanout.transports]
    work.refresh()
    unreachable = dict(work.failed)
    if inventory.head in unreachable:
        raise unreachable[inventory.head]
    problems = [plan for plan in work.plan() if plan.problems]
    if any(problem.hint.startswith(_NO_SPACE) for plan in problems for problem in plan.problems):
        raise NoSpaceError(*_told([refused(plan) for plan in problems]))
    if problems:
        raise _all([refused(plan) for plan in problems])
    done = work.apply()
    errors = [host.error for host in done.hosts if host.error is not None and host.host not in unreachable]
    if errors:
        raise _all(errors)
    if done.found:
        raise HostError("; ".join(map(str, done.found)))
    there = [name for name in names if name not in unreachable]
    hosts = tuple(dict.fromkeys((*(known.hosts if known is not None else ()), *there)))
    facts = {each.host: each for each in work.facts}
    image = variant.image or (inventory.container.image if inventory.container else "")
    record = VariantRecord(variant, port, hosts, job_containers.images_of(image, facts, there))
    key = paths.variant(inventory.cluster, variant.key)
    (head,) = fanout.only((inventory.head,)).transports
    head.put(job_containers.written(record), paths.variant_record(key), 0o644, sudo=True)
    return record, unreachable


def plan(
    spec: JobSpec, inventory: Inventory, access: Credentials, find: Callable[[str], str], listener: SetupListener
) -> tuple[JobSpec, tuple[HostPlan, ...]]:
    """Return a job as it would be, and what would be prepared for it; nothing is changed.

    The port is the first of those that it may be, where there is no container yet.
    """
    variant = _identified(wanted(spec, inventory), inventory, listener)
    if not variant.key:
        return spec, ()
    assert inventory.container is not None
    known = job_containers.read(find(variant.key).encode("utf-8", "surrogateescape"))
    names = _hosts(spec, inventory)
    if known is not None and set(names) <= set(known.hosts):
        return in_variant(spec, inventory, variant, known.port), ()
    hosts = tuple(host for host in inventory.hosts if host.name in names)
    port = known.port if known is not None else job_containers.ports(inventory.container)[0]
    with connect(inventory, hosts, access) as fanout:
        work = set_up_of(inventory, variant, fanout, port, listener, _mpirun(spec, inventory))
        work.refresh()
        return in_variant(spec, inventory, variant, port), work.plan()


def _set_up(
    inventory: Inventory,
    variant: Variant,
    fanout: Fanout,
    known: VariantRecord | None,
    listener: SetupListener,
    mpirun: str,
) -> tuple[Setup, int]:
    assert inventory.container is not None
    key = paths.variant(inventory.cluster, variant.key)
    port = lease(key, inventory.container, fanout, inventory.head, 0 if known is None else known.port)
    return set_up_of(inventory, variant, fanout, port, listener, mpirun), port


def set_up_of(
    inventory: Inventory, variant: Variant, fanout: Fanout, port: int, listener: SetupListener, mpirun: str
) -> Setup:
    """Return the set-up of a variant on the hosts of `fanout`; `mpirun` is what its image has to have."""
    names = {transport.name for transport in fanout.transports}
    chosen: list[Host] = [host for host in inventory.hosts if host.name in names]
    ask = SetupRequest(Profile(), STAGES, registry_password=os.environ.get(sources.VARIABLE))
    wanted_ = replace(job_containers.inventory_of(inventory, variant, port), mpirun=mpirun)
    return Setup(wanted_, chosen, fanout, ask, listener.step, listener.proof)


def _hosts(spec: JobSpec, inventory: Inventory) -> tuple[str, ...]:
    """Return the hosts that have to have a job's container: its own, and the head, where its supervisor is."""
    own = {host.name for host in spec.hosts} | {inventory.head}
    return tuple(host.name for host in inventory.hosts if host.name in own)


def _mpirun(spec: JobSpec, inventory: Inventory) -> str:
    return inventory.mpirun if launcher_of(spec).is_single else _NO_MPI


def _identified(variant: Variant, inventory: Inventory, listener: SetupListener) -> Variant:
    """Return a variant with where its image comes from, which nobody may have said, and which build of it this machine has.

    Raises:
        UsageError: it has none.
    """
    base = inventory.container
    if not variant.image or base is None:
        return variant
    if variant.source == AUTO:
        built = is_built_here(variant.image)
        if built:
            listener.say(f"{variant.image} was built on this machine: hosts get it from here")
        usual = base.source if base.source == "controller" else "registry"
        variant = replace(variant, source="controller" if built else usual)
    if variant.source == "registry":
        return variant
    given = image_source.image_on_controller(job_containers.container_of(base, variant))
    if isinstance(given, str):
        raise UsageError(
            f"{variant.image}: {given}",
            hint=f"build it: taco-launch image build -t {parse_reference(variant.image).name}",
        )
    return replace(variant, identity=min(given.ids, default=""))


def _all(errors: Sequence[TacoLaunchError]) -> HostError:
    """Return the errors of several hosts as one."""
    return HostError(*_told(errors))


def _told(errors: Sequence[TacoLaunchError]) -> tuple[str, str | None]:
    hint = next((error.hint for error in errors if error.hint), None)
    return "\n".join(dict.fromkeys(error.message for error in errors)), hint


_SECONDS = 60
_TRIES = 20


def lease(cluster: str, container: Container, hosts: Fanout, head: str, own: int = 0) -> int:
    """Lease a port for the sshd of a variant, which is called `cluster`; `own` is the one that it has, 0 for none.

    `container` is the inventory's. Hosts that do not answer are passed over.

    Raises:
        HostError: the head does not answer, or all ports are taken.
    """
    first, last = ports(container)
    refused: set[int] = set()
    for _try in range(_TRIES):
        port = _ask(hosts.only((head,)).transports[0], cluster, first, last, own, refused) or 0
        if not port and own:
            own = 0
            continue
        if not port:
            break
        answers = hosts.each(lambda host, wanted=port: _ask(host, cluster, first, last, wanted))  # type: ignore[misc]
        if all(answer.value is not None or answer.error is not None for answer in answers):
            return port
        refused.add(port)
        own = 0
    raise HostError(
        f"no port from {first} to {last} is free on all hosts, for the sshd of another container",
        hint="set another port range in the inventory: container: {variant_ports: FIRST-LAST}; or remove containers that no job "
        "needs: taco-launch prune --older-than 30d --unused 1h",
    )


def _ask(
    host: Transport, cluster: str, first: int, last: int, wanted: int, refused: set[int] | None = None
) -> int | None:
    """Lease a port on one host; None where it is taken.

    Raises:
        HostError: the lease fails.
    """
    words = (cluster, first, last, wanted, *sorted(refused or ()))
    argv = ("/bin/sh", "-c", scripts.text("variant_port.sh"), "variant_port", *map(str, words))
    result = host.run(Command(argv, sudo=True, timeout=_SECONDS))
    said = result.stdout.decode("ascii", "replace").split()
    if result.exit_code or said[:1] not in (["port"], ["taken"]):
        raise HostError(f"{host.name}: a port cannot be leased: {last_line(result.stderr or result.stdout)}")
    return int(said[1]) if said[0] == "port" and len(said) == 2 and said[1].isdigit() else None
