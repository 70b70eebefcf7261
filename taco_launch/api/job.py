"""One job of a cluster, from Python: what it is, its output, its files, its end."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_view import JobView as JobAnswer
from taco_launch.core.model.job_view import Progress
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.core.protocol.calls.caller_input import pieces
from taco_launch.core.protocol.calls.exec_command import Exec
from taco_launch.jobs import copy_files
from taco_launch.jobs.backend import Backend, FollowListener, LogQuery, Output
from taco_launch.jobs.request.caller import person

# How often a wait with a timeout asks for the job.
_POLL_SECONDS = 0.5


class Job:
    """A job that a cluster keeps, as of the last query."""

    def __init__(self, backend: Backend, found: JobAnswer) -> None:
        """Keep what the backend answered."""
        self._backend = backend
        self._found = found

    def __repr__(self) -> str:
        """Return its name and state."""
        return f"<Job {self.name}: {self.state.value}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self._found.spec.name

    @property
    def spec(self) -> JobSpec:
        """What it is."""
        return self._found.spec

    @property
    def record(self) -> JobRecord:
        """What has become of it."""
        return self._found.record

    @property
    def state(self) -> JobState:
        """Its state."""
        return self.record.state

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None until it has ended."""
        return self.record.exit_code

    @property
    def progress(self) -> Progress | None:
        """The progress of its training that its ranks print, as of the last `refresh`; None if they print none."""
        return self._found.progress

    def refresh(self) -> "Job":
        """Ask for its state again; return it."""
        self._found = self._backend.get(self.name)
        return self

    def wait(self, watch: FollowListener | None = None, *, timeout: float | None = None) -> int:
        """Wait for its end, at most `timeout` seconds; return its exit code.

        Raises:
            TimeoutError: it has not ended by then. It runs on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while deadline is not None and not self.refresh().state.is_terminal:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"job {self.name} is {self.state.value} after {timeout:g} s")
            time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        self._found = self._backend.follow(LogQuery(self.name, tail=0), lambda _data: None, watch or FollowListener())
        return self.exit_code or 0

    def logs(self, **query: Any) -> bytes:
        """Return its log as far as there is one; `query` says which part, as LogQuery does: `rank=0`, `tail=20`."""
        pieces: list[bytes] = []
        self._found = self._backend.follow(LogQuery(self.name, follow=False, **query), pieces.append)
        return b"".join(pieces)

    def follow(self, output: Output, **query: Any) -> int:
        """Return its log to `output` until it ends; return its exit code. `query` as in `logs`."""
        self._found = self._backend.follow(LogQuery(self.name, **query), output)
        return self.exit_code or 0

    def execute(
        self,
        command: Sequence[str],
        output: Output = lambda _data: None,
        *,
        rank: int = 0,
        given: bytes = b"",
        errors: Output | None = None,
    ) -> int:
        """Run a command beside a rank, with `given` as its input; return its exit code.

        `output` is given what it writes, and `errors` what it writes on stderr; without `errors`, `output` is given both.

        Raises:
            UsageError: the command is one string.
        """
        if isinstance(command, str):
            raise UsageError(f"command: {command!r}: must be a list of strings", hint="split it: shlex.split(...)")
        request = Exec(name=self.name, rank=rank, command=[*command])
        return self._backend.at_rank(request, pieces(given), output, errors or output)

    def fetch(self, path: str, local: str | os.PathLike[str], *, rank: int = 0) -> Path:
        """Copy a file or folder of a rank's host here, whole or not at all; return where it is. See jobs/copy_files.py."""
        return copy_files.fetch(self._backend, self.name, rank, path, Path(local))[0]

    def send(self, local: str | os.PathLike[str], path: str, *, rank: int = 0) -> None:
        """Copy a file or folder of this machine to a path on a rank's host, whole or not at all."""
        copy_files.send(self._backend, self.name, rank, Path(local), path)

    def stop(self, grace: float | None = None) -> int:
        """Stop it: TERM, then KILL after its grace time or `grace` seconds if that is less. Return its exit code."""
        by = f"{person()} (taco-launch stop)"
        self._found = self._backend.stop([self.name], by, signal.SIGTERM, grace).job(self.name)
        return self.exit_code or 0 if self.state.is_terminal else self.wait()

    def suspend(self) -> None:
        """Have its ranks ended, and the job wait for `resume`."""
        self._found = self._backend.suspend([self.name], person()).job(self.name)

    def resume(self) -> None:
        """Have it wait for its slots again."""
        self._found = self._backend.resume([self.name], person()).job(self.name)

    def resize(self, hosts: int) -> None:
        """Have it use at most so many hosts from now on, if it is elastic and runs."""
        self._found = self._backend.resize([self.name], hosts, person()).job(self.name)

    def delete(self) -> tuple[str, ...]:
        """Stop it if it has not ended, and remove its record and logs; return warnings about hosts that keep something of it."""
        if not self.state.is_terminal and not self.refresh().state.is_terminal:
            self.stop()
        deleted = self._backend.delete([self.name])
        deleted.existing(self.name)
        return deleted.warnings
