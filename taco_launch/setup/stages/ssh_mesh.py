"""SSH between the containers of a cluster: an sshd in each, on the cluster's address, and keys that all know beforehand.

Keys are made on the hosts, and only known afterwards: the stage is planned again after it has changed something, until
there is nothing left to do. ~/.ssh is neither read nor written.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from taco_launch.core.command import shell
from taco_launch.core.facts import MADE
from taco_launch.core.facts.network.interface import Carrier, carrier
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Found, Unknown, known_value
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, Listener, NetworkFacts, SetupState
from taco_launch.core.model.host.hosts import Container, Host
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.setup import scripts
from taco_launch.setup.files import ssh_files
from taco_launch.setup.files.ssh_files import Member, public_key
from taco_launch.setup.model.host_files import differing, files_of, unread, with_files
from taco_launch.setup.model.ops import FileTarget, Op, PlanContext, Problem, ProofFailure, StageRules, StageRun
from taco_launch.setup.stage_parts import firewall

_STAGE: Final = "ssh_mesh"


def plan(host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Make this host a member: its keys, the files that name all members, the settings of its sshd, its firewall."""
    container = cluster.inventory.container
    if container is None:
        return
    if files_of(facts) is None or not isinstance(facts.made, SetupState):
        yield unread(facts, _STAGE)
        return
    own = address(host, facts, cluster.inventory.network.interface)
    if isinstance(own, Unknown):
        yield Problem(
            _STAGE,
            f"the address for the container's sshd is not known: {own.reason}",
            "name the interface between the hosts in the inventory: network: {interface: bond0}",
        )
        return
    taken = taken_by_another(host, facts, cluster) or _taken(facts, own, container, cluster.inventory.cluster)
    if taken is not None:
        yield taken
        return
    name = paths.container(cluster.inventory.cluster)
    if isinstance(facts.docker, DockerFacts) and not any(each.name == name for each in facts.containers):
        yield Problem(
            _STAGE, "there is no training container on this host", "create it: taco-launch setup, without --only"
        )
        return
    known = cluster.once("members", lambda: members(cluster))
    yield from _keys(host, facts.made, cluster)
    yield from _files(host, facts, cluster, container, known)
    yield from _sshd(facts, cluster.inventory.cluster, own, container.ssh_port)
    yield from firewall.plan(facts, cluster, own, known)


def address(host: Host, facts: HostFacts, wanted: str) -> str | Unknown:
    """Return the address at which the other hosts reach this one's container: of `wanted`, or of the interface by facts.

    An interface of several addresses has that of the inventory, where that is one of them, else its first.
    """
    by = carrier(facts.network, None if wanted == "auto" else wanted)
    if not isinstance(by, Carrier):
        return Unknown(by.reason)
    interfaces = facts.network.interfaces if isinstance(facts.network, NetworkFacts) else ()
    on_it = [
        one.address.partition("/")[0]
        for interface in (interfaces if isinstance(interfaces, tuple) else ())
        if interface.name == by.name
        for one in interface.addresses
        if one.scope == "global"
    ]
    if host.address in on_it:
        return host.address
    if by.address is not None:
        return by.address.partition("/")[0]
    return on_it[0] if on_it else Unknown(f"{by.name} ({by.why}) has no address")


def members(cluster: PlanContext) -> tuple[Member, ...]:
    """Return all hosts of the inventory as far as they are known; of one that does not answer, what was known before."""
    before = ssh_files.parse_known_hosts(cluster.known_hosts)
    keys = {name: public_key(key) or "" for name, key in cluster.host_keys}
    found = []
    for host in cluster.inventory.hosts:
        old = before.get(host.name, Member(host.name, host.address))
        facts = cluster.facts.get(host.name)
        now = address(host, facts, cluster.inventory.network.interface) if facts is not None else old.address
        found.append(
            Member(host.name, now if isinstance(now, str) else old.address, keys.get(host.name) or old.key),
        )
    return tuple(found)


def unaware(cluster: PlanContext) -> tuple[str, ...]:
    """Name the hosts that are in the mesh already and whose files do not name all members as they are now."""
    inventory, known = cluster.inventory, members(cluster)
    port = inventory.container.ssh_port if inventory.container else 0
    return tuple(
        host.name
        for host in inventory.hosts
        if host.name in cluster.facts
        and paths.sshd_config(inventory.cluster) in (files_of(cluster.facts[host.name]) or {})
        and differing(cluster.facts[host.name], _naming(host, cluster.facts[host.name], inventory.cluster, port, known))
    )


def taken_by_another(host: Host, facts: HostFacts, cluster: PlanContext) -> Problem | None:
    """Return that the port of the container's sshd is that of another cluster's, where ours does not run."""
    container, name = cluster.inventory.container, cluster.inventory.cluster
    own = address(host, facts, cluster.inventory.network.interface)
    others = _others(facts, name)
    if container is None or isinstance(own, Unknown) or not others or _runs(facts, name):
        return None
    listener = _listener(facts, own, container.ssh_port)
    if listener is None or not (listener.process or "sshd").startswith("sshd"):
        return None
    return Problem(
        _STAGE,
        f"port {container.ssh_port}, for the container's sshd, is taken: {' or '.join(others)} listens on "
        f"{listener.address}:{listener.port}",
        f"use another port: container: {{ssh_port: {container.ssh_port + 1}}} in the inventory; or remove "
        f"that cluster from this host, with its own inventory: taco-launch -i INVENTORY teardown -H {host.name}",
        stops="host",
    )


def _taken(facts: HostFacts, own: str, container: Container, cluster: str) -> Problem | None:
    """Return whose the port is, where it is not free and not ours."""
    listener = _listener(facts, own, container.ssh_port)
    is_set_up = paths.sshd_config(cluster) in (files_of(facts) or {})
    ours = _runs(facts, cluster) and is_set_up
    # our sshd listens on this address alone
    if listener is None or (ours and listener.address == own and (listener.process or "sshd").startswith("sshd")):
        return None
    return Problem(
        _STAGE,
        f"port {container.ssh_port}, for the container's sshd, is taken: {listener.process or 'a process'} listens on "
        f"{listener.address}:{listener.port}",
        f"end it (ss -ltnp shows the process), or use another port: container: {{ssh_port: {container.ssh_port + 1}}}",
        stops="cluster" if is_set_up else "host",  # hosts with different ports do not reach each other
    )


def _listener(facts: HostFacts, own: str, port: int) -> Listener | None:
    """Return who listens on this address, or on all."""
    everywhere = (own, "0.0.0.0", "::", "*")  # noqa: S104 - what ss shows
    return next((one for one in _listeners(facts) or () if one.port == port and one.address in everywhere), None)


def _listeners(facts: HostFacts) -> tuple[Listener, ...] | None:
    network = known_value(facts.network)
    return None if network is None else known_value(network.listeners)


def _runs(facts: HostFacts, cluster: str) -> bool:
    return any(each.name == paths.container(cluster) and each.state == "running" for each in facts.containers)


def _others(facts: HostFacts, cluster: str) -> list[str]:
    """Name the training containers of other clusters that run here."""
    running = (each for each in facts.containers if each.state == "running")
    told = [(each.name, dict(each.labels).get(paths.CLUSTER_LABEL, cluster)) for each in running]
    return [f"the training container of cluster {other} ({name})" for name, other in told if other != cluster]


def _keys(host: Host, made: SetupState, cluster: PlanContext) -> Iterator[Op | Problem]:
    inventory = cluster.inventory
    name = inventory.cluster
    if not _has_pair(made, paths.host_key(name), made.host_key):
        script, args = scripts.text("keygen.sh"), (paths.host_key(name), f"{host.name} of {name}")
        yield Op(_STAGE, "container's sshd: make its host key", "it has none", script, args)
    pair = cluster.cluster_key
    is_old = pair is not None and public_key(pair[1]) == cluster.retired
    if is_old:
        script, where = scripts.text("idle.sh") + 'idle "$1"\n', paths.container(name)
        yield Op(_STAGE, "cluster's key: check that no job runs", "--rotate-keys", script, (where,), idle=where)
    if host.name == inventory.head:
        if is_old or not _has_pair(made, paths.key(name), made.cluster_key):
            script, args = scripts.text("keygen.sh"), (paths.key(name), f"taco-launch {name}")
            what, why = ("make a new one", "--rotate-keys") if is_old else ("make it", "it does not exist on the head")
            yield Op(_STAGE, f"cluster's key: {what}", why, script, args)
    elif cluster.cluster_key is None and not cluster.with_head:
        silent = inventory.head not in cluster.facts
        if silent and public_key(made.cluster_key) is not None:
            return  # it has the key, as far as anybody knows
        if silent:
            why, hint = (
                "did not answer or was left out of this run",
                f"run setup again with the head included and reachable, or name another head in the inventory: head: {host.name}",
            )
        else:
            typed = shell(("taco-launch", "-i", inventory.source, "setup", "-H", inventory.head))
            why, hint = "is not set up", f"set the head up first: {typed}"
        yield Problem(_STAGE, f"the cluster's key is made on the head, {inventory.head}, which {why}", hint)


def _has_pair(state: SetupState, private: str, public: Found[str]) -> bool:
    """Return whether both halves of a key are there: a private half that was removed leaves the public one."""
    files = state.files if isinstance(state.files, tuple) else ()
    return public_key(public) is not None and any(file.path == private for file in files)


def _files(
    host: Host, facts: HostFacts, cluster: PlanContext, container: Container, known: tuple[Member, ...]
) -> Iterator[Op]:
    """Write what differs of the files that name all members, and of the cluster's key."""
    name = cluster.inventory.cluster
    wanted = _naming(host, facts, name, container.ssh_port, known)
    pair = cluster.cluster_key
    own_key = facts.made.cluster_key if isinstance(facts.made, SetupState) else None
    public = public_key(pair[1] if pair else own_key)
    if public is not None:
        wanted.append(_text(paths.authorized_keys(name), ssh_files.authorized_keys(public), 0o600))
    missing = differing(facts, wanted)
    if missing:
        told = ", ".join(file.path.rpartition("/")[2] for file in missing)
        why = f"they name the inventory's host{'s' if len(known) > 1 else ''}: {len(known)}"
        yield _written(f"ssh files: write {told}", why, missing)
    if pair is not None and host.name != cluster.inventory.head:
        halves = (
            FileTarget(paths.key(name), pair[0], 0o600, secret=True),
            _text(f"{paths.key(name)}.pub", pair[1], 0o600),
        )
        missing = differing(facts, halves)
        if missing:
            is_there = paths.key(name) in (files_of(facts) or {})
            why = f"{cluster.inventory.head} has a different key" if is_there else "it does not exist there"
            yield _written("cluster's key: copy it", why, missing)


def _naming(host: Host, facts: HostFacts, cluster: str, port: int, known: tuple[Member, ...]) -> list[FileTarget]:
    """Return the files that name all members, as they are to be."""
    system, made = known_value(facts.system), known_value(facts.made)
    hostname = None if system is None else known_value(system.hostname)
    theirs = "" if made is None else known_value(made.hosts) or ""
    wanted = [
        _text(paths.hosts(cluster), ssh_files.hosts_file(known, host.name, hostname, theirs), in_place=True),
        _text(paths.ssh_config(cluster), ssh_files.ssh_config(cluster, known, port), in_place=True),
    ]
    if any(member.key for member in known):
        wanted.append(_text(paths.known_hosts(cluster), ssh_files.known_hosts(known, port)))
    return wanted


def _sshd(facts: HostFacts, cluster: str, own: str, port: int) -> Iterator[Op]:
    """Write what differs of the sshd's own settings, and have it take them; nothing else calls for that."""
    session = FileTarget(paths.session_script(cluster), scripts.text("session.sh").encode(), 0o755)
    missing = differing(facts, (session,))
    if missing:
        yield _written("container's sshd: write session.sh", "it gives sessions the image's environment", missing)
    settings = _text(paths.sshd_config(cluster), ssh_files.sshd_config(cluster, own, port), 0o600)
    missing = differing(facts, (settings,))
    new_key = isinstance(facts.made, SetupState) and not _has_pair(
        facts.made, paths.host_key(cluster), facts.made.host_key
    )
    if missing:
        name, why = "container's sshd: write its settings", f"it must listen on {own}:{port} and accept only keys"
    elif new_key:
        name, why = "container's sshd: load the new host key", "it still uses the previous key"
    elif _listeners(facts) is not None and _listener(facts, own, port) is None:
        name, why = "container's sshd: start it", f"nothing listens on {own}:{port}"
    else:
        return
    args = (paths.container(cluster), settings.path, paths.SSHD_PID)
    yield Op(
        _STAGE,
        name,
        why,
        scripts.text("sshd.sh"),
        args,
        missing,
        expect=lambda facts: _listens(facts, settings, own, port),
    )


def _text(path: str, text: str, mode: int = 0o644, *, in_place: bool = False) -> FileTarget:
    return FileTarget(path, text.encode(), mode, in_place=in_place)


def _written(name: str, why: str, files: tuple[FileTarget, ...]) -> Op:
    return Op(_STAGE, name, why, files=files, expect=lambda facts: with_files(facts, files))


def _listens(facts: HostFacts, settings: FileTarget, own: str, port: int) -> HostFacts:
    facts = with_files(facts, (settings,))
    network, listeners = known_value(facts.network), _listeners(facts)
    if network is None or listeners is None or _listener(facts, own, port) is not None:
        return facts
    listeners = (*listeners, Listener(own, port, "sshd"))
    return replace(facts, network=replace(network, listeners=listeners))


def prove_known(run: StageRun) -> tuple[ProofFailure, ...]:
    """Return which hosts that are not set up by this call have yet to be told of those that are."""
    if not run.is_applied or not run.hosts:
        return ()
    hosts = tuple(name for name in unaware(run.cluster) if name not in run.chosen)
    if not hosts:
        return ()
    typed = shell(("taco-launch", "-i", run.cluster.inventory.source, "setup", "--only", _STAGE))
    evidence = f"only {fold(run.chosen)} {'was' if len(run.chosen) == 1 else 'were'} set up"
    return (ProofFailure(hosts, "has an outdated host list", evidence, typed, is_fault=False),)


STAGE = StageRules(
    ("network", "docker", MADE),
    plan,
    after=("container",),
    changes=("network", "docker", MADE),
    prove=(prove_known,),
    of_container=True,
    has_key=True,
)
