"""A command beside a rank of a running job: on that rank's host, in its environment, and ended with the job.

On the head `run` answers with what the command says and its exit code. On the rank's host `agent visit` asks the guard
what that rank was given, and has the guard know it as the job's. It ends its command when the head's side is gone.
"""

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Dict, Iterator, Optional, Sequence, Tuple

from taco_launch.agent import containers, program, ssh
from taco_launch.agent.host import processes
from taco_launch.agent.store import records, recovery
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.errors import NO_JOB, NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE, UsageError
from taco_launch.launch.env import rank_env, rank_of
from taco_launch.model.jobs import JobRecord, JobState
from taco_launch.protocol.calls import Reply
from taco_launch.protocol.calls.exec_command import Exec, ExecEnd, Exited, Output
from taco_launch.protocol.connection import JsonConnection
from taco_launch.protocol.rank_messages import Visit, Visited

_CHUNK = 1 << 16
_GRACE_SECONDS = 5.0
_GUARD_SECONDS = 10.0
# With these an MPI program would take the rank's own place at mpirun's daemon, which ends the job.
_OF_THE_RANK_ALONE = "PMIX_"


def run(jobs: Jobs, _agent: str, request: Exec) -> Iterator[Reply]:
    """Run a command; yield what it writes, and its exit code at its end."""
    folder = jobs.get(request.name)
    argv = _argv(folder, recovery.current_record(folder), request.rank, request.command)
    own = processes.identify(os.getpid())
    mine = _file(folder, request.token)
    process = subprocess.Popen(
        argv,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,  # it has to live on when this process's group is killed, to end its command
    )
    assert process.stdin is not None
    close = process.stdin.close  # which is how it knows that nobody is there any more
    signal.signal(signal.SIGTERM, lambda _number, _frame: close())
    try:
        records.write_json(mine, None if own is None else [own.pid, own.start])
        yield from _said(process)
        yield Exited(code=_code(process.wait()))
    finally:
        close()
        mine.unlink(missing_ok=True)


def end(jobs: Jobs, _agent: str, request: ExecEnd) -> Iterator[Reply]:
    """End the command that `run` was called for with the same token."""
    mine = _file(jobs.get(request.name), request.token)
    told = records.read_json(mine)
    mine.unlink(missing_ok=True)
    pid, start = told or (0, 0)
    entry = processes.identify(pid)
    if entry is not None and entry.start == start:
        os.kill(pid, signal.SIGTERM)
    return iter(())


def main(folder: JobFolder, rank: int, command: Sequence[str]) -> int:
    """Be the command's parent on its host, and give its exit code: as env(1) where it cannot be started."""
    own = processes.identify(os.getpid())
    try:
        guard = JsonConnection(folder.connect())
    except OSError:
        return _refuse(NO_JOB, f"no guard of the job answers in {folder.path}: has it ended?")
    guard.send(Visit(rank=rank, root=[] if own is None else [own.pid, own.start]))
    answer = _answer(guard)
    if answer is None or not answer.roots:
        return _refuse(NO_JOB, f"rank {rank} does not run any more")
    try:
        environment, where = _place(answer.roots[0][0], answer)
        os.umask(answer.umask)
        child = subprocess.Popen(
            list(command), env=environment, cwd=where, stdin=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        return _refuse(code, f"cannot run {command[0]!r}: {error.strerror}")
    threading.Thread(target=_watch, args=(guard, child.pid), daemon=True).start()
    return _code(child.wait())


def _argv(folder: JobFolder, record: JobRecord, rank: int, command: Sequence[str]) -> Tuple[str, ...]:
    """Return what runs the command on its host: the agent there that the job was started with."""
    if record.state is not JobState.RUNNING:
        raise UsageError(f"job {folder.name}: it is {record.state.value}: no command can run beside its ranks")
    hosts = [share.host for share in record.shares for _rank in range(share.ranks)]
    if rank >= len(hosts):
        raise UsageError(f"job {folder.name}: it has no rank {rank}", hint=f"its ranks are 0 to {len(hosts) - 1}")
    words = ("visit", str(folder.path), str(rank), "--", *command)
    spec = records.read_spec(folder)
    variant = containers.of(spec)
    if variant != containers.here():
        return ssh.argv(hosts[rank], str(folder.agent), *words, options=containers.ssh_options(variant))
    if hosts[rank] in recovery.elsewhere(spec, record):
        return ssh.argv(hosts[rank], str(folder.agent), *words)
    return program.argv(str(folder.agent), *words)


def _file(folder: JobFolder, token: str) -> Path:
    """Return where the head's side leaves its process number; `token` holds nothing but hexadecimal digits."""
    return folder.path / f"exec-{int(token, 16):x}.json"


def _said(process: "subprocess.Popen[bytes]") -> Iterator[Reply]:
    """Yield what comes of a process until both its outputs end."""
    with selectors.DefaultSelector() as selector:
        for stream, file in (("out", process.stdout), ("err", process.stderr)):
            assert file is not None
            selector.register(file, selectors.EVENT_READ, stream)
        while selector.get_map():
            for key, _mask in selector.select():
                data = os.read(key.fd, _CHUNK)
                if data:
                    yield Output(stream=key.data, data=data)
                else:
                    selector.unregister(key.fileobj)


def _answer(guard: JsonConnection) -> Optional[Visited]:
    """Wait for the guard's answer; None where it is gone, or hangs."""
    deadline = time.monotonic() + _GUARD_SECONDS
    while time.monotonic() < deadline:
        if not select.select([guard], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        messages = guard.receive()
        if messages is None:
            return None
        for message in messages:
            if isinstance(message, Visited):
                return message
    return None


def _place(wrapper: int, told: Visited) -> Tuple[Dict[str, str], str]:
    """Return the environment and the folder of a rank: what its wrapper has, and what the guard gave it."""
    with open(f"/proc/{wrapper}/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if entry]
    inherited = {os.fsdecode(name): os.fsdecode(value) for name, _equals, value in pairs}
    rank, local_rank, _size = rank_of(inherited) or (0, 0, 1)
    kept = {name: value for name, value in inherited.items() if not name.startswith(_OF_THE_RANK_ALONE)}
    given = rank_env(rank, local_rank, told.environment, told.processes)
    return {**kept, **given}, os.readlink(f"/proc/{wrapper}/cwd")


def _watch(guard: JsonConnection, group: int) -> None:
    """End the command when the job ends, or nobody on the head's side is left: TERM, then KILL."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(guard.fileno(), select.POLLIN)
    poll.poll()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
        time.sleep(_GRACE_SECONDS)


def _code(returned: int) -> int:
    return SIGNAL_BASE - returned if returned < 0 else returned


def _refuse(code: int, why: str) -> int:
    sys.stderr.write(f"taco-launch: {why}\n")
    return code
