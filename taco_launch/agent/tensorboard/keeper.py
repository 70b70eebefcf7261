"""`agent tensorboard`: starts the TensorBoard of a job on the head and keeps it for the job's life and a grace time.

It is no part of the job: the job's state never waits for it. It ends TensorBoard when the job has been over or suspended for
the grace time, and at once when the job's record is removed; the kernel ends TensorBoard when the keeper is killed.
"""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional, Sequence

from taco_launch.agent.host import containers, leases, ports
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, lease_folder
from taco_launch.agent.tensorboard import board
from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.launch.command_line.env import JOB_ID, SERVICE
from taco_launch.core.model.jobs import JobSpec, JobState

_LOOPBACK = "127.0.0.1"
_PR_SET_PDEATHSIG = 1  # prctl(2)
_TICK_SECONDS = 1.0
_ANSWER_SECONDS = 120.0
_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 5.0
_TRIES = 4
# Of its log and whatever else it writes.
_MOST_BYTES = 64 << 20


def main(folder: JobFolder) -> int:
    """Keep one until its time is over; nothing where the job has a keeper."""
    lock = board.try_lock(folder)
    if lock is None:
        return 0
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    keeper = _Keeper(folder)
    try:
        keeper.run()
    except (TacoLaunchError, OSError) as error:
        keeper.fail(str(error))
    finally:
        keeper.end()
        with contextlib.suppress(OSError):
            os.close(lock)
    return 0


class _Keeper:
    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        caller, self._spec = containers.inherited(records.read_caller(folder), records.read_spec(folder))
        self._environment = board.environment_of(caller)
        self._cwd = _ranks_folder(self._spec, folder)
        self._reader = records.RecordReader(folder)
        place = lease_folder(os.environ, folder.path.parent.parent, root=os.geteuid() == 0)
        self._leases = leases.Leases(place, folder.path.parent)
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._over_at: Optional[float] = None
        self._failed = False

    def run(self) -> None:
        """Start it, tell where it answers, and wait for its end."""
        settings = self._spec.tensorboard
        if settings is None:
            return
        program = board.find(self._environment)
        if program is None:
            self.fail(
                "TensorBoard is not installed on the head" + (", in the job's image" if containers.here() else "")
            )
            return
        logdir = os.path.join(self._cwd, settings.logdir)  # noqa: PTH118 - an absolute one stays as it is
        # The kernel chooses the port: one that was chosen before could be taken while TensorBoard starts.
        words = ("--logdir", logdir, "--host", _LOOPBACK, "--port", "0", "--load_fast", "false")
        for _try in range(_TRIES):
            self._stop()
            self._process = self._start((*program, *words))
            port = self._listens(self._process, settings.grace)
            if not port:
                return
            if self._lease(port):
                break
        else:
            who = self._leases.holder(port) or "another job"
            self.fail(f"TensorBoard was given only ports that other jobs hold: {who} has port {port}")
            return
        records.write_json(self._folder.board, {"port": port})
        while self._process.poll() is None:
            if self._is_over(settings.grace):
                return
            time.sleep(_TICK_SECONDS)
        self.fail(f"TensorBoard ended with exit code {self._process.returncode}")

    def fail(self, why: str) -> None:
        """Note why there is none; its log says more."""
        self._failed = True
        if self._folder.path.is_dir():
            with contextlib.suppress(OSError):
                records.write_json(self._folder.board, {"problem": f"{why}: see {self._folder.board_log}"})

    def end(self) -> None:
        """End TensorBoard and all that it has started, and let the port go."""
        self._stop()
        self._leases.release(gone=True)
        if not self._failed:
            self._folder.board.unlink(missing_ok=True)

    def _stop(self) -> None:
        if self._process is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE_SECONDS)

    def _lease(self, port: int) -> bool:
        """Keep jobs off a port; False where one holds it that does not listen there yet."""
        holder = Holder(
            self._folder.name, self._mark, time.time(), self._spec.cluster, self._spec.owner, pid=os.getpid()
        )
        return bool(self._leases.take((), 0, holder, None, (port,)))

    @property
    def _mark(self) -> str:
        """The mark by which the next holder of its port finds what a killed keeper left."""
        return f"{records.record(self._folder).id}-tensorboard"

    def _start(self, argv: Sequence[str]) -> "subprocess.Popen[bytes]":
        own = {name: value for name, value in self._environment.items() if name != SERVICE}

        def before_exec() -> None:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_BYTES, _MOST_BYTES))

        return subprocess.Popen(
            list(argv),
            cwd=self._cwd if Path(self._cwd).is_dir() else "/",
            env={**own, JOB_ID: self._mark},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=before_exec,  # noqa: PLW1509 - there is one thread
        )

    def _listens(self, process: "subprocess.Popen[bytes]", grace: float) -> int:
        """Wait until TensorBoard itself listens on a port, and return that; 0 where its time is over.

        Raises:
            HostError: it ends before, or does not listen.
        """
        deadline = time.monotonic() + _ANSWER_SECONDS
        while process.poll() is None:
            port = ports.listened_on(process.pid)
            if port or self._is_over(grace):
                return port
            if time.monotonic() > deadline:
                raise HostError(f"TensorBoard did not open a port on {_LOOPBACK} within {_ANSWER_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)
        raise HostError(f"TensorBoard ended with exit code {process.returncode}")

    def _is_over(self, grace: float) -> bool:
        """Return whether its time is over: that begins when the job has ended, or is suspended."""
        if not self._folder.path.is_dir():
            return True
        try:
            state = self._reader.record().state
        except (TacoLaunchError, OSError):
            return not self._folder.path.is_dir()
        if not state.is_terminal and state is not JobState.SUSPENDED:
            self._over_at = None
            return False
        self._over_at = self._over_at or time.monotonic()
        return time.monotonic() - self._over_at >= grace


def _ranks_folder(spec: JobSpec, folder: JobFolder) -> str:
    """Return where the job's ranks start on the head: in its copy of the code, in `workdir`, or in its caller's folder."""
    base = str(folder.code) if spec.code is not None and spec.code.source else spec.cwd
    return os.path.normpath(os.path.join(base, spec.workdir))  # noqa: PTH118 - an absolute one stays as it is
