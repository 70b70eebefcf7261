"""What is taken back of the docker stage, with a host's last cluster: what all clusters share. The engine itself stays."""

import json
from collections.abc import Iterator
from hashlib import sha256

from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Unknown
from taco_launch.core.model.host.facts import SetupState
from taco_launch.setup import scripts
from taco_launch.setup.files import daemon_json
from taco_launch.setup.model.ops import FileTarget, Op, Problem, Removal
from taco_launch.setup.stage_parts.docker_settings import MARKS

# What set-up put into daemon.json, as docker_settings keeps it.
ADDED = f"{MARKS}/added"
# What daemon.json is without that: scripts/teardown_host.sh puts it there.
_WITHOUT = f"{MARKS}/daemon.json.without"


def take_back(removal: Removal) -> Iterator[Op | Problem]:
    """Plan to remove the agent and the leases, and what set-up put into Docker Engine's settings."""
    made, files = removal.facts.made, removal.files
    if not removal.is_last or not isinstance(made, SetupState):
        return
    ours = [path for path in (paths.AGENT, MARKS, paths.ENGINE_PROXY) if path in files]
    if not ours:
        return
    if ADDED in files and isinstance(made.daemon_json, Unknown):
        yield Problem(
            "docker",
            f"{paths.ENGINE_CONFIG}: what set-up put into it cannot be taken out: {made.daemon_json.reason}",
            f"make the file readable: {ADDED} lists what to take out of it. Then run this command again",
        )
        return
    config = made.daemon_json if isinstance(made.daemon_json, str) else None
    put: tuple[FileTarget, ...] = ()
    if config is not None and removal.added:
        try:
            text = daemon_json.taken_back(config, removal.added)
        except daemon_json.NotOursError as error:
            yield Problem(
                "docker",
                f"{paths.ENGINE_CONFIG}: {error}",
                "it was not changed: correct it on the host, then run this command again",
            )
            return
        except json.JSONDecodeError as error:
            yield Problem(
                "docker",
                f"{ADDED}, which lists what set-up put into {paths.ENGINE_CONFIG}, has a line that is not JSON: {error.msg}",
                "an interrupted set-up wrote only half of that line: on the host, remove it, and the key that it names from "
                "daemon.json, then run this command again",
            )
            return
        if text != config:
            put = (FileTarget(_WITHOUT, text.encode(), 0o600, shown=paths.ENGINE_CONFIG),)
    parts = ["the agent and the leases", *(["what set-up put into daemon.json"] if put else [])]
    proxy = paths.ENGINE_PROXY in files
    yield Op(
        "docker",
        f"remove {', '.join([*parts, *(['the proxy of docker.service'] if proxy else [])])}",
        "no other cluster uses them" + ("; docker keeps these settings until it restarts" if put or proxy else ""),
        scripts.text("idle.sh") + scripts.text("reload.sh") + scripts.text("teardown_host.sh"),
        (
            paths.STATE,
            paths.LEASES,
            paths.ENGINE_PROXY,
            paths.ENGINE_CONFIG,
            *((_WITHOUT, sha256(config.encode()).hexdigest()) if put and config is not None else ()),
        ),
        put,
        old=((paths.ENGINE_CONFIG, config),) if put and config is not None else (),
        idle="a container of this host",
    )
