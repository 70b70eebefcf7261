"""Gives a host's Docker Engine its settings: daemon.json, and the proxy by its systemd unit."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import known_value
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, SetupState
from taco_launch.core.model.host.hosts import DockerEngine
from taco_launch.core.model.host.paths import ENGINE_CONFIG, ENGINE_PROXY, STATE
from taco_launch.setup.files import daemon_json
from taco_launch.setup.model.ops import FileTarget, Op, PlanContext, Problem, Stage
from taco_launch.setup.scripts import text

# Where scripts/docker_settings.sh finds what is to change, and marks what has not taken effect yet.
MARKS = f"{STATE}/docker"
# The proxy's variables, for systemd alone.
PROXY_VALUES = f"{MARKS}/proxy.env"
# An engine whose file is gone starts without a proxy rather than not at all.
_PART = f"""\
# by taco-launch setup, from docker.proxy in the inventory
[Service]
EnvironmentFile=-{PROXY_VALUES}
"""
_PENDING = ("changes of an earlier set-up, which was interrupted",)
# Where an engine with CDI looks for specifications that is not told otherwise.
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# States of containers that a restart of the engine stops.
RUNNING = ("running", "paused", "restarting")
_FOR_ALL = "user IDs in its containers would differ from the host's, but training containers share the host's network and processes"


def proxy_files(engine: DockerEngine) -> tuple[FileTarget, ...]:
    """Return the part of docker.service that names a file, and that file, which names the proxy; none without a proxy.

    What stands in a unit itself is told to every user who asks (systemctl show). Their form: systemd.exec(5).
    """
    if not engine.proxy:
        return ()
    values = "".join(f'{name.upper()}_PROXY="{_escaped(value)}"\n' for name, value in engine.proxy)
    # Whoever put a password there wants it kept.
    secret = any("@" in value for _name, value in engine.proxy)
    return (
        FileTarget(f"{MARKS}/proxy.conf", _PART.encode(), shown=ENGINE_PROXY),
        FileTarget(f"{MARKS}/proxy.new", values.encode(), 0o600, secret, shown=PROXY_VALUES),
    )


def settings(docker: DockerFacts, made: SetupState, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan the settings of an engine that is there; or say why they cannot be had."""
    engine = cluster.inventory.docker
    merged = _merged("docker", made, daemon_json.wanted(engine))
    if isinstance(merged, Problem):
        yield merged
        return
    changes = tuple(filter(None, (_proxy(made, engine), _config(made, merged))))
    yield from _change("docker", changes or tuple(_unfinished(docker, made, engine)), docker, made, cluster, merged)


def plan_daemon_keys(
    stage: Stage,
    keys: dict[str, Any],
    docker: DockerFacts,
    made: SetupState,
    cluster: PlanContext,
    why: str,
    *,
    has: bool = False,
) -> Iterator[Op | Problem]:
    """Plan that daemon.json gets these keys, for another stage, and that an engine which runs takes them.

    They are those that the engine lacks: where the file has them already, it is to read it anew. With `has` they are in
    force until the engine starts anew, so it does not have to.
    """
    merged = _merged(stage, made, keys)
    if isinstance(merged, Problem):
        yield merged
        return
    change = _config(made, merged) or _Change("daemon.json: make the engine use it", "")
    change = replace(change, why=why, restarts=() if has else change.restarts)
    yield from _change(stage, (change,), docker, made, cluster, merged)


def _merged(stage: Stage, made: SetupState, keys: dict[str, Any]) -> daemon_json.MergedConfig | Problem:
    """Return daemon.json with these keys; or say why it cannot have them."""
    now = known_value(made.daemon_json) or ""
    try:
        there = daemon_json.read(now)
        merged = daemon_json.merge(now, keys)
        command = known_value(made.engine_command) or ""
        twice = daemon_json.conflict(now, keys, command) if keys else None
    except daemon_json.NotOursError as error:
        return Problem(
            stage,
            f"{ENGINE_CONFIG}: {error}",
            hint="it was not changed: correct it on the host (python3 -m json.tool shows where), then run setup again",
        )
    if twice is not None:
        return Problem(
            stage,
            f"{ENGINE_CONFIG}: {twice}; dockerd accepts it from one place only",
            hint="take the flag out of docker.service (systemctl edit --full docker), or the key out of daemon.json and "
            "the inventory",
        )
    if there.get("userns-remap") or keys.get("userns-remap"):
        return Problem(stage, f"{ENGINE_CONFIG}: userns-remap is set: {_FOR_ALL}", hint="take it out of daemon.json")
    return merged


@dataclass(frozen=True)
class _Change:
    """One thing that is to change: its name for people, why, the files it takes, and what of it needs a restart."""

    name: str
    why: str
    files: tuple[FileTarget, ...] = ()
    old: tuple[tuple[str, str], ...] = ()
    restarts: tuple[str, ...] = ()


def _change(
    stage: Stage,
    changes: tuple[_Change, ...],
    docker: DockerFacts,
    made: SetupState,
    cluster: PlanContext,
    merged: daemon_json.MergedConfig,
) -> Iterator[Op | Problem]:
    """Plan all changes as one operation, so that the engine is restarted once."""
    if not changes:
        return
    pending = _sum(made, f"{MARKS}/restart") is not None
    restarts = tuple(each for change in changes for each in change.restarts) or (_PENDING if pending else ())
    running = isinstance(docker.version, str)
    stopped = _stopped(stage, docker, restarts, cluster) if running and restarts else None
    if stopped is not None:
        yield stopped
        return
    how = "restart" if restarts else "reload"
    looked_at = _hash(made.daemon_json.encode()) if isinstance(made.daemon_json, str) else "absent"
    allowed = "no" if cluster.disrupt == "nothing" else "yes"
    proxied = "yes" if cluster.inventory.docker.proxy else "no"
    files = tuple(file for change in changes for file in change.files)
    names = tuple(file.path.rpartition("/")[2] for file in files)
    yield Op(
        stage,
        f"{'; '.join(change.name for change in changes)} ({how})",
        why="; ".join((*(change.why for change in changes), *_hidden(docker, merged))),
        script=text("dockerd.sh") + text("docker_settings.sh"),
        args=(how, allowed, MARKS, ENGINE_CONFIG, looked_at, ENGINE_PROXY, proxied, *names),
        files=files,
        disrupts="docker" if running and how == "restart" else "nothing",
        seconds=300,
        old=tuple(pair for change in changes for pair in change.old),
        expect=lambda facts: _set(facts, merged),
    )


def _proxy(made: SetupState, engine: DockerEngine) -> _Change | None:
    files, there = proxy_files(engine), tuple(_sum(made, path) for path in (ENGINE_PROXY, PROXY_VALUES))
    if not files and there == (None, None):
        return None
    if not files:
        return _Change("proxy: remove it from docker.service", "the inventory sets no proxy", restarts=("the proxy",))
    if there == tuple(_hash(file.data) for file in files):
        return None
    name = f"proxy: {'change' if there[0] is not None else 'set'} it in docker.service"
    why = "docker.service does not use the inventory's proxy"
    return _Change(name, why, files, restarts=("the proxy",))


def _config(made: SetupState, merged: daemon_json.MergedConfig) -> _Change | None:
    if not merged.keys:
        return None
    words = [f"add {', '.join(merged.new)}"] if merged.new else []
    words += [f"change {', '.join(merged.changed)}"] if merged.changed else []
    differs = [f"lacks {', '.join(merged.new)}"] if merged.new else []
    differs += [f"has another {', '.join(merged.changed)}"] if merged.changed else []
    files = (
        FileTarget(f"{MARKS}/adding", f"{merged.added}\n".encode(), 0o600, shown=f"{MARKS}/added"),
        FileTarget(f"{MARKS}/daemon.json", merged.text.encode(), 0o600, shown=ENGINE_CONFIG),
    )
    now = known_value(made.daemon_json) or ""
    return _Change(
        f"daemon.json: {', '.join(words)}",
        f"{ENGINE_CONFIG} {' and '.join(differs)}",
        files,
        ((ENGINE_CONFIG, now), (f"{MARKS}/added", "")),
        tuple(key for key in merged.keys if daemon_json.restarts(key, now, merged.text)),
    )


def _unfinished(docker: DockerFacts, made: SetupState, engine: DockerEngine) -> Iterator[_Change]:
    """Find what stands in the files, and the engine that runs does not have."""
    name = "daemon.json: make the engine use it"
    interrupted = "an earlier set-up was interrupted before the engine applied its changes"
    if any(_sum(made, f"{MARKS}/{mark}") is not None for mark in ("restart", "reload")):
        yield _Change(name, interrupted)
    elif lacking := _not_taken(docker, engine):
        yield _Change(name, f"the running engine does not use {', '.join(lacking)} from daemon.json")


def _hidden(docker: DockerFacts, merged: daemon_json.MergedConfig) -> Iterator[str]:
    """Yield what an engine with another data root no longer sees."""
    there = [each for each in (docker.images, docker.containers) if isinstance(each, tuple) and each]
    if _moved_to(docker, merged) is not None and there:
        root = known_value(docker.root) or "the old data root"
        yield f"its images and containers stay in {root}, where the engine no longer sees them"


def _moved_to(docker: DockerFacts, merged: daemon_json.MergedConfig) -> str | None:
    """Return the data root that the engine gets instead of the one it has; None where it keeps that."""
    root = daemon_json.read(merged.text).get("data-root") if "data-root" in merged.keys else None
    return root if isinstance(root, str) and root != docker.root else None


def _stopped(stage: Stage, docker: DockerFacts, keys: Sequence[str], cluster: PlanContext) -> Problem | None:
    """Return which running containers a restart would stop, unless that is allowed."""
    if cluster.disrupt != "nothing":
        return None
    what = f"docker has to be restarted for {', '.join(keys)}"
    hint = "stop the containers, or let set-up stop them: taco-launch -i FILE setup --disrupt docker"
    if not isinstance(docker.containers, tuple):
        return Problem(stage, f"{what}, and what runs there is not known: {docker.containers.reason}", hint=hint)
    names = [each.name for each in docker.containers if each.state in RUNNING]
    if not names:
        return None
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    runs = f"{len(names)} containers run" if len(names) > 1 else "a container runs"
    return Problem(stage, f"{what}, and {runs} there: {shown}", hint=hint)


def _not_taken(docker: DockerFacts, engine: DockerEngine) -> list[str]:
    """Name what daemon.json should give the engine, and the engine that runs does not have."""
    lacking = []
    if isinstance(docker.mirrors, tuple):
        mirrors = {mirror.rstrip("/") for mirror in docker.mirrors}
        if any(mirror.rstrip("/") not in mirrors for mirror in engine.mirrors):
            lacking.append("registry-mirrors")
    if isinstance(docker.insecure_registries, tuple):
        # The engine writes a network in a form of its own.
        names = [name for name in engine.insecure_registries if "/" not in name]
        if any(name not in docker.insecure_registries for name in names):
            lacking.append("insecure-registries")
    return lacking


def _sum(made: SetupState, path: str) -> str | None:
    """Return the SHA-256 of a file of set-up; None where it does not exist."""
    return next((file.sha256 or "" for file in known_value(made.files) or () if file.path == path), None)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _escaped(value: str) -> str:
    """Return a value as it stands between the quotes of an EnvironmentFile: systemd.exec(5)."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _set(facts: HostFacts, merged: daemon_json.MergedConfig) -> HostFacts:
    made, docker = facts.made, facts.docker
    if isinstance(docker, DockerFacts) and (root := _moved_to(docker, merged)) is not None:
        facts = replace(facts, docker=replace(docker, root=root, images=(), containers=()))
    facts = _with_cdi(facts, merged)
    if not isinstance(made, SetupState):
        return facts
    return replace(facts, made=replace(made, daemon_json=merged.text)) if merged.text.strip() else facts


def _with_cdi(facts: HostFacts, merged: daemon_json.MergedConfig) -> HostFacts:
    """Return the facts of an engine that can have CDI, with what this daemon.json says of it."""
    docker = facts.docker
    features = daemon_json.read(merged.text).get("features") if "features" in merged.keys else None
    on = features.get("cdi") if isinstance(features, dict) else None
    if on is None or not isinstance(docker, DockerFacts) or not isinstance(docker.cdi_folders, tuple):
        return facts
    folders = (docker.cdi_folders or _CDI_FOLDERS) if on is True else ()
    return replace(facts, docker=replace(docker, cdi_folders=folders))
