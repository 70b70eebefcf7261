"""Jobs of scripts/chaos.py: what happens to each, what is seen of it, and whether that is what its ranks noted."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SLOTS = 4
PROC = Path("/proc")
# How a process of each kind is recognised: words of its command line, which also has the job's folder or name.
_KINDS = {
    "controller": (),
    "supervisor": ("run", "/jobs/{name}"),
    "guard": ("guard", "/jobs/{name}"),
    "wrapper": ("rank", "/jobs/{name}"),
    "mpirun": ("mpirun", "/jobs/{name}"),
    "program": ("{truth}", "{name}.end"),  # of a shell: the controller's line has these words, too
    "scheduler": ("schedule",),
    "keeper": ("keep-queue",),
}
# Kinds whose end changes what becomes of their job. The others must not be noticed.
_FATAL = frozenset(("supervisor", "guard", "wrapper", "mpirun", "program"))
# What each rank runs: it notes its start, and its end if it comes that far.
RANK = 'touch "$1/$TACO_LAUNCH_JOB.$TACO_LAUNCH_ATTEMPT.$RANK.start"; sleep "$2"; touch "$1/$TACO_LAUNCH_JOB.$TACO_LAUNCH_ATTEMPT.$RANK.end"; exit "$3" # $4'
MOST_SECONDS = 150.0  # after its last fault a job ends within this: a lost guard alone takes 20 s to be missed
_SETTLE_SECONDS = 45.0
# For a process of a kind to be there: a job starts, or waits for its slots.
_APPEAR_SECONDS = 10.0
_BUSY_SECONDS = 15.0
_TERMINAL = frozenset(("SUCCEEDED", "FAILED", "CANCELLED", "LOST"))


@dataclass(frozen=True)
class Plan:
    """One job and what happens to it."""

    name: str
    ranks: int
    seconds: float
    exit_code: int
    # "run" follows the job and stops it when its controller is interrupted; "submit" returns.
    verb: str
    restart: bool
    # The kind of process, "disk", or "" for no fault.
    fault: str
    signal: int
    # Seconds after there is such a process.
    after: float
    # Whether a stopped process is continued after a few seconds.
    resumed: bool


@dataclass
class Result:
    """Counts and findings of one run."""

    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    burned: list[str] = field(default_factory=list)
    right: int = 0
    refused: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    # Kinds of faults that cannot be done here, each with the reason.
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def is_bad(self) -> bool:
        """Return whether there is anything that must not be."""
        return bool(self.wrong or self.lost or self.hung or self.orphans or self.burned)


def plans(seed: int, count: int, *, disk: bool) -> list[Plan]:
    """Return the jobs of a seed, and the fault of each."""
    random_ = random.Random(seed)  # noqa: S311 - no secret
    kinds = [*_KINDS, *(["disk"] if disk else []), ""]
    found = []
    for number in range(count):
        fault = kinds[number % len(kinds)] if number < len(kinds) else random_.choice(kinds)
        stops = fault in ("supervisor", "guard", "scheduler", "wrapper") and random_.random() < 0.3
        found.append(
            Plan(
                name=f"c{number}",
                ranks=random_.randint(1, 3),
                seconds=round(random_.uniform(0.0, 3.0), 2),
                exit_code=random_.choice((0, 0, 0, 3)),
                verb=random_.choice(("run", "submit")),
                restart=random_.random() < 0.2,
                fault=fault,
                signal=int(signal.SIGSTOP if stops else signal.SIGKILL),
                after=round(random_.uniform(0.0, 1.5), 2),
                resumed=fault != "guard" or random_.random() < 0.5,
            )
        )
    random_.shuffle(found)
    return found


class Chaos:
    """Jobs, faults and what is seen of them."""

    def __init__(self, folder: Path, patience: float) -> None:
        """Prepare the folders; `patience` is how many times longer than an idle machine everything may take."""
        self.truth, self.state, self._patience = folder / "truth", folder / "state", patience
        self.truth.mkdir()
        self.state.mkdir(mode=0o700, exist_ok=True)
        self._inventory = folder / "inventory.yaml"
        self._inventory.write_text(
            f"cluster: chaos\ncontainer: null\nhosts:\n  localhost: {{slots: {_SLOTS}, connection: local}}\n"
        )
        own = {
            "TACO_LAUNCH_STATE": str(self.state),
            "TACO_LAUNCH_LEASES": str(folder / "leases"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self.environ = {
            **os.environ,
            **own,
            "PYTHONPATH": str(ROOT),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        self.result = Result()
        self.begun: set[str] = set()
        self._accepted: set[str] = set()
        self._touched: dict[str, str] = {}
        self._lock = threading.Lock()
        self._disk = threading.Lock()
        # When the disk was full: seconds since the epoch.
        self._full: list[tuple[float, float]] = []
        self._over = threading.Event()

    def taco(self, *words: str) -> list[str]:
        """Return a command line of taco-launch."""
        return [sys.executable, "-m", "taco_launch", "-i", str(self._inventory), *words]

    def ask(self, *words: str) -> dict[str, object]:
        """Return what a command prints as JSON."""
        done = subprocess.run(
            self.taco(*words, "--json"), env=self.environ, capture_output=True, check=False, timeout=120
        )
        found: dict[str, object] = json.loads(done.stdout or b"{}")
        return found

    def execute(self, plan: Plan) -> None:
        """Submit a job, and send its fault at its moment."""
        options = ["--restart", "on-failure", "--backoff-limit", "1", "--backoff", "1s"] if plan.restart else []
        program = ["sh", "-c", RANK, "sh", str(self.truth), str(plan.seconds), str(plan.exit_code), f"{plan.name}.end"]
        begun = time.time()
        words = self.taco(plan.verb, "--name", plan.name, "--np", str(plan.ranks), *options, "--", *program)
        with subprocess.Popen(words, env=self.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as controller:
            if plan.fault:
                self._strike(plan, controller)
            try:
                _out, errors = controller.communicate(timeout=MOST_SECONDS * self._patience)
            except subprocess.TimeoutExpired:
                controller.kill()
                errors = b""
        returned = plan.verb == "submit" and controller.returncode == 0
        if returned or (self.state / "jobs" / plan.name).exists():
            self._accepted.add(plan.name)
        elif plan.fault in ("", "program", "mpirun") and not self._was_full(begun, time.time()):
            self.result.wrong.append(
                f"{plan.name}: not accepted, exit {controller.returncode} ({plan.verb}, {plan.fault}): {errors.decode(errors='replace').strip()[-300:]}"
            )

    def _strike(self, plan: Plan, controller: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _APPEAR_SECONDS * self._patience
        pids: list[int] = []
        while not pids and time.monotonic() < until:
            time.sleep(0.02)
            own = [controller.pid] if plan.fault in ("controller", "disk") else []
            pids = own or list(self._processes(plan))
        time.sleep(plan.after)
        if plan.fault == "disk":
            self._fill()
            return
        if not pids:
            return
        pid = random.Random(plan.name).choice(pids)  # noqa: S311 - no secret
        try:
            os.kill(pid, plan.signal)
        except ProcessLookupError:
            return
        with self._lock:
            self._touched[plan.name] = plan.fault
            self.result.faults[f"{plan.fault} {signal.Signals(plan.signal).name}"] += 1
        if plan.signal == signal.SIGSTOP and plan.resumed:
            time.sleep(random.Random(plan.name).uniform(1, 8))  # noqa: S311 - no secret
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                return

    def _fill(self) -> None:
        """Fill the disk of the state folder for two seconds; all jobs of that time may fail of it."""
        with self._disk:
            begun = time.time()
            filler = self.state / "filler"
            fill(filler)
            time.sleep(2)
            filler.unlink()
            self.result.faults["disk full"] += 1
            self._full.append((begun, time.time()))

    def _processes(self, plan: Plan) -> Iterator[int]:
        shell = plan.fault == "program"
        words = [word.format(name=plan.name, truth=self.truth) for word in _KINDS[plan.fault]]
        for pid, argv in processes():
            line = " ".join(argv)
            ours = str(self.state) in line or str(self.truth) in line
            if (
                ours
                and (argv[0] == "sh") is shell
                and all(any(each == word or each.endswith(word) for each in argv) for word in words)
            ):
                yield pid

    def watch(self) -> None:
        """Note processes of taco-launch that use a CPU for long, until `finish`."""
        watch(self._over, self.result.burned, str(self.state))

    def finish(self, jobs: list[Plan]) -> Result:
        """Wait for the ends of all jobs, and compare them with what the ranks noted."""
        until = time.monotonic() + MOST_SECONDS * self._patience
        states = self._states()
        while time.monotonic() < until and any(row["state"] not in _TERMINAL for row in states.values()):
            time.sleep(2)
            states = self._states()
        for plan in jobs:
            row = states.get(plan.name)
            if row is None:
                if plan.name in self._accepted:
                    self.result.lost.append(f"{plan.name}: accepted, and there is no record of it")
                else:
                    self.result.refused += 1
            elif row["state"] not in _TERMINAL:
                self.result.hung.append(
                    f"{plan.name}: {row['state']}: {row.get('reason')} ({self._touched.get(plan.name, 'no fault')})"
                )
            elif why := self._is_wrong(plan, row):
                self.result.wrong.append(
                    f"{plan.name}: {why}: {row['state']}: {row.get('reason')} ({plan.fault or 'no fault'})"
                )
            else:
                self.result.right += 1
        self._over.set()
        self._look_for_orphans()
        return self.result

    def _states(self) -> dict[str, dict[str, object]]:
        rows = self.ask("list").get("jobs")
        assert isinstance(rows, list)
        return {row["name"]: row for row in rows}

    def _is_wrong(self, plan: Plan, row: dict[str, object]) -> str:
        """Return what is wrong with the told end of a job, "" if nothing is."""
        if row["state"] == "SUCCEEDED":
            return untrue_success(self.truth, plan.name, plan.ranks, plan.exit_code)
        touched = self._touched.get(plan.name, "")
        if touched in _FATAL or self._met_a_full_disk(row) or (touched == "controller" and plan.verb == "run"):
            return ""
        if plan.exit_code == 0:
            return "nothing that it needs was ended"
        return "" if row["state"] == "FAILED" else f"its ranks ended with {plan.exit_code}"

    def _met_a_full_disk(self, row: dict[str, object]) -> bool:
        begin, end = (float(str(row.get(key) or 0)) for key in ("submitted", "ended"))
        return self._was_full(begin, end)

    def _was_full(self, begin: float, end: float) -> bool:
        """Return whether the disk was full at any time between two, or is."""
        return any(begin <= last and first <= end for first, last in self._full) or self._disk.locked()

    def _look_for_orphans(self) -> None:
        until = time.monotonic() + _SETTLE_SECONDS * self._patience
        left = self._left()
        while left and time.monotonic() < until:
            time.sleep(1)
            left = self._left()
        self.result.orphans += left

    def _left(self) -> list[str]:
        mine = (str(self.state), str(self.truth))
        return [
            f"{pid}: {' '.join(argv)[-160:]}"
            for pid, argv in processes()
            if pid != os.getpid() and any(word in " ".join(argv) for word in mine)
        ]


def fill(path: Path) -> None:
    """Write a file until the disk is full."""
    with open(path, "wb", buffering=0) as file:  # a buffer would be written once more by close(), which fails
        try:
            while True:
                file.write(b"\0" * (1 << 16))
        except OSError:
            pass


def untrue_success(truth: Path, name: str, ranks: int, exit_code: int) -> str:
    """Return why a job cannot have succeeded, by what its ranks noted; "" if it can."""
    if exit_code:
        return f"its ranks ended with {exit_code}"
    done = Counter(path.name.split(".")[1] for path in truth.glob(f"{name}.*.end"))
    most = max(done.values(), default=0)
    return "" if most == ranks else f"only {most} of {ranks} ranks came to their end"


def watch(over: threading.Event, burned: list[str], word: str, proc: Path = PROC) -> None:
    """Note processes with a word in their command lines that use a CPU for long, until it is over."""
    seen: dict[int, tuple[float, int]] = {}
    while not over.wait(_BUSY_SECONDS):
        now: dict[int, tuple[float, int]] = {}
        for pid, argv in processes(proc):
            line = " ".join(argv)
            if word not in line or argv[0] in ("mpirun", "sh"):
                continue
            used = cpu_seconds(pid, proc)
            before, times = seen.get(pid, (used, 0))
            busy = used - before > 0.6 * _BUSY_SECONDS
            now[pid] = (used, times + 1 if busy else 0)
            if busy and times:
                burned.append(f"{pid} used {used - before:.0f} s of CPU in {_BUSY_SECONDS:.0f} s: {line[-120:]}")
        seen = now


def processes(proc: Path = PROC) -> Iterator[tuple[int, list[str]]]:
    """Yield all processes: number and command line."""
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if line:
                yield int(folder.name), line.rstrip(b"\0").decode(errors="replace").split("\0")


def cpu_seconds(pid: int, proc: Path = PROC) -> float:
    """Return what a process has used of the CPU; 0 if it has gone."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
