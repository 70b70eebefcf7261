"""The container stage: the training container, made from its definition, and kept up by systemd."""

from collections.abc import Iterator
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.facts import MADE
from taco_launch.core.facts.gpus.blocking_faults import GONE_HINT
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import ContainerState, DockerFacts, HostFacts, SetupState
from taco_launch.core.model.host.hardware import Board, Gpus
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.setup import scripts
from taco_launch.setup.files import gpu_devices, unit
from taco_launch.setup.files.container_definition import Definition, cannot, changes, define, fewer, lost, unread
from taco_launch.setup.model.host_files import differing, with_files
from taco_launch.setup.model.job_containers import keys_of
from taco_launch.setup.model.ops import (
    FileTarget,
    HostFolder,
    Op,
    PlanContext,
    Problem,
    Removal,
    StageRules,
    prove_gpus,
)
from taco_launch.setup.stage_parts import firewall
from taco_launch.setup.stages.ssh_mesh import taken_by_another

_CREATE_SECONDS = 300
_START_SECONDS = unit.DEVICE_SECONDS + 120
_STOP_SECONDS = 180


def plan(host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan the container of one host, and its unit."""
    container = cluster.inventory.container
    if container is None:
        return
    problem = _refuse(container, facts, cluster)
    if problem is not None:
        yield problem
        return
    definition = define(cluster.inventory, container, facts)
    if definition is None:
        yield Problem("container", f"the image {container.image} is not here", "set up the stage image before this one")
        return
    there = _find(facts, paths.container(definition.cluster))
    if there is None and (taken := taken_by_another(host, facts, cluster)) is not None:
        yield replace(taken, stage="container")  # else there would be one that nobody reaches
        return
    gone = lost(definition, there, facts) if there else ()
    if gone:
        yield _gone(paths.container(definition.cluster), gone, facts)
        return
    less = fewer(definition, there) if there else ""
    if less:
        yield Problem("container", f"{paths.container(definition.cluster)}: {less}", _fewer_hint(definition.cluster))
        return
    why = changes(definition, there) if there else "there is no container"
    if why:
        create = _create(definition, there, why, cluster.inventory, container)
        yield create
        facts = create.expect(facts)
    yield from _start(definition, facts)


def _refuse(container: Container, facts: HostFacts, cluster: PlanContext) -> Problem | None:
    """Return why the host can have no training container as things are."""
    name = paths.container(cluster.inventory.cluster)
    if not isinstance(facts.docker, DockerFacts):
        return Problem("container", f"docker cannot list its containers: {facts.docker.reason}")
    if not isinstance(facts.docker.containers, tuple):
        return Problem("container", f"docker does not report which containers it has: {facts.docker.containers.reason}")
    if not isinstance(facts.made, SetupState):
        return Problem("container", f"what set-up made here cannot be determined: {facts.made.reason}")
    there = _find(facts, name)
    if there is not None and dict(there.labels).get(paths.CLUSTER_LABEL) != cluster.inventory.cluster:
        return Problem(
            "container",
            f"a container {name} is there that taco-launch did not make (image {there.image}, {there.state})",
            f"rename that container (docker rename {name} NEW), or rename the cluster (`cluster:` in the inventory)",
        )
    return _without_main(facts, cluster.inventory) or _impossible(name, container, facts)


def _without_main(facts: HostFacts, inventory: Inventory) -> Problem | None:
    """Return why a variant cannot run: it sees the processes of the cluster's own container, which has to be there."""
    own, key = paths.split(inventory.cluster)
    main = _find(facts, paths.container(own))
    if not key or (main is not None and main.state == "running"):
        return None
    why = "is not there" if main is None else f"does not run: it is {main.state}"
    typed = shell(("taco-launch", "-i", inventory.source, "setup"))
    text = (
        f"{paths.container(inventory.cluster)} runs beside the training container {paths.container(own)}, which {why}"
    )
    return Problem("container", text, f"set it up: {typed}")


def _impossible(name: str, container: Container, facts: HostFacts) -> Problem | None:
    """Return why the host can have no such container."""
    lacking = cannot(container, facts)
    if lacking:
        return Problem("container", f"{name}: {lacking}", "leave container.privileged out of the inventory")
    broken = next((name for name, value in container.env if "\n" in value or "\r" in value), None)
    if broken is not None:
        return Problem(
            "container",
            f"{name}: the variable {broken} contains a line break, which docker's --env-file does not support",
            "put the text into a file, and mount that",
        )
    unknown = unread(facts)
    if unknown:
        return Problem("container", f"{name}: {unknown}", "is the driver loaded? see nvidia-smi on the host")
    return None


def _gone(name: str, gone: tuple[str, ...], facts: HostFacts) -> Problem:
    hint = "is the driver loaded? does docker have the NVIDIA container toolkit?"
    board = facts.gpu.board if isinstance(facts.gpu, Gpus) else None
    if not isinstance(board, Board) or not board.gpus:
        hint += " Where they are gone for good, remove the container on the host "
        hint += f"(docker rm --force {name}), then run setup again"
    return Problem("container", f"{name} was made with {', '.join(gone)}, which this host does not show now", hint)


def _fewer_hint(cluster: str) -> str:
    return (
        f"on the host: {GONE_HINT}. To continue without the missing GPUs, when no job runs there: "
        f"docker rm --force {paths.container(cluster)}, then run setup again"
    )


def _find(facts: HostFacts, name: str) -> ContainerState | None:
    return next((container for container in facts.containers if container.name == name), None)


def _create(
    definition: Definition, there: ContainerState | None, why: str, inventory: Inventory, container: Container
) -> Op:
    data = tuple(f"{mode}:{source}" for source, _, mode in container.data)
    name = paths.container(definition.cluster)
    return Op(
        "container",
        f"{'create' if there is None else 'recreate'} {name} from {definition.name}",
        "; ".join((why, *definition.remarks)),
        "".join(map(scripts.text, ("look.sh", "idle.sh", "leases.sh", "create.sh"))),
        (
            name,
            paths.unfinished(definition.cluster),
            paths.unit(definition.cluster),
            definition.cluster,
            paths.folder(definition.cluster),
            paths.state(definition.cluster),
            paths.secrets_file(definition.cluster),
            definition.name,
            inventory.mpirun,
            str(len(data)),
            "\n".join(f"{mode}:{path}" for path, mode in inventory.data_roots),
            *data,
            *definition.argv,
        ),
        definition.files,
        disrupts="nothing" if there is None else "container",
        seconds=_CREATE_SECONDS,
        expect=lambda facts: _created(facts, definition, name),
    )


def _created(facts: HostFacts, definition: Definition, name: str) -> HostFacts:
    made = ContainerState(name, definition.name, "created", tuple(sorted(definition.labels)))
    return _with(facts, made, "inactive")


def _with(facts: HostFacts, container: ContainerState, state: str) -> HostFacts:
    """Return the facts of a host that has this container, and its unit in that state."""
    if not isinstance(facts.docker, DockerFacts) or not isinstance(facts.made, SetupState):
        return facts
    kept = tuple(other for other in facts.containers if other.name != container.name)
    return replace(
        facts,
        docker=replace(facts.docker, containers=(*kept, container)),
        made=replace(facts.made, unit=state),
    )


def _start(definition: Definition, facts: HostFacts) -> Iterator[Op]:
    """Plan what keeps the container up: its files, and that it starts now and at every boot."""
    assert isinstance(facts.made, SetupState)
    name, unit_name = paths.container(definition.cluster), paths.unit(definition.cluster)
    there = _find(facts, name)
    changed = differing(facts, unit.files(definition))
    why: list[str] = []
    if changed:
        why.append(f"to be written: {', '.join(file.path.rpartition('/')[2] for file in changed)}")
    if facts.made.enabled is not True:
        why.append("it does not start at boot")
    if facts.made.unit != "active" or there is None or there.state != "running":
        is_stopped = there is not None and there.state == "exited"
        why.append("the container is stopped" if is_stopped else "the container is not running under this unit")
    if not why:
        return
    unit_file, new = paths.unit_file(definition.cluster), unit.changed_file(definition.cluster)
    stopped = (
        there is not None
        and there.state == "running"
        and any(file.path == unit_file for file in changed)
        and isinstance(facts.docker, DockerFacts)
        and gpu_devices.loses(definition.options, facts.docker)
    )
    if stopped:
        why.append("the container restarts, as it would lose its GPUs when systemd reads the unit")
    yield Op(
        "container",
        f"start {unit_name}",
        "; ".join(why),
        scripts.text("idle.sh") + scripts.text("reload.sh") + scripts.text("start.sh"),
        (name, unit_name, unit_file, new),
        tuple(replace(file, path=new, shown=unit_file) if file.path == unit_file else file for file in changed),
        disrupts="container" if stopped else "nothing",
        seconds=_START_SECONDS,
        expect=lambda facts: _started(facts, definition, changed),
    )


def _started(facts: HostFacts, definition: Definition, changed: tuple[FileTarget, ...]) -> HostFacts:
    there = _find(facts, paths.container(definition.cluster))
    assert there is not None
    facts = with_files(_with(facts, replace(there, state="running"), "active"), changed)
    assert isinstance(facts.made, SetupState)
    return replace(facts, made=replace(facts.made, enabled=True))


def take_back(removal: Removal) -> Iterator[Op]:
    """Plan to remove the container, its unit, its firewall's rules and all folders of the cluster."""
    if not removal.has_cluster:
        return
    own = removal.cluster
    for cluster in (*(paths.variant(own, key) for key in keys_of(removal.facts, own)), own):
        name = paths.container(cluster)
        for op in firewall.taken_back(removal.facts, cluster, "the cluster is being removed from this host"):
            idle = scripts.text("idle.sh") + 'idle "$1"\nshift\n'
            yield replace(op, stage="container", script=idle + op.script, args=(name, *op.args), disrupts="container")
        yield _removed(cluster)


def _removed(cluster: str) -> Op:
    """Remove a container, its unit and its files."""
    name = paths.container(cluster)
    return Op(
        "container",
        f"remove {name}, its unit and {paths.folder(cluster)}",
        "",
        scripts.text("idle.sh") + scripts.text("reload.sh") + scripts.text("teardown.sh"),
        (
            cluster,
            name,
            paths.unfinished(cluster),
            paths.unit(cluster),
            paths.unit_file(cluster),
            paths.folder(cluster),
            paths.host_folder(cluster),
            paths.secrets_file(cluster),
            paths.state(cluster),
        ),
        disrupts="container",
        seconds=_STOP_SECONDS,
    )


def variant_removal(cluster: str, image: str, seconds: int) -> Op:
    """Plan to remove a variant that no job needs, its firewall's rules, and its image where nobody else has that.

    It stays where something runs in it, or it was asked for within `seconds`. `image` is "" for one that is to stay.
    """
    name, key = paths.split(cluster)
    of_firewall, of_container = scripts.text("firewall.sh"), scripts.text("teardown.sh")
    script = (
        scripts.text("reload.sh")
        + scripts.text("variant_removal.sh")
        + f'(\nset -- remove "$7" "$firewall_unit"\n{of_firewall})\n(\n{of_container})\n'
        + '[ -z "$image" ] || docker rmi "$image" >/dev/null 2>&1 || : # another container has it\n'
    )
    removed = _removed(cluster)
    args = (
        f"{paths.state(name)}/jobs/.variants/{key}",
        str(seconds),
        image,
        paths.firewall_unit(cluster),
        *removed.args,
    )
    return replace(removed, script=script, args=args, disrupts="nothing")


def list_mounts(inventory: Inventory) -> Iterator[HostFolder]:
    """Yield the folders of `container.mounts`."""
    for source, _target, mode in inventory.container.mounts if inventory.container else ():
        yield HostFolder("container", source, mode != "ro")


STAGE = StageRules(
    ("network", "docker", "gpu", "rdma", MADE),
    plan,
    after=("image",),
    mounts=list_mounts,
    changes=("network", "docker", MADE),
    prove=(prove_gpus,),
    take_back=take_back,
    gives_gpus=True,
    of_container=True,
    makes_container=True,
)
