"""The training containers of this cluster on this host: which of them this process is in, and how another one is reached.

A cluster has one container on each host, and a variant for each other image or data that jobs ask for (setup/model/job_containers.py).
They share the state folder and see each other's processes, so that whichever looks after a job finds all of it. What runs
in a job's container: its supervisor, launcher, guards and ranks. The queue is the cluster's own container's.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Mapping, Tuple

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import CLUSTER_VARIABLE, VARIANT_VARIABLE, is_name
from taco_launch.core.errors import HostError

if TYPE_CHECKING:  # a call for facts imports this file, and takes as long as it imports
    from taco_launch.core.model.jobs import JobSpec
    from taco_launch.core.protocol.calls.jobs import CallerEnvironment

# As core/model/host/paths.py and setup/model/job_containers.py have them.
_CLUSTERS = "/var/lib/taco-launch/clusters"
_KEY = re.compile("[0-9a-f]{10}")
_SSHD_PID = "/run/taco-launch/sshd.pid"
_LISTENS = re.compile(r"^ListenAddress \[?([0-9A-Za-z.:%]+?)\]?:[0-9]+$", re.MULTILINE)
_IMAGE = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_BYTES, _MOST_NAMES = 1 << 16, 64
# What sshd sets for a session, and `docker exec` does not.
_OF_SESSION = ("LOGNAME", "MAIL", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM", "USER")


def here() -> str:
    """Return which variant this process is in, "" in the cluster's own container or in none."""
    key = os.environ.get(VARIANT_VARIABLE, "")
    return key if _KEY.fullmatch(key) else ""


def is_key(text: str) -> bool:
    """Return whether a text may be a variant's key, and so a part of a path."""
    return _KEY.fullmatch(text) is not None


def of(spec: "JobSpec") -> str:
    """Return which variant a job runs in, "" in the cluster's own container or in none.

    Raises:
        HostError: it names none that there can be: a rank may have written that.
    """
    key = "" if spec.container is None else spec.container.variant
    if key and not _KEY.fullmatch(key):
        raise HostError(f"job {spec.name}: {key[:40]!r} is not a valid container name")
    return key


def argv(variant: str, agent: str, *words: str) -> Tuple[str, ...]:
    """Return the command that runs an operation of the agent in another of this host's containers.

    Raises:
        HostError: this one was not made by set-up.
    """
    try:
        text = untrusted.read(_folder(here()) / "ssh" / "sshd_config", _MOST_BYTES).decode("utf-8", "replace")
        found = _LISTENS.search(text)
    except OSError:
        found = None
    if found is None:
        raise HostError(
            "the address of this host's containers is not known: this container was not made by taco-launch setup"
        )
    from taco_launch.agent.ssh import commands as ssh  # noqa: PLC0415 - who only asks where it is needs none

    return ssh.argv(found[1], agent, *words, options=ssh_options(variant))


def ssh_options(variant: str) -> Tuple[str, ...]:
    """Return the options by which ssh reaches a container on any host of the cluster."""
    return ("-F", str(_folder(variant) / "ssh" / "ssh_config"))


def variants_folder() -> Path:
    """Return where set-up keeps a folder for each variant, which a container may read.

    Raises:
        HostError: this is no container of a cluster.
    """
    return _folder("") / "variants"


def image() -> Tuple[str, ...]:
    """Return by what engines know the image of this container: its id and its digests; nothing where that is not known."""
    return tuple(line for line in _image_lines() if _IMAGE.fullmatch(line))[:_MOST_NAMES]


def image_name() -> str:
    """Return the name of the image that this container was created from, "" where that is not known."""
    return next((line for line in _image_lines() if line and not _IMAGE.fullmatch(line)), "")


def _image_lines() -> Tuple[str, ...]:
    try:
        return tuple(untrusted.read(_folder(here()) / "image", _MOST_BYTES).decode("ascii", "replace").splitlines())
    except (OSError, HostError):
        return ()


def inherited(caller: "CallerEnvironment", spec: "JobSpec") -> "Tuple[CallerEnvironment, JobSpec]":
    """Add what a job has of this container, where its submission was in another one: the environment, and the folder."""
    if not caller.inherit:
        return caller, spec
    from dataclasses import replace  # noqa: PLC0415 - see above

    environment = {**_environment(os.environ), **caller.environment}
    return caller.replace(environment=environment, inherit=False), replace(spec, cwd=spec.cwd or _start_folder())


def _environment(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return what a container gives, of the environment of a process that came by ssh."""
    from taco_launch.core.launch.command_line.env import JOB_ID, JOB_NAME, SERVICE  # noqa: PLC0415 - see above

    own = (*_OF_SESSION, JOB_ID, JOB_NAME, SERVICE)
    return {name: value for name, value in environ.items() if name not in own and not name.startswith("SSH_")}


def _start_folder() -> str:
    """Return the folder that the image names (WORKDIR), in which this container's main process began; / where that is not known."""
    try:
        sshd = int(untrusted.read(Path(_SSHD_PID), _MOST_BYTES))
        fields = Path(f"/proc/{sshd}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        return os.readlink(f"/proc/{int(fields[1])}/cwd")
    except (OSError, ValueError, IndexError):
        return "/"


def _folder(variant: str) -> Path:
    cluster = os.environ.get(CLUSTER_VARIABLE, "")
    if not is_name(cluster):
        raise HostError("this is not a training container of a taco-launch cluster")
    return Path(_CLUSTERS, cluster, *(("variants", variant) if variant else ()))
