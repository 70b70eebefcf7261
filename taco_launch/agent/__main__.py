"""Run one agent process: an operation of the table below for the agent itself, any other one for the controller."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple

from taco_launch import agent as package
from taco_launch.agent.store.folders import JobFolder

COMMAND = "command"
Words = Mapping[str, Callable[[str], Any]]


class Operation(NamedTuple):
    """One kind of agent process."""

    # Below taco_launch.agent; imported when it runs, since every rank starts a process.
    module: str
    # The function's arguments by name, in the order of the words, with what parses each. Words at the end may be omitted
    # where the function has defaults. COMMAND takes the rest, without the `--` before it.
    words: Words
    function: str = "main"
    # Ranks and what runs beside them create files as their user would; all other processes keep theirs private.
    keeps_umask: bool = False


def job(path: str) -> JobFolder:
    """Return the folder of a job on this host."""
    return JobFolder(Path(path))


def is_dry_run(word: str) -> bool:
    """Return whether the word asks for a report alone."""
    return word == "--dry-run"


_JOB: Words = {"folder": job}
_ON_HOST: Words = {"folder": job, "job_id": str}
_WRAPPED: Words = {"folder": job, COMMAND: str}
_SLOTS: Words = {"size": str, "gpus": str, "leases": str, "state": str}
_HOROVOD: Words = {"folder": job, "driver": str, "address": str, "sizes": str, "is_first": int, COMMAND: str}
_RANKS: Words = dict.fromkeys(("first", "count", "world_size", "processes_per_slot"), int)
OPERATIONS: Mapping[str, Operation] = {
    "rank": Operation("rank.wrapper", _WRAPPED, keeps_umask=True),
    "start": Operation("rank.spawner", {"folder": job, **_RANKS, "gpus": str, COMMAND: str}, keeps_umask=True),
    "horovod": Operation("rank.horovod_host", _HOROVOD, keeps_umask=True),
    "horovod-driver": Operation("rank.horovod_driver", {"address": str, "port": int, "sizes": str}, keeps_umask=True),
    "daemon": Operation("rank.orted_wrapper", _WRAPPED, "run_daemon", keeps_umask=True),
    "proxy": Operation("rank.orted_wrapper", _WRAPPED, "run_proxy", keeps_umask=True),
    "enter": Operation("rank.exec_process", {"folder": job, "rank": int, "how": str, COMMAND: str}, keeps_umask=True),
    "pack": Operation("rank.tree_pack", {"most": int, "path": str}, keeps_umask=True),
    "unpack": Operation("rank.tree_unpack", {"most": int, "path": str}, keeps_umask=True),
    "tensorboard": Operation("tensorboard.keeper", _JOB),
    "run": Operation("supervisor.process", {"folder": job, "lock": int}),
    "guard": Operation("guard.guard", _ON_HOST),
    "guard-start": Operation("guard.relay", {**_ON_HOST, "leases": str}, "start_guard"),
    "attach": Operation("guard.relay", _ON_HOST, "attach"),
    "clear": Operation("guard.relay", _ON_HOST, "clear"),
    "remove": Operation("guard.relay", _ON_HOST, "remove"),
    "rank-stacks": Operation("stacks.reader", _JOB),
    "code": Operation("snapshots.fetch", {"folder": job, "descriptor": int}),
    "snapshot-serve": Operation("snapshots.serve", {"state": Path, "snapshot": str}),
    "snapshot-evict": Operation("snapshots.eviction", {"state": Path, "since": float, "dry_run": is_dry_run}),
    "slots": Operation("counters.slots_answer", _SLOTS),
    "watch": Operation("host.occupancy", _SLOTS, "watch_slots"),
    "keep-queue": Operation("scheduler.keeper", {"lock": int}),
    "schedule": Operation("scheduler.scheduler", {"lock": int, "keeper": int}),
    "begin": Operation("scheduler.elsewhere", _JOB),
    "allocation": Operation("scheduler.allocation", _JOB),
    "wake": Operation("upkeep.scheduler_wakeup", {}),
    "notify": Operation("messages.notify", {"folder": job, "event_time": str, "spec_file": int, "events_file": int}),
}
# Entries that start agent processes of their own, or ask whether they were started from the same file.
_NEEDS_AGENT = frozenset(
    ("enter", "run", "guard-start", "rank-stacks", "keep-queue", "schedule", "begin", "allocation", "wake")
)


def main(agent: str, arguments: List[str]) -> int:
    """Run one agent process and return its exit code; `agent` is the file it runs from."""
    package.process_main = main
    op, *words = arguments
    operation = OPERATIONS.get(op)
    if operation is None or not operation.keeps_umask:
        os.umask(0o077)
    if operation is None:
        from taco_launch.agent.api import serve

        return serve.serve(op, agent, sys.stdin.buffer, sys.stdout.buffer)
    named = named_arguments(operation.words, words)
    if op in _NEEDS_AGENT:
        named["agent"] = agent
    module = importlib.import_module(f"taco_launch.agent.{operation.module}")
    code: int = getattr(module, operation.function)(**named)
    return code


def named_arguments(types: Words, words: List[str]) -> Dict[str, Any]:
    """Return an operation's arguments by name, parsed."""
    named: Dict[str, Any] = {}
    for name, parse in types.items():
        if name == COMMAND:
            start = len(named) + (words[len(named) : len(named) + 1] == ["--"])
            named[name] = words[start:]
        elif len(named) < len(words):
            named[name] = parse(words[len(named)])
    return named
