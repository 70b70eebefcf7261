"""Four lab hosts and the people who share them: what they type, and what is seen of it from outside of taco-launch."""

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.conftest import eventually
from tests.faults import witness
from tests.lab.rig import Cluster, Lab
from tests.support.patience import patience

HOSTS = ("gpu1", "gpu2", "gpu3", "gpu4")
SLOTS = 2
LOSS_SECONDS = 15
# What is given after a fault on an idle machine: until then the job has its true state, and nothing of it is left anywhere.
SETTLED_SECONDS = LOSS_SECONDS + 30
# The jobs of both clusters: as pgrep matches a command line, and as a shell finds what is on a host.
JOBS = "/var/lib/taco-launch/containers/[^/]+/jobs"
KEPT = "/var/lib/taco-launch/containers/*/jobs"

# What a host has of any job: processes with a mark or of our own, mpirun and its daemons, leases and places that somebody
# has locked. No program of ours is asked. A process may end while it is looked at.
_LOOK = f"""
cd /proc
for file in $(grep -lsz '^TACO_LAUNCH_JOB_ID=' [0-9]*/environ); do
  mark=$(tr '\\0' '\\n' <"$file" 2>/dev/null | sed -n 's/^TACO_LAUNCH_JOB_ID=//p')
  [ -z "$mark" ] || echo "process ${{file%/*}} of $mark: $(tr '\\0' ' ' <"${{file%/*}}/cmdline" 2>/dev/null | cut -c1-80)"
done
pgrep -x -l 'mpirun|orted|prted' | sed 's/^/process /'
pgrep -f -l 'pyz (run|guard|rank) {JOBS}' | sed 's/^/process /'
for file in /run/taco-launch/leases/* {witness.FOLDER}/[0-9]*; do
  [ ! -e "$file" ] || flock --nonblock "$file" true || echo "locked $file: $(cat "$file" "$file".[0-9]* 2>/dev/null)"
done
cat {witness.FOLDER}/twice 2>/dev/null | sed 's/^/twice: /'
"""


class Person(Cluster):
    """Do what somebody at a controller does: submit jobs of witnesses, and wait for their end."""

    def submit(self, name: str, *options: str, seconds: float = 300, code: int = 0) -> None:
        """Submit a job of ranks that take their places and stay `seconds`."""
        self.ok("submit", "--name", name, *options, "--", *rank(seconds, code))

    def ended(self, name: str) -> dict[str, Any]:
        """Return a job once it has ended."""
        seconds = patience(SETTLED_SECONDS)
        deadline = time.monotonic() + seconds
        try:
            self("wait", name, seconds=seconds)
        except subprocess.TimeoutExpired:
            job = self.job(name)
            raise AssertionError(f"{name} has not ended after {seconds:.0f} s: {told(job)}") from None
        job = self.job(name)
        while not job.get("ended") and time.monotonic() < deadline:
            time.sleep(0.3)
            job = self.job(name)
        assert job.get("ended"), f"{name} has not ended after {seconds:.0f} s: {told(job)}"
        return job


@dataclass
class Site:
    """The hosts, one person, and a second cluster's person on the same hosts."""

    one: Person
    two: Person
    _counter: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def lab(self) -> Lab:
        return self.one.lab

    def name(self, stem: str) -> str:
        """Return a job's name that was not used before."""
        with self._lock:
            self._counter[stem] = self._counter.get(stem, 0) + 1
            return f"{stem}-{self._counter[stem]}"

    def inside(self, host: str, script: str, *words: str) -> str:
        """Run a script in a host, by the engine; give what it printed."""
        return self.lab.inside(host, "sh", "-c", script, "sh", *words, seconds=60).stdout.strip()

    def pids(self, host: str, pattern: str) -> list[str]:
        """Return the processes of a host whose command line a pattern matches."""
        # without a shell, whose own command line would hold the pattern
        return self.lab.inside(host, "pgrep", "-f", "--", pattern, seconds=60).stdout.split()

    def let_end(self, name: str, *on: str) -> float:
        """Have the ranks of a job of witnesses end on these hosts; return the moment."""
        for host in on:
            self.lab.sh(host, f"touch {witness.FOLDER}/end-{name}")
        return time.monotonic()

    def kill(self, host: str, pids: Sequence[str], sign: str = "KILL") -> float:
        """Signal processes, which have to be there; give the moment."""
        assert pids, f"there is nothing to kill on {host}"
        script = 'sign=$1; shift; kill -s "$sign" "$@" && echo done'
        assert self.inside(host, script, sign, *pids) == "done"
        return time.monotonic()

    def left(self, hosts: Sequence[str] = HOSTS) -> list[str]:
        """Look what hosts have of any job: all has to be gone when all jobs have ended."""
        with ThreadPoolExecutor(len(hosts)) as pool:
            found = pool.map(lambda host: self.inside(host, _LOOK).splitlines(), hosts)
            return [f"{host}: {line}" for host, lines in zip(hosts, found, strict=True) for line in lines]

    def left_of(self, job: Mapping[str, Any], hosts: Sequence[str] = HOSTS) -> list[str]:
        """Look what hosts have of one job: processes with its mark or its folder, and its leases."""
        return of_job(self.left(hosts), job)

    def settles(self, job: Mapping[str, Any], since: float, hosts: Sequence[str] = HOSTS) -> None:
        """Wait until nothing is left of a job that has ended, in the time that is given from the fault on."""
        found: list[str] = []
        while time.monotonic() < since + patience(SETTLED_SECONDS):
            found = self.left_of(job, hosts)
            if not found:
                return
            time.sleep(1)
        raise AssertionError(f"in time was left of {told(job)}:\n" + "\n".join(found or ["it ended too late"]))

    def is_quiet(self) -> None:
        """Wait until no host has anything of any job."""
        deadline = time.monotonic() + patience(SETTLED_SECONDS)
        found = self.left()
        while found and time.monotonic() < deadline:
            time.sleep(1)
            found = self.left()
        assert not found, "left on the hosts:\n" + "\n".join(found)

    def clear(self) -> None:
        """Remove what cases that failed have left, so that others can be told from them."""
        for person in (self.one, self.two):
            alive = [job["name"] for job in person.jobs() if not job["ended"]]
            if alive:
                person("stop", "--yes", "--grace", "0", *alive, seconds=300)
            person("prune", "--since", "0s", "--all", seconds=120)

    def is_up(self, host: str, seconds: float = 60) -> None:
        """Wait until both clusters' containers of a host take sessions."""
        listens = "ss -Hltn 'sport = :12222' | grep -q . && ss -Hltn 'sport = :12223' | grep -q . && echo yes"
        eventually(lambda: self.lab.answers(host) and self.inside(host, listens) == "yes", seconds, f"{host} to be up")

    @contextmanager
    def fault(self, host: str, *words: str, undo: str = "") -> Iterator[float]:
        """Put a fault on a host and give the moment; it is undone at the end, whatever comes."""
        since = time.monotonic()
        self.lab.fault(host, *words)
        try:
            yield since
        finally:
            if undo:
                self.lab.fault(host, undo)


def of_job(left: Sequence[str], job: Mapping[str, Any]) -> list[str]:
    """Return which of the lines of `Site.left` are of one job."""
    slots = {(share["host"], slot) for share in job["shares"] for slot in share["slots"]}
    words = (f" of {job['id']}", f"/jobs/{job['name']} ", f'"id":"{job["id"]}')
    locked = tuple(f"{host}: locked /run/taco-launch/leases/{slot}:" for host, slot in slots)
    return [line for line in left if any(word in line for word in words) or line.startswith(locked) or "twice" in line]


def rank(seconds: float = 300, code: int = 0) -> list[str]:
    """Return the command of a rank that takes its place; every host has it."""
    return ["python3", f"{witness.FOLDER}/witness.py", str(SLOTS), str(seconds), str(code)]


def told(job: Mapping[str, Any]) -> str:
    """Return what a job has come to."""
    return f"{job.get('name')}: {job.get('state')}, exit code {job.get('exit_code')}: {job.get('reason')}"
