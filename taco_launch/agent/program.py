"""How processes of the agent are started: the same file, isolated from the caller's Python set-up."""

import subprocess
import sys
from typing import IO, Mapping, Optional, Tuple

from taco_launch.agent.folders import JobFolder


def argv(agent: str, *arguments: str) -> Tuple[str, ...]:
    """Give the argv of an agent process; -I and -S let nothing but the standard library be imported."""
    return (sys.executable, "-I", "-S", agent, *arguments)


def wrapper(folder: JobFolder, op: str) -> Tuple[str, ...]:
    """Give what stands before a command on every host of a job: the agent there, by the link in the job's folder."""
    return argv(str(folder.agent), op, str(folder.path), "--")


def start(
    agent: str, *arguments: str, stderr: Optional[IO[bytes]] = None, environment: Optional[Mapping[str, str]] = None
) -> "subprocess.Popen[bytes]":
    """Start an agent process in a session of its own, without stdin and stdout; its stderr is this process's, or given."""
    return subprocess.Popen(
        argv(agent, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=None if environment is None else dict(environment),
        cwd="/",
        start_new_session=True,
    )
