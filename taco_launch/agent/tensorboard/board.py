"""The TensorBoard of a job: which program it is, whether it runs and where, and how its keeper is started."""

import os
import shutil
import subprocess
from typing import Dict, Mapping, Optional, Tuple

from taco_launch.agent.processes import agent_program
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.errors import UsageError
from taco_launch.core.launch.command_line.env import OF_MPI
from taco_launch.core.model.job_view import BoardView
from taco_launch.core.protocol.calls.jobs import CallerEnvironment

# What is found where pip installs packages into a folder that is not on PATH.
_MODULE = "tensorboard.main"
_HAS_IT = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorboard') is None)"
_LOOK_SECONDS = 20.0
_LOG_BYTES = 1 << 20
_MOST_PORT = 65535
_MOST_PROBLEM = 300


def find(environment: Mapping[str, str]) -> Optional[Tuple[str, ...]]:
    """Return the command that starts TensorBoard, None where it is not installed for programs with this environment."""
    path = environment.get("PATH", os.defpath)
    found = shutil.which("tensorboard", path=path)
    if found is not None:
        return (found,)
    python = shutil.which("python3", path=path)
    if python is None:
        return None
    try:
        look = (python, "-c", _HAS_IT)
        done = subprocess.run(look, env=dict(environment), capture_output=True, timeout=_LOOK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (python, "-m", _MODULE) if done.returncode == 0 else None


def require(environment: Mapping[str, str], *, in_container: bool) -> None:
    """Check that TensorBoard is there, before a job is accepted that wants it.

    Raises:
        UsageError: it is not.
    """
    if find(environment) is None:
        recipe = (
            "install it in the training image (RUN pip install tensorboard) and name that image in the inventory"
            if in_container
            else "install it on the head in the Python environment of the job: pip install tensorboard"
        )
        raise UsageError(
            "--tensorboard: TensorBoard is not installed on the head: there is no program `tensorboard` on PATH, and python3 "
            "has no module tensorboard",
            hint=f"{recipe}; or leave --tensorboard out",
        )


def environment_of(caller: CallerEnvironment) -> Dict[str, str]:
    """Return the environment that the job's caller gave it, without what an MPI launcher gives to its ranks."""
    return {name: value for name, value in caller.environment.items() if not name.startswith(OF_MPI)}


def start(folder: JobFolder, agent: str) -> None:
    """Start the keeper of a job's TensorBoard, which ends at once where there is one already."""
    path = folder.board_log
    long = path.exists() and path.stat().st_size > _LOG_BYTES
    with open(path, "wb" if long else "ab", opener=untrusted.opener) as log:
        subprocess.Popen(
            agent_program.argv(agent, "tensorboard", str(folder.path)),
            cwd="/",
            env=scheduler_wakeup.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def try_lock(folder: JobFolder) -> Optional[int]:
    """Take the lock that a keeper holds for life; None where one has it."""
    return untrusted.try_lock(folder.board_lock)


def lives(folder: JobFolder) -> bool:
    """Return whether a keeper runs."""
    return untrusted.is_locked(folder.board_lock)


def view(folder: JobFolder) -> Optional[BoardView]:
    """Return where a job's TensorBoard answers, or why it does not; None where there is none, or it has ended."""
    found = records.read_json(folder.board)
    if found is None:
        return None
    port, problem = found.get("port"), str(found.get("problem", ""))[:_MOST_PROBLEM]
    if problem:
        return BoardView(problem=problem)
    if type(port) is not int or not 0 < port <= _MOST_PORT or not lives(folder):
        return None
    return BoardView(port=port)
