"""Start agent processes from the agent's own file, with `-I -S`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Mapping, Optional, Tuple, Union

from taco_launch import agent as package
from taco_launch.agent.processes import forked

Process = Union["subprocess.Popen[bytes]", forked.ForkedChild]


def argv(agent: str, *arguments: str) -> Tuple[str, ...]:
    """Return the argv of an agent process; -I and -S let nothing but the standard library be imported."""
    return (sys.executable, "-I", "-S", agent, *arguments)


def wrapper(agent: Path, op: str, folder: Path) -> Tuple[str, ...]:
    """Return what precedes a command on every host of a job: the agent there, by the link `agent` in the job's `folder`."""
    return argv(str(agent), op, str(folder), "--")


def start(
    agent: str,
    *arguments: str,
    stderr: Optional[IO[bytes]] = None,
    environment: Optional[Mapping[str, str]] = None,
    keep: Tuple[int, ...] = (),
) -> Process:
    """Start an agent process in a session of its own, without stdin and stdout; its stderr is this process's, or given.

    Of what is open here it keeps the descriptors `keep` alone. Where this process runs the same file it is forked.
    """
    run = package.process_main
    if run is not None and forked.may(agent):
        return forked.start(
            lambda: run(agent, list(arguments)),
            argv(agent, *arguments),
            os.environ if environment is None else environment,
            2 if stderr is None else stderr.fileno(),
            keep,
        )
    return subprocess.Popen(
        argv(agent, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=None if environment is None else dict(environment),
        cwd="/",
        pass_fds=keep,
        start_new_session=True,
    )
