"""Calls that run something beside a rank of a running job: its host's `agent enter`, and what goes to and fro.

What was started ends with the caller as well as with the job: it hears nothing more from us then (agent/rank/exec_process.py).
"""

import contextlib
import errno
import os
import select
import signal
import subprocess
import time
from typing import Callable, Dict, Iterator, Sequence, Tuple, Type

from taco_launch.agent.host import containers
from taco_launch.agent.processes import agent_program
from taco_launch.agent.rank import exec_process
from taco_launch.agent.rank.caller_stream import CallerStream
from taco_launch.agent.rank.tree_pack import HINT
from taco_launch.agent.slurm import slurm_job
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import recovery
from taco_launch.core.errors import NO_JOB, SIGNAL_BASE, TacoLaunchError, UsageError, code_of_process
from taco_launch.core.model import plans
from taco_launch.core.model.jobs import CleanUp, JobRecord, JobSpec, JobState
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.calls.caller_input import WINDOW
from taco_launch.core.protocol.calls.copy_files import ReadFiles, WriteFiles
from taco_launch.core.protocol.calls.exec_command import Exec, Exited, Output
from taco_launch.core.slurm import container_lines

_CHUNK = 1 << 16
_TICK_MS = 5000
_RECORD_SECONDS, _PAUSE_SECONDS = 2.0, 0.05
# How a command ends with its job: by HUP of its terminal, KILL or TERM, or as ssh reports a connection that was cut.
_ENDED_WITH_JOB = (SIGNAL_BASE + signal.SIGHUP, SIGNAL_BASE + signal.SIGKILL, SIGNAL_BASE + signal.SIGTERM, 255)


class NotRunningError(TacoLaunchError):
    """The job does not run, so nothing can run beside its ranks."""


def _exec(jobs: Jobs, _agent: str, request: Exec, caller: CallerStream) -> Iterator[Reply]:
    """Run a command; yield what it writes, and its exit code at its end.

    Raises:
        NotRunningError: the job does not run; its exit code is none that a command has.
    """
    how, terminal = exec_process.PIPES, request.terminal
    if terminal is not None:
        how = f"{exec_process.TERMINAL}:{terminal.kind}:{terminal.rows}:{terminal.columns}"
    folder = jobs.get(request.name)
    try:
        before = container_lines.prefix(records.read_spec(folder), str(slurm_job.entry_of(folder)))
        argv = _argv(folder, request.rank, how, (*before, *request.command))
    except NotRunningError as error:
        error.exit_code = NO_JOB
        raise
    for reply in _enter(argv, caller):
        if isinstance(reply, Exited) and reply.code in _ENDED_WITH_JOB and _has_ended(folder):
            # a terminal is in raw mode where this is shown
            words = f"\r\ntaco-launch: job {folder.name} has ended, so this command was ended too\r\n"
            yield Output(stream="err", data=words.encode())
        yield reply


def _has_ended(folder: JobFolder) -> bool:
    """Return whether a job has ended; its end is recorded a moment after its processes are gone."""
    until = time.monotonic() + _RECORD_SECONDS
    while recovery.current_record(folder).state is JobState.RUNNING:
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _read_files(jobs: Jobs, _agent: str, request: ReadFiles, caller: CallerStream) -> Iterator[Reply]:
    """Pack files beside a rank; where it or its job has ended, on its host.

    Raises:
        UsageError: it has ended, the path is relative, and the folder of the ranks is not known.
    """
    folder = jobs.get(request.name)
    record = recovery.current_record(folder)
    if record.state.is_terminal and record.shares:
        return _read_ended(folder, record, request, caller)
    how = f"{exec_process.PACK}:{request.most}"
    beside = _enter(_argv(folder, request.rank, how, [request.path]), caller)
    return _or_ended(beside, request.rank, lambda: _read_ended(folder, record, request, caller))


def _or_ended(beside: Iterator[Reply], rank: int, otherwise: Callable[[], Iterator[Reply]]) -> Iterator[Reply]:
    """Yield what comes of a visit beside a rank; where the rank has ended, what comes of the other call."""
    first = next(beside)
    if isinstance(first, Output) and first.data.rstrip().endswith(exec_process.ENDED.format(rank).encode()):
        yield from otherwise()
        return
    yield first
    yield from beside


def _read_ended(folder: JobFolder, record: JobRecord, request: ReadFiles, caller: CallerStream) -> Iterator[Reply]:
    spec = records.read_spec(folder)
    path = os.path.join(_start(folder, spec), request.path)  # noqa: PTH118 - it may be any text
    if not path.startswith("/"):
        which = "it" if record.state.is_terminal else f"rank {request.rank}"
        raise UsageError(
            f"job {folder.name}: {which} has ended, and the working folder of its ranks is not known",
            hint=f"give an absolute path, such as {folder.name}:/results",
        )
    line = ("pack", str(request.most), path)
    files = _enter(_on_host(folder, spec, record, request.rank, line), caller)
    in_code = record.state.is_terminal and f"{path}/".startswith(f"{folder.code}/")
    return _hinted(files, _left_of_code(folder, spec, record, request.rank)) if in_code else files


def _left_of_code(folder: JobFolder, spec: JobSpec, record: JobRecord, rank: int) -> str:
    """Return what is left of the code of a job that has ended, and of what its ranks wrote there."""
    host = _host(folder, record, rank)
    if spec.policy.clean_up is CleanUp.ALL and host in recovery.elsewhere(spec, record):
        return f"the code on {host} was removed when the job ended. Because of --clean-up all, the files that its ranks wrote there were removed too"
    return "the files of the code were removed when the job ended; what its ranks wrote or changed there is kept"


def _hinted(replies: Iterator[Reply], hint: str) -> Iterator[Reply]:
    """Add a hint where the last words are that there is no such file."""
    said = b""
    for reply in replies:
        if isinstance(reply, Output) and reply.stream == "err":
            said = (said + reply.data)[-_CHUNK:]
        elif isinstance(reply, Exited) and said.rstrip().endswith(os.strerror(errno.ENOENT).encode()):
            yield Output(stream="err", data=f"{HINT}{hint}\n".encode())
        yield reply


def _write_files(jobs: Jobs, _agent: str, request: WriteFiles, caller: CallerStream) -> Iterator[Reply]:
    how = f"{exec_process.UNPACK}:{request.most}"
    return _enter(_argv(jobs.get(request.name), request.rank, how, [request.path]), caller)


def _enter(argv: Sequence[str], caller: CallerStream) -> Iterator[Reply]:
    with started(argv) as process:
        for stream, data in converse(process, caller):
            yield Output(stream=stream, data=data)
        yield Exited(code=code_of_process(process.wait()))


@contextlib.contextmanager
def started(argv: Sequence[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a visitor; when the block ends it hears nothing more, by which it ends what it has started."""
    process = subprocess.Popen(
        list(argv),
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,  # it has to live on when this process's group is killed, to end its command
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()


def converse(process: "subprocess.Popen[bytes]", caller: CallerStream) -> Iterator[Tuple[str, bytes]]:
    """Yield what a process says (which stream, data) until both its outputs end; it gets what the caller sends.

    That the caller is gone it learns by the end of its input. More than WINDOW bytes are not taken from the caller ahead.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    streams: Dict[int, str] = {process.stdout.fileno(): "out", process.stderr.fileno(): "err"}
    os.set_blocking(process.stdin.fileno(), False)
    waiting, open_input = bytearray(), True
    messages = caller.receive(0, wanted=True)
    while streams:
        for message in messages:
            waiting += message.encode()
        poll = select.poll()
        for descriptor in streams:
            poll.register(descriptor, select.POLLIN)
        wanted = len(waiting) < WINDOW
        if open_input:
            caller.listen(poll, wanted=wanted)
            if waiting:
                poll.register(process.stdin, select.POLLOUT)
        events = dict(poll.poll(_TICK_MS))
        for descriptor in [each for each in streams if each in events]:
            data = os.read(descriptor, _CHUNK)
            if data:
                yield streams[descriptor], data
            else:
                del streams[descriptor]
        messages = []
        if open_input:
            messages = caller.receive(events.get(caller.fileno(), 0), wanted=wanted)
            open_input = _sent(process, waiting) and not caller.gone
            if not open_input:
                process.stdin.close()


def _sent(process: "subprocess.Popen[bytes]", waiting: bytearray) -> bool:
    """Send on what waits, as far as that goes at once; return whether the process still listens."""
    assert process.stdin is not None
    try:
        while waiting:
            del waiting[: os.write(process.stdin.fileno(), waiting[:_CHUNK])]
    except BlockingIOError:
        pass
    except OSError:
        waiting.clear()
        return False
    return True


def _argv(folder: JobFolder, rank: int, how: str, words: Sequence[str]) -> Tuple[str, ...]:
    """Return what runs something beside a rank, on its host: the agent there that the job was started with.

    Raises:
        NotRunningError: the job does not run.
    """
    record = recovery.current_record(folder)
    if record.state is not JobState.RUNNING:
        beside = (
            "files can be copied from an ended job, not to it"
            if how.startswith(exec_process.UNPACK)
            else "it has no running rank"
        )
        raise NotRunningError(f"job {folder.name}: it is {record.state.value}: {beside}")
    line = ("enter", str(folder.path), str(rank), how, "--", *words)
    return _on_host(folder, records.read_spec(folder), record, rank, line)


def _start(folder: JobFolder, spec: JobSpec) -> str:
    """Return the folder that the ranks of a job started in, "" where its image defines that (agent/snapshots/fetch.py)."""
    base = str(folder.code) if spec.code is not None and spec.code.source else spec.cwd
    return os.path.join(base, spec.workdir)  # noqa: PTH118 - see above


def _on_host(folder: JobFolder, spec: JobSpec, record: JobRecord, rank: int, line: Sequence[str]) -> Tuple[str, ...]:
    """Return what runs the job's agent on the host of a rank, in its container.

    Raises:
        UsageError: the job has no such rank.
    """
    return argv_on_host(folder, spec, record, _host(folder, record, rank), line)


def argv_on_host(
    folder: JobFolder, spec: JobSpec, record: JobRecord, host: str, line: Sequence[str]
) -> Tuple[str, ...]:
    """Return what runs the job's agent on one of its hosts, in its container."""
    if spec.slurm is not None:
        return slurm_job.argv_on_node(folder, host, line)
    variant = containers.of(spec)
    if variant != containers.here():
        return ssh.argv(host, str(folder.agent), *line, options=containers.ssh_options(variant))
    if host in recovery.elsewhere(spec, record):
        return ssh.argv(host, str(folder.agent), *line)
    return agent_program.argv(str(folder.agent), *line)


def _host(folder: JobFolder, record: JobRecord, rank: int) -> str:
    try:
        return plans.host_of(record.shares, rank)
    except LookupError as error:
        raise UsageError(f"job {folder.name}: it has no rank {rank}", hint=str(error)) from None


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {
    Exec: _exec,
    ReadFiles: _read_files,
    WriteFiles: _write_files,
}
