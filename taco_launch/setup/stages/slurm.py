"""The slurm stage: Slurm on all hosts of the inventory, of the distribution's packages; slurmctld runs on the head.

munge's key is the head's, which is known only once it exists there: the stage is planned again after it has changed something.
"""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Final

from taco_launch.core.command import Command, shell
from taco_launch.core.errors import HostError, last_line
from taco_launch.core.facts import MADE
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import known_value
from taco_launch.core.model.host.facts import HostFacts, Os, SetupState, System
from taco_launch.core.model.host.hosts import Host
from taco_launch.setup import scripts
from taco_launch.setup.files.slurm_conf import configuration
from taco_launch.setup.model.host_files import differing, files_of, unread, with_files, without
from taco_launch.setup.model.ops import (
    FileTarget,
    Op,
    PlanContext,
    Problem,
    ProofFailure,
    Removal,
    StageRules,
    StageRun,
)
from taco_launch.setup.stages.ssh_mesh import address

_STAGE: Final = "slurm"
# The first release of a distribution that has Slurm 22.05, which knows control groups of version 2.
_OLDEST = {"debian": (12,), "ubuntu": (24, 4)}
_INSTALL = 'finish_dpkg\nupdate\ninstall "$@"\n'
_RUNS = "enabled active"
# By it slurmctld refuses to start as the controller of a cluster with another name.
_NAME_FILE = "/var/lib/slurm/slurmctld/clustername"
_NEW_KEY = f"{paths.RUN}/munge.key"
# How long a node may take to register with slurmctld after both have started.
_REGISTER_SECONDS = 60


def plan(host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan a host's packages, its settings, the key of munge, and its services; nothing where all of it is right."""
    state, system = facts.made, facts.system
    if files_of(facts) is None or not isinstance(state, SetupState) or not isinstance(state.slurm, tuple):
        yield unread(facts, _STAGE)
        return
    refused = _unfit(system, state, cluster)
    if refused is not None:
        yield refused
        return
    units = ("munge", "slurmctld", "slurmd") if host.name == cluster.inventory.head else ("munge", "slurmd")
    missing = [unit for unit in units if _state(state, unit) is None]
    if missing:
        wanted = _install(missing, system)
        yield wanted
        if isinstance(wanted, Problem):
            return
    settings = cluster.once(_STAGE, lambda: _settings(cluster))
    if isinstance(settings, str):
        yield Problem(
            _STAGE,
            f"slurm.conf names every host of the inventory, and cannot be written: {settings}",
            hint="have that host answer, or remove it from the inventory; taco-launch -i FILE facts shows what is known",
        )
        return
    changed = differing(facts, settings)
    if changed:
        names = ", ".join(file.path.rpartition("/")[2] for file in changed)
        hosts = len(cluster.inventory.hosts)
        why = f"the settings of a Slurm of {hosts} host{'s' if hosts > 1 else ''}"
        yield Op(_STAGE, f"write {names}", why, files=changed, expect=lambda facts: with_files(facts, changed))
    yield from _key_and_services(host, facts, cluster, settings, units)


def _unfit(system: object, state: SetupState, cluster: PlanContext) -> Problem | None:
    """Return why a host cannot have a Slurm of this cluster."""
    if not isinstance(system, System) or not isinstance(system.init, str):
        return Problem(_STAGE, "the host's system cannot be read", "taco-launch -i FILE facts --only system shows why")
    if system.init != "systemd":
        return Problem(
            _STAGE,
            "process 1 of this host is not systemd, which starts the services of Slurm",
            hint="remove the host from the inventory, or install Slurm by hand",
        )
    foreign = [(path, owner) for path, owner in known_value(state.slurm) or () if path.startswith(paths.SLURM)]
    for path, owner in foreign:
        if owner != cluster.inventory.cluster:
            by = "was not written by set-up" if owner == "-" else f"is of cluster {owner}"
            return Problem(
                _STAGE,
                f"{path} {by}, and stays as it is: this host has a Slurm already",
                hint="to use that Slurm, run jobs with -i slurm:; to replace it, move the file away on the host and run setup again",
            )
    return None


def _state(state: SetupState, unit: str) -> str | None:
    """Return how a service stands (`enabled active`), None where it is not installed."""
    return dict(known_value(state.slurm) or ()).get(f"{unit}.service")


def _install(missing: list[str], system: object) -> Op | Problem:
    """Plan to install what is missing, as far as the distribution has a Slurm that is new enough."""
    os = system.os if isinstance(system, System) else None
    oldest = _OLDEST.get(os.id) if isinstance(os, Os) else None
    if not isinstance(os, Os) or oldest is None or _numbers(os.version) < oldest:
        return Problem(
            _STAGE,
            f"{', '.join(missing)} not installed, and set-up installs Slurm on Debian 12, Ubuntu 24.04 and newer only: this is "
            f"{os.name if isinstance(os, Os) else 'an unknown system'}",
            hint="install Slurm 22.05 or newer and munge by hand, then run setup again, which configures them; on RHEL and the like: "
            "dnf install epel-release && dnf install munge slurm slurm-slurmd (on the head slurm-slurmctld too)",
        )
    # by dbus slurmd gets its control group from systemd; what starts the ranks of jobs on the nodes is a program of Python
    packages = (*missing, "slurm-client", "dbus", "python3")
    units = tuple((f"{unit}.service", "enabled inactive") for unit in missing)
    return Op(
        _STAGE,
        f"install {', '.join(packages)} (distribution)",
        f"not installed: {', '.join(missing)}",
        "".join(map(scripts.text, ("dpkg.sh", "packages.sh"))) + _INSTALL,
        packages,
        seconds=1800,
        expect=lambda facts: _with_units(facts, units),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".") if word.isdigit())


def _settings(cluster: PlanContext) -> tuple[FileTarget, ...] | str:
    interface = cluster.inventory.network.interface
    return configuration(cluster.inventory, cluster.facts, lambda host, facts: address(host, facts, interface))


def _key_and_services(
    host: Host, facts: HostFacts, cluster: PlanContext, settings: tuple[FileTarget, ...], units: tuple[str, ...]
) -> Iterator[Op | Problem]:
    """Plan what depends on the key: services start once it is the same everywhere."""
    head, key = cluster.inventory.head, cluster.head_files.get(paths.MUNGE_KEY)
    state = facts.made
    assert isinstance(state, SetupState)
    if key is None:
        if host.name == head:
            yield Op(
                _STAGE, "munge.key: make it", "it does not exist", scripts.text("slurm_key.sh"), (paths.MUNGE_KEY,)
            )
        elif not cluster.with_head:
            typed = shell(("taco-launch", "-i", cluster.inventory.source, "setup", "--only", _STAGE, "-H", head))
            message = f"the key of munge is made on the head, {head}, which does not answer or is not set up"
            yield Problem(_STAGE, message, f"set the head up first: {typed}")
        return
    wanted = FileTarget(paths.MUNGE_KEY, key, 0o400)
    if host.name != head and differing(facts, (wanted,)):
        new = FileTarget(_NEW_KEY, key, 0o600, secret=True, shown=paths.MUNGE_KEY)
        script, args = scripts.text("slurm_key.sh"), (paths.MUNGE_KEY, _NEW_KEY)
        why = f"it must be that of {head}"
        yield Op(
            _STAGE, "munge.key: copy it", why, script, args, (new,), expect=lambda facts: with_files(facts, (wanted,))
        )
    digest = sha256(b"\0".join((key, *(file.data for file in settings)))).hexdigest()
    mark = FileTarget(paths.SLURM_MARK, digest.encode(), 0o600)
    stopped = [unit for unit in units if _state(state, unit) != _RUNS]
    if stopped or differing(facts, (mark,)):
        started = tuple((f"{unit}.service", _RUNS) for unit in units)
        yield Op(
            _STAGE,
            f"start {', '.join(units)}, now and at boot",
            f"not running, or not at boot: {', '.join(stopped)}" if stopped else "their settings have changed",
            scripts.text("slurm_start.sh"),
            (paths.SLURM_MARK, digest, *units),
            expect=lambda facts: _with_units(with_files(facts, (mark,)), started),
        )


def _with_units(facts: HostFacts, units: tuple[tuple[str, str], ...]) -> HostFacts:
    state = known_value(facts.made)
    if state is None:
        return facts
    there = dict(known_value(state.slurm) or ()) | dict(units)
    return replace(facts, made=replace(state, slurm=tuple(there.items())))


def prove(run: StageRun) -> tuple[ProofFailure, ...]:
    """Return the nodes that Slurm does not use, or on which srun starts nothing."""
    cluster, head = run.cluster, run.cluster.inventory.head
    nodes = [name for name in run.hosts if not tuple(plan(cluster.host(name), cluster.facts[name], cluster))]
    if head not in nodes:
        return ()
    argv = ("/bin/sh", "-c", scripts.text("slurm_proof.sh"), "prove", str(_REGISTER_SECONDS), *nodes)
    try:
        result = run.run(head, Command(argv, sudo=True, timeout=_REGISTER_SECONDS + 120))
    except HostError as error:
        return (ProofFailure((head,), "cannot query Slurm", error.message, error.hint or ""),)
    lines = [line.partition(" ") for line in result.stdout.decode("utf-8", "replace").splitlines()]
    ran = {name for word, _, name in lines if word == "ran"}
    states = {name: state for name, _, state in lines if name != "ran"}
    usable = ("idle", "mixed", "allocated", "completing")
    unused = {name: states.get(name, "unknown") for name in nodes if not states.get(name, "").startswith(usable)}
    unused |= {name: state for name, state in states.items() if "*" in state}
    if unused:
        evidence = ", ".join(f"{name}: {state}" for name, state in unused.items())
        if not states:
            evidence = last_line(result.stderr) or "sinfo printed nothing"
        hint = f"on {head}: sinfo --list-reasons; on the node: journalctl -u slurmd; ports 6817 and 6818 must be open"
        return (ProofFailure(tuple(unused), "is not usable in Slurm", evidence, hint),)
    silent = tuple(name for name in nodes if states[name] == "idle" and name not in ran)
    if silent:
        why = last_line(result.stderr) or f"exit code {result.exit_code}"
        return (ProofFailure(silent, "does not run what srun starts", why, f"on {head}: srun -w {silent[0]} hostname"),)
    return ()


def prove_same(run: StageRun) -> tuple[ProofFailure, ...]:
    """Return the hosts of this Slurm that are not set up by this call and have other settings than those that are."""
    settings = _settings(run.cluster)
    if not run.is_applied or not run.hosts or isinstance(settings, str):
        return ()
    others = {name: facts for name, facts in run.cluster.facts.items() if name not in run.chosen}
    there = {name for name, facts in others.items() if settings[0].path in (files_of(facts) or {})}
    hosts = tuple(name for name in others if name in there and differing(others[name], settings))
    if not hosts:
        return ()
    typed = shell(("taco-launch", "-i", run.cluster.inventory.source, "setup", "--only", _STAGE))
    return (ProofFailure(hosts, "has an outdated slurm.conf", "all hosts need the same one", f"update it: {typed}"),)


def take_back(removal: Removal) -> Iterator[Op | Problem]:
    """Plan to stop Slurm and remove its settings, where they are of this cluster."""
    state = removal.facts.made
    slurm = known_value(state.slurm) or () if isinstance(state, SetupState) else ()
    ours = tuple(path for path, owner in slurm if path.startswith(paths.SLURM) and owner == removal.cluster)
    if not ours:
        return
    gone = (paths.SLURM_MARK, _NAME_FILE, *ours)
    yield Op(
        _STAGE,
        "stop Slurm, now and at boot, and remove its settings",
        "set-up wrote them; packages and munge.key stay",
        scripts.text("slurm_removal.sh"),
        gone,
        expect=lambda facts: without(facts, gone),
    )


STAGE = StageRules(
    ("system", "network", "gpu", MADE),
    plan,
    after=("agent",),
    changes=("system", MADE),
    prove=(prove, prove_same),
    take_back=take_back,
    optional=True,
    head_files=(paths.MUNGE_KEY,),
)
