"""Three hosts on one machine, and what a controller asks of the agent on the first of them."""

import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import Host, Network
from taco_launch.core.model.jobs import JobSpec, Policy
from taco_launch.hosts.inventory import profile
from tests.conftest import ended_by, eventually
from tests.e2e.hosts import Hosts, hosts, why_not
from tests.support.patience import patience

NAMES = ("n1", "n2", "n3")
STATE = "/run/taco-state"  # each host has its own /run
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VICTIM = Path(__file__).parent / "victim.py"
SSH = '#!/bin/sh\nexec {ssh} -F {config} "$@"\n'


class Cluster:
    """Three hosts of two slots each, and what a controller asks of the agent on the first."""

    def __init__(self, made: Hosts, agent: Path, python: str) -> None:
        self.made, self.python = made, python
        self.agent = f"{STATE}/agent/{agent.name}"
        self.cut_off: set[int] = set()
        for file in agent.parent.iterdir():
            shutil.copy(file, made.folder)
        programs = made.folder / "bin"
        programs.mkdir()
        (programs / "ssh").write_text(SSH.format(ssh=shutil.which("ssh"), config=made.ssh_config))
        (programs / "ssh").chmod(0o755)
        self.env = {"PATH": f"{programs}:{os.environ['PATH']}", "TACO_LAUNCH_STATE": STATE}
        self.sh(f"mkdir -p {STATE}/agent && cp {made.folder}/{agent.name} {made.folder}/py-spy-* {STATE}/agent")

    def sh(self, script: str, *words: str, on: int = 0) -> str:
        done = self.made.run("sh", "-c", script, "sh", *words, on=on, env=self.env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def call(self, op: str, head: int = 0, **request: Any) -> list[Any]:
        """Ask the agent as the controller does; give the frames, the bytes of logs as text."""
        stdin = f"{json.dumps({'protocol': 1})}\n{json.dumps(request)}\n"
        argv = [self.python, "-I", "-S", self.agent, op]
        done = self.made.run(*argv, on=head, env=self.env, stdin=stdin, timeout=patience(100))
        _header, newline, rest = done.stdout.encode().partition(b"\n")
        assert newline, done.stderr
        frames: list[Any] = []
        while rest:
            line, _newline, rest = rest.partition(b"\n")
            frames.append(json.loads(line))
            count = frames[-1].get("bytes", 0)
            frames += [rest[:count].decode("utf-8", "replace")] if count else []
            rest = rest[count:]
        return frames

    def spec(self, name: str, *command: str, **more: Any) -> JobSpec:
        """Describe a job on all hosts, as an inventory over SSH does."""
        addresses = [f"10.77.0.{number + 1}" for number in range(len(NAMES))]
        all_hosts = tuple(Host(name, at, slots=2) for name, at in zip(NAMES, addresses, strict=True))
        auto = profile.load("auto", "", {})
        policy = Policy(grace=1.0, host_loss_timeout=30.0)
        spec = JobSpec(name, command, all_hosts, head="n1", profile=auto, network=Network(), policy=policy)
        return replace(spec, **more)

    def submit(self, spec: JobSpec, /, head: int = 0, **environment: str) -> dict[str, Any]:
        caller = {"environment": environment, "umask": 0o022, "inherit": True}
        frames = self.call("submit", head, follow=False, spec=to_json(spec), caller=caller)
        found = [frame["job"] for frame in frames if "job" in frame]
        assert found, frames
        job: dict[str, Any] = found[0]["record"]
        return job

    def job(self, name: str, head: int = 0) -> dict[str, Any]:
        record: dict[str, Any] = self.call("get", head, name=name)[0]["job"]["record"]
        return record

    def ended(self, name: str, seconds: float = 40, head: int = 0) -> dict[str, Any]:
        try:
            eventually(
                ended_by(self.events(name, head), lambda: self.job(name, head)["ended"]), seconds, f"{name} to end"
            )
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.job(name, head)}") from None
        return self.job(name, head)

    def run(self, spec: JobSpec, **environment: str) -> dict[str, Any]:
        self.submit(spec, 0, **environment)
        return self.ended(spec.name)

    def log(self, name: str, rank: int | None = None, **asked: Any) -> list[str]:
        frames = self.call("logs", name=name, rank=rank, offset=0, tail=None, follow=False, **asked)
        text = "".join(frame for frame in frames if isinstance(frame, str))
        return [line for line in text.splitlines() if "setpgid" not in line]  # a race in mpirun's own start of ssh

    def alive(self, word: str) -> list[tuple[int, int]]:
        """Return (host, process) of all processes whose command line has this (a regular expression), but for zombies."""
        found = []
        for on in range(len(NAMES)):
            for process in self.path("/proc", on).glob("[0-9]*"):
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    if re.search(word, (process / "cmdline").read_text("utf-8", "replace").replace("\0", " ")):
                        found.append((on, int(process.name)))
        return found

    def events(self, name: str, head: int = 0) -> Path:
        """Return the file of a job's events."""
        return self.path(f"{STATE}/jobs/{name}/events.jsonl", head)

    def path(self, path: str, on: int = 0) -> Path:
        """Return where this machine sees a path of a host."""
        return Path(f"/proc/{self.made.inits[on]}/root{path}")

    def victims(self) -> list[tuple[int, int]]:
        return self.alive("victim.py")

    def pid(self, role: str, on: int = 0) -> int:
        """Find a process of the agent on a host (run, guard, attach), mpirun or orted."""
        pids = [pid for host, pid in self.alive(role) if host == on]
        assert pids, f"no {role} on {NAMES[on]}"
        return min(pids)

    def kill(self, pid: int, on: int, number: int = signal.SIGKILL) -> None:
        self.sh(f"kill -{int(number)} {pid}", on=on)

    def signal(self, processes: Sequence[tuple[int, int]], number: int) -> None:
        """Send a signal to (host, process) each: to all of a host at once."""
        for on in range(len(NAMES)):
            pids = [str(pid) for host, pid in processes if host == on]
            if pids:
                self.sh(f"kill -{int(number)} {' '.join(pids)}", on=on)

    def link(self, on: int, state: str) -> None:
        self.sh(f"ip link set eth0 {state}", on=on)
        (self.cut_off.discard if state == "up" else self.cut_off.add)(on)


@contextlib.contextmanager
def on_plain_hosts(names: Sequence[str], folder: Path, agent: Path, keep: Sequence[Path] = ()) -> Iterator[Cluster]:
    """Make hosts with the agent on the first; skip the test where none can be made."""
    reason = why_not()
    python = shutil.which("python3", path=SYSTEM_PATH)
    if reason or not python or not shutil.which("mpirun"):
        pytest.skip(reason or "cannot: there is no python3 or no mpirun in the system's folders")
    with hosts(names, folder, keep) as made:
        yield Cluster(made, agent, python)
