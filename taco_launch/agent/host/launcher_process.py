"""How the supervisor starts mpirun, apart from its own session, and reads what it says."""

import os
import signal
import subprocess
from typing import IO, Mapping, Sequence

from taco_launch.agent.host import processes
from taco_launch.agent.logs import segments
from taco_launch.core.errors import HostError

# What a terminal or a lost connection sends: none of the supervisor's business.
IGNORED = (signal.SIGHUP, signal.SIGINT)


def spawn(argv: Sequence[str], cwd: str, environment: Mapping[str, str], umask: int) -> "subprocess.Popen[bytes]":
    """Start the launcher in `cwd`; its stdout and stderr are one pipe.

    Raises:
        HostError: it cannot be run.
    """

    def before_exec() -> None:
        for number in IGNORED:  # what is ignored here would be ignored by every rank
            signal.signal(number, signal.SIG_DFL)
        # Orphans of a rank that is killed stay descendants of the launcher; the supervisor would be the next in line.
        processes.become_subreaper()
        os.umask(umask)

    try:
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=before_exec,  # noqa: PLW1509 - the supervisor has one thread
        )
    except OSError as error:
        what = error.filename or argv[0]
        hint = None
        if what == argv[0]:  # not the folder that it starts in
            program = what.rpartition("/")[2]
            hint = f"install {program} there or in the image, name it in the inventory (mpirun: PATH), or choose another --launcher"
        raise HostError(f"cannot run {argv[0]}: {what}: {error.strerror}", hint) from None


def drain(output: IO[bytes], log: segments.Writer) -> bool:
    """Bring what has come from the launcher into its log, without waiting; False at the end of it."""
    while True:
        try:
            data = os.read(output.fileno(), segments.CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        log.write(data)


def wake_on_child() -> int:
    """Return a descriptor that can be read when a child has ended."""
    wakeup, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return wakeup
