"""Parts of a manifest that matter only in Kubernetes: how pods are reached, and what their sshd needs. Pure."""

import re
from collections.abc import Sequence

from taco_launch.inventory.variable_names import OF_A_RANK
from taco_launch.request.lines import shell_line
from taco_launch.request.lines.mpirun_line import UnclearError

# How mpirun reaches the hosts, which are pods there, and set-up's matter here.
_REACHES = re.compile(
    r"plm(?:_[rs]sh_(?:agent|args))?|(?:orte|prte)_(?:default_hostfile|launch_agent|keep_fqdn_hostnames)"
)
_PLACE = (*OF_A_RANK, "MASTER_ADDR", "MASTER_PORT")
_SERVICE = re.compile(r"\.svc(?=[.:/]|$)")
_STATEMENTS = re.compile(r"&&|;|\n")


def unused(key: str, name: str, value: str) -> str:
    """Return why a variable (`key` env) or a parameter (mca) is left out of the job, "" where it is not."""
    if key == "mca":
        return "it only sets how mpirun reaches pods" if _REACHES.fullmatch(name) else ""
    if name in _PLACE:
        return "taco-launch sets it for each rank"
    return "names a Service of Kubernetes" if _SERVICE.search(value) else ""


def before_sshd(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return what a worker does for its sshd before it becomes one, None where it does anything else."""
    try:
        found = shell_line.read(words)
    except UnclearError as error:
        if error.index != len(words) - 1:
            return None
        *before, last = [text.strip() for text in _STATEMENTS.split(words[-1]) if text.strip()] or [""]
        its_own = _is_sshd(last.removeprefix("exec ").split()) and all("ssh" in text for text in before)
        return tuple(before) if its_own else None
    return () if _is_sshd(words if found is None else found[0]) else None


def _is_sshd(words: Sequence[str]) -> bool:
    return bool(words) and words[0].rpartition("/")[2] == "sshd"
