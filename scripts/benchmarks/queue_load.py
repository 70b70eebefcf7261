#!/usr/bin/env python3
"""Measures what a long queue costs: while nothing happens, for `list` and `stop`, and for each job that starts.

One job has every slot of this machine, the others wait for it. Nothing happens at first, as in most of a night; then the
jobs start one after the other.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pairing
import verdicts

from taco_launch.agent.api import serve
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.protocol import framing as protocol
from taco_launch.hosts.inventory import profile
from taco_launch.hosts.remote import agent_bundle

_BAR_MB, _BAR_PERCENT = 100.0, 5.0
# Seconds of `list`, of `stop` of so many names, and CPU seconds of the scheduler for each job that starts.
_BAR_LIST, _BAR_STOP, _BAR_START = 0.4, 1.0, 0.03
_STOPPED = 30
_SLOTS = 2


@dataclass(frozen=True)
class Process:
    """One process of the agent: what it is, its share of the memory in MB (PSS), and its CPU time so far in seconds.

    `own` is that of the process alone, `cpu` has that of its children which have ended: supervisors are the scheduler's.
    """

    kind: str
    megabytes: float
    own: float
    cpu: float


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    made = verdicts.parser(
        "What a queue costs while nothing happens: memory and CPU time of all agent processes together.",
        "example:\n  .venv/bin/python scripts/benchmarks/queue_load.py --runs 1",
        timeout=60.0,
    )
    made.add_argument("--jobs", type=verdicts.count, default=1000, metavar="N", help="jobs that wait (default: 1000)")
    asked = made.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        state = Path(scratch, "state")
        os.environ.update(TACO_LAUNCH_STATE=str(state), TACO_LAUNCH_LEASES=str(Path(scratch, "leases")))
        verdicts.need("mpirun", os.environ)
        agent = _install(state)
        try:
            begin = time.monotonic()
            _submit(agent, "holder", "sleep", "86400")
            for number in range(asked.jobs):
                _submit(agent, f"waits-{number}", "true")
            took = time.monotonic() - begin
            verdicts.tell(f"{asked.jobs} jobs wait, submitted in {took:.0f} s")
            time.sleep(5.0)
            found = [_measure(agent, asked.timeout) for _run in range(asked.runs)]
            listed = [_seconds("list") for _run in range(asked.runs + 1)][1:]
            stopped = _seconds(
                "stop", *(f"waits-{asked.jobs - 1 - number}" for number in range(min(_STOPPED, asked.jobs)))
            )
            starts = _starts(agent, asked.timeout)
        finally:
            _end(agent)
    memory = pairing.spread([sum(process.megabytes for process in after) for _before, after, _seconds in found])
    percents = [100.0 * (_cpu(after) - _cpu(before)) / seconds for before, after, seconds in found]
    table = [("process", "MB"), *((process.kind, f"{process.megabytes:.1f}") for process in found[-1][1])]
    bars = (
        verdicts.Verdict("memory of all agent processes", memory, _BAR_MB, "MB"),
        verdicts.Verdict("CPU time", pairing.spread(percents), _BAR_PERCENT, "% of a core"),
        verdicts.Verdict("list", pairing.spread(listed), _BAR_LIST, "s"),
        verdicts.Verdict(f"stop of {_STOPPED} names", pairing.spread([stopped]), _BAR_STOP, "s"),
        verdicts.Verdict(
            "CPU time of the scheduler for each job that starts",
            starts,
            _BAR_START,
            "s",
            missing="no job waits any more",
        ),
    )
    report = verdicts.Report("queue_load", asked.runs, (table,), bars, {"jobs": asked.jobs, "submit_seconds": took})
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _install(state: Path) -> Path:
    contents = agent_bundle.sources()
    agent = state / "agent" / agent_bundle.name(contents)
    agent.parent.mkdir(parents=True, mode=0o700)
    agent.write_bytes(agent_bundle.build(contents))
    return agent


def _submit(agent: Path, name: str, *command: str) -> None:
    """Have this process do what `agent submit` does: a thousand of those would take minutes."""
    host = Host("localhost", "127.0.0.1", slots=_SLOTS, connection="local")
    auto = profile.load("auto", "", {})
    spec = JobSpec(name=name, command=command, hosts=(host,), np=_SLOTS, head="localhost", profile=auto)
    caller = {"environment": dict(os.environ), "umask": 0o022}
    request = {"spec": to_json(spec), "caller": caller, "follow": False}
    call = protocol.dump(protocol.header("submit", "")) + protocol.dump(request)
    answer = io.BytesIO()
    if serve.serve("submit", str(agent), io.BytesIO(call), answer):
        raise SystemExit(answer.getvalue().decode())


def _measure(agent: Path, seconds: float) -> tuple[list[Process], list[Process], float]:
    """Return the processes of the agent before and after some seconds, and how many those were."""
    begin, before = time.monotonic(), _processes(agent)
    time.sleep(seconds)
    return before, _processes(agent), time.monotonic() - begin


def _seconds(*words: str) -> float:
    begin = time.monotonic()
    pairing.prepare(("taco-launch", *words), os.environ)
    return time.monotonic() - begin


def _starts(agent: Path, seconds: float) -> pairing.Spread | None:
    """Stop the job that has all slots, and return the scheduler's CPU seconds for each job that starts in some seconds.

    None where no job waits any more.
    """
    jobs = agent.parent.parent / "jobs"
    _stop(agent, ["holder"])
    begin, before, ended = time.monotonic(), _scheduler(agent), _ended(jobs)
    time.sleep(seconds)
    count = _ended(jobs) - ended
    verdicts.tell(f"{count} jobs in {time.monotonic() - begin:.0f} s")
    used = _scheduler(agent) - before
    return pairing.spread([used / count]) if used > 0 and count else None


def _scheduler(agent: Path) -> float:
    return sum(process.own for process in _processes(agent) if process.kind == "schedule")


def _ended(jobs: Path) -> int:
    return sum('"ended"' in events.read_text() for events in jobs.glob("waits-*/events.jsonl"))


def _processes(agent: Path) -> list[Process]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if not any(word.startswith(str(agent.parent.parent)) for word in words[:5]):
                continue
            lines = (entry / "smaps_rollup").read_text(encoding="ascii").splitlines()
            pss = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except (OSError, StopIteration):
            continue
        own, all_ = (sum(map(int, fields[11:last])) / os.sysconf("SC_CLK_TCK") for last in (13, 15))  # proc(5)
        found.append(Process(_kind(words), pss / 1000, own, all_))
    return sorted(found, key=lambda process: process.kind)


def _kind(words: list[str]) -> str:
    after = next((index + 1 for index, word in enumerate(words) if word.endswith(".pyz")), 0)
    return words[after] if after < len(words) else words[0]


def _cpu(processes: list[Process]) -> float:
    return sum(process.cpu for process in processes)


def _stop(agent: Path, names: list[str]) -> None:
    call = protocol.dump(protocol.header("stop", ""))
    call += protocol.dump({"names": names, "by": "the benchmark", "signal": 15, "grace": 0})
    answer = io.BytesIO()
    if serve.serve("stop", str(agent), io.BytesIO(call), answer):
        raise SystemExit(answer.getvalue().decode())


def _end(agent: Path) -> None:
    """Stop all jobs: first those that wait, otherwise each would start as the one before it ends."""
    names = sorted(folder.name for folder in (agent.parent.parent / "jobs").glob("[!.]*"))
    _stop(agent, [name for name in names if name != "holder"])
    _stop(agent, ["holder"])
    argv = [shutil.which("taco-launch") or "taco-launch", "wait", "holder"]
    subprocess.run(argv, env=dict(os.environ), capture_output=True, timeout=60, check=False)


if __name__ == "__main__":
    verdicts.start(main)
