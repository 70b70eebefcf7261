"""`agent enter`: a process beside a rank, on its host: a command with the rank's environment and folder, or a part of ours.

It asks the guard what that rank was given, and has the guard know it as the job's, with which it ends. Its stdin is what
the caller sends (core/protocol/calls/caller_input.py); when that ends, or the job does, it ends what it has started.
"""

import contextlib
import os
import select
import signal
import sys
import time
from typing import Dict, NamedTuple, Optional, Sequence

from taco_launch.agent.host import processes
from taco_launch.agent.processes import agent_program
from taco_launch.agent.rank.caller_stream import CallerStream, told_to_end
from taco_launch.agent.rank.exec_command import VisitorCommand
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import NO_JOB, NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE
from taco_launch.core.launch.command_line.env import rank_env, rank_of
from taco_launch.core.protocol.calls.caller_input import WINDOW, CallerInput, EndOfInput, InputData, WindowSize
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.rank_messages import Visit, Visited

_GRACE_SECONDS = 5.0
_GUARD_SECONDS = 10.0
_PAUSE_SECONDS = 0.02
_TICK_MS = 5000
# With these an MPI program would take the rank's own place at mpirun's daemon, which ends the job.
_OF_THE_RANK_ALONE = "PMIX_"
# How a command is run: on pipes, or on a terminal of its own: `terminal:KIND:ROWS:COLUMNS`.
# Or what of ours is run there instead, `pack:BYTES` and `unpack:BYTES`, with a path.
PIPES, TERMINAL, PACK, UNPACK = "pipes", "terminal", "pack", "unpack"
# What is said of a rank that has ended, while its job runs.
ENDED = "rank {} is no longer running"
_KINDS = frozenset((PIPES, TERMINAL, PACK, UNPACK))


class RankPlace(NamedTuple):
    """What a process beside a rank is given: its environment, folder and umask."""

    environment: Dict[str, str]
    folder: str
    umask: int


def main(folder: JobFolder, rank: int, how: str, command: Sequence[str], agent: str) -> int:
    """Be the parent of what is run beside a rank, and give its exit code: as env(1) where it cannot be started.

    `how` is one of the words above with its settings; `agent` is the file that this process runs from.
    """
    kind, *settings = how.split(":")
    if kind not in _KINDS:  # the head's agent is newer
        return _refuse(NO_JOB, f"the job was started by a version of taco-launch that does not know {kind!r}")
    own = processes.identify(os.getpid())
    try:
        guard = JsonConnection(folder.connect())
    except OSError:
        return _refuse(NO_JOB, f"no guard of the job answers in {folder.path}: has it ended?")
    guard.send(Visit(rank=rank, root=[] if own is None else [own.pid, own.start]))
    answer = _answer(guard)
    if answer is None or not answer.roots:
        return _refuse(NO_JOB, ENDED.format(rank))
    processes.become_subreaper()
    try:
        place = _place(answer.roots[0][0], answer)
        if kind in (PACK, UNPACK):
            command = agent_program.argv(agent, kind, *settings, *command)
        os.umask(place.umask)
        process = VisitorCommand(command, place.environment, place.folder, settings if kind == TERMINAL else ())
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        return _refuse(code, f"cannot run {command[0]!r}: {error.strerror}")
    return _serve(process, guard, CallerStream(sys.stdin.buffer))


def _serve(command: VisitorCommand, guard: JsonConnection, caller: CallerStream) -> int:
    """Pass on input, the output of a terminal and its size until the command has ended; give its exit code."""
    wakeup = _wake_on_child()
    messages = caller.receive(0, wanted=True)
    while True:
        for message in messages:
            _take(command, message)
        command.pass_on()
        code = command.code()
        if code is not None:
            command.finish()
            return code
        wanted = command.waiting < WINDOW
        poll = select.poll()
        caller.listen(poll, wanted=wanted)
        poll.register(guard.fileno(), select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        command.listen(poll)
        events = dict(poll.poll(_TICK_MS))
        if wakeup in events:
            os.read(wakeup, 4096)
            _reap(command.pid)
        command.act(events)
        messages = caller.receive(events.get(caller.fileno(), 0), wanted=wanted)
        if caller.gone or command.unread or (guard.fileno() in events and told_to_end(guard)):
            return _end(command)


def _take(command: VisitorCommand, message: CallerInput) -> None:
    if isinstance(message, InputData):
        command.give(message.data)
    elif isinstance(message, EndOfInput):
        command.end_input()
    elif isinstance(message, WindowSize):
        command.resize(message.rows, message.columns)


def _wake_on_child() -> int:
    """Return what can be read whenever a child has ended."""
    wakeup, wake = os.pipe()
    for end in (wakeup, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return wakeup


def _end(command: VisitorCommand) -> int:
    """End the command and all that it has started: HUP from its terminal and TERM, then KILL. Give its exit code."""
    command.hang_up()
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(number)
        until = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < until:
            code = command.code()
            over = code is not None and not processes.descendants(os.getpid())
            _reap(command.pid)
            if code is not None and over:
                return code
            time.sleep(_PAUSE_SECONDS)
    return SIGNAL_BASE + signal.SIGKILL


def _signal(number: int) -> None:
    for entry in processes.descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(entry.pid, number)


def _reap(command: int) -> None:
    """Collect those that came to us when their parents ended; the command is collected by who started it."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == command:
            return
        os.waitpid(ended.si_pid, 0)


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


def _place(wrapper: int, told: Visited) -> RankPlace:
    """Return the environment and the folder of a rank: what its wrapper has, and what the guard gave it."""
    with open(f"/proc/{wrapper}/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if entry]
    inherited = {os.fsdecode(name): os.fsdecode(value) for name, _equals, value in pairs}
    rank, local_rank, _size = rank_of(inherited) or (0, 0, 1)
    kept = {name: value for name, value in inherited.items() if not name.startswith(_OF_THE_RANK_ALONE)}
    given = rank_env(rank, local_rank, told.environment, told.processes)
    return RankPlace({**kept, **given}, os.readlink(f"/proc/{wrapper}/cwd"), told.umask)


def _refuse(code: int, why: str) -> int:
    sys.stderr.write(f"taco-launch: {why}\n")
    return code
