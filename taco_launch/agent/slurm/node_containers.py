"""The containers of pyxis on the nodes of a job: a step of Slurm holds one on each node, and a program enters it."""

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import List, Sequence

from taco_launch.agent.store import untrusted
from taco_launch.core.command import shell
from taco_launch.core.errors import HostError, last_line

_END_SECONDS = 10.0
_MOST_BYTES = 1 << 16
_READY = b"ready\n"
# The step has the number of its process kept on the node, and ends at the end of its input. $1 is the folder on the node.
_HOLD = 'mkdir -p -m 700 "$1" && echo $$ >"$1/container" && echo ready && while read -r line; do :; done'
# As with Apptainer, PATH and LD_LIBRARY_PATH are the image's, and other variables of the image go behind those of the job.
_ENTRY = """#!/bin/sh
# Run a command in the container of the job on this node.
exec nsenter --preserve-credentials --user --mount --target "$(cat {file})" -- /bin/sh -c '
cd "$1" || exit 126
shift
if [ -r /etc/environment ]; then
  while IFS= read -r line; do
    name=${line%%=*}
    case $name in
      "" | *[!A-Za-z0-9_]* | [0-9]*) ;;
      PATH | LD_LIBRARY_PATH) export "$line" ;;
      *) eval "[ -n \\"\\${$name+x}\\" ]" || export "$line" ;;
    esac
  done </etc/environment
fi
exec "$@"
' sh "$PWD" "$@"
"""


class NodeContainers:
    """The containers of a job, one on each of its nodes, from `start` to `close`."""

    def __init__(self, state: Path) -> None:
        """Start none yet; `state` is the job's folder on each node."""
        self._state = state
        self._steps: List[subprocess.Popen[bytes]] = []

    def start(self, srun: Path, entry: Path, nodes: Sequence[str]) -> None:
        """Start a container on each node by `srun`, which is called as ssh is, and wait until all run.

        `entry` is written: the program that runs a command in the container of its node.

        Raises:
            HostError: one does not start.
        """
        entry.write_text(_ENTRY.replace("{file}", shell((str(self._state / "container"),))), encoding="utf-8")
        entry.chmod(0o700)
        line = shell(("sh", "-c", _HOLD, "sh", str(self._state)))
        logs = [self._state / f"pyxis-{number}" for number in range(len(nodes))]
        for node, log in zip(nodes, logs):
            pipe = subprocess.PIPE
            with log.open("wb") as file:
                self._steps.append(subprocess.Popen((str(srun), node, line), stdin=pipe, stdout=pipe, stderr=file))
        for node, step, log in zip(nodes, self._steps, logs):
            assert step.stdout is not None
            if step.stdout.readline(_MOST_BYTES) != _READY:
                text = untrusted.read(log, _MOST_BYTES).decode("utf-8", "replace")
                sys.stderr.write(text)
                raise HostError(f"the container on {node} could not be started: {_why(text)}")

    def close(self) -> None:
        """End the containers."""
        for step in self._steps:
            assert step.stdin is not None
            step.stdin.close()
        for step in self._steps:
            with contextlib.suppress(subprocess.TimeoutExpired):
                step.wait(_END_SECONDS)
        self._steps.clear()


def _why(text: str) -> str:
    """Return the line of what srun printed that tells why pyxis started no container."""
    lines = [line.partition("error: pyxis: ")[2] for line in text.splitlines()]
    of_enroot = [line.strip() for line in lines if line.startswith("    ") and line.strip()]
    errors = [line for line in of_enroot if line.startswith("[ERROR]")] or of_enroot[-1:]
    return next(filter(None, (*errors, *lines, last_line(text.encode()))), "srun ended")
