"""Lost connections of scripts/chaos.py: three hosts of network namespaces, each with an sshd, and one of them is cut off.

In each round jobs run over the hosts while the link of one, the head among them, is down: shorter or longer than the time
after which a host counts as lost, or until all the jobs have ended and nothing of them is left anywhere.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chaos_jobs import MOST_SECONDS, RANK, Result, untrue_success, watch

from taco_launch.core.model.jobs import Policy
from tests.conftest import has_ended
from tests.e2e.cluster import NAMES, STATE, SYSTEM_PATH, Cluster
from tests.e2e.hosts import hosts, why_not
from tests.support.agents import build

_LOSS_SECONDS = 8.0  # on an idle machine; by default a host counts as lost after 60
# How long a link is down, least and most, in times of that.
_CUTS = {"short": (0.05, 0.33), "long": (0.33, 2.0), "for good": (1e3, 1e3)}
_JOBS, _SLOTS = 3, 4
_SETTLE_SECONDS = 20.0


@dataclass(frozen=True)
class Plan:
    """One job; it is submitted `at` seconds after its round begins."""

    name: str
    launcher: str
    ranks: int
    seconds: float
    exit_code: int
    at: float


@dataclass(frozen=True)
class Round:
    """Jobs, and the host whose link is down `after` seconds for `down` seconds, or until all of them have ended."""

    jobs: tuple[Plan, ...]
    on: int
    kind: str
    after: float
    down: float


def rounds(seed: int, count: int, loss: float) -> list[Round]:
    """Return the rounds of a seed; `loss` is the time after which a host counts as lost, in seconds."""
    random_ = random.Random(seed)  # noqa: S311 - no secret
    found = []
    for number in range(count):
        jobs = tuple(
            Plan(
                name=f"l{number}-{place}",
                launcher=random_.choice(("mpirun", "env")),
                ranks=random_.randint(2, 2 * _SLOTS),
                seconds=round(random_.uniform(0, 1.5 * loss), 2),
                exit_code=random_.choice((0, 0, 0, 3)),
                at=round(random_.uniform(0, 3), 2),
            )
            for place in range(_JOBS)
        )
        kind = (*_CUTS, random_.choice(list(_CUTS)))[number % 4]
        down = round(random_.uniform(*_CUTS[kind]) * loss, 2)
        found.append(Round(jobs, random_.randrange(len(NAMES)), kind, round(random_.uniform(0, 8), 2), down))
    return found


def left_out() -> str:
    """Return why no link can be cut here, "" where one can."""
    missing = [name for name in ("python3", "mpirun") if not shutil.which(name, path=SYSTEM_PATH)]
    return why_not() or (f"{missing[0]} is not installed in the system's folders" if missing else "")


class Links:
    """Hosts, the jobs on them, and what is seen of both."""

    def __init__(self, folder: Path, patience: float, result: Result) -> None:
        """Note where the hosts' files are to be; `result` gets the counts and findings."""
        self._folder, self._patience, self._result = folder, patience, result
        self.loss = _LOSS_SECONDS * patience
        self._truth = folder / "truth"

    def run(self, planned: list[Round], until: float) -> None:
        """Make the hosts, and do one round after the other, none later than a monotonic time."""
        self._truth.mkdir(parents=True)
        over = threading.Event()
        with hosts(NAMES, self._folder) as made:
            self._cluster = Cluster(
                made, build(self._folder / "agent"), shutil.which("python3", path=SYSTEM_PATH) or ""
            )
            try:
                for on in range(len(NAMES)):
                    own = (over, self._result.burned, STATE, self._cluster.path("/proc", on))
                    threading.Thread(target=watch, args=own, daemon=True).start()
                for round_ in planned:
                    if time.monotonic() < until:
                        self._do(round_)
            finally:
                over.set()

    def _do(self, round_: Round) -> None:
        with ThreadPoolExecutor(_JOBS) as pool:
            following = [pool.submit(self._follow, plan) for plan in round_.jobs]
            time.sleep(round_.after)
            begin = time.time()
            self._cluster.link(round_.on, "down")
            wait(following, timeout=round_.down)
            end = time.time()
            self._cluster.link(round_.on, "up")
        self._result.faults[f"link down, {round_.kind}"] += 1
        for plan, followed in zip(round_.jobs, following, strict=True):
            where = f"{plan.name}: {NAMES[round_.on]} cut off {begin:.1f} to {end:.1f}, {round_.kind}"
            try:
                record = followed.result()
            except Exception as error:  # noqa: BLE001 - whatever came instead of an answer is what was told
                self._result.wrong.append(f"{where}: {type(error).__name__}: {error}"[:500])
                continue
            told = f"{where}: {record['state']} from {record['submitted']} to {record['ended']}: {record['reason']}"
            if record["ended"] is None and any(NAMES[round_.on] in host for host, _why in record["waiting"]):
                self._result.right += 1  # it needs the host, waits for it, and says so
            elif record["ended"] is None:
                told += f"; {record['waiting']}"
                self._result.hung.append(told)
            elif why := self._is_wrong(plan, record, NAMES[round_.on], begin, end):
                self._result.wrong.append(f"{why}: {told}")
            else:
                self._result.right += 1

    def _follow(self, plan: Plan) -> dict[str, Any]:
        """Submit a job, wait until it has ended and nothing of it is left on any host, and return its record."""
        time.sleep(plan.at)
        words = (str(self._truth), str(plan.seconds), str(plan.exit_code), f"{plan.name}.end")
        policy = Policy(grace=1.0, host_loss_timeout=self.loss)
        spec = self._cluster.spec(plan.name, "sh", "-c", RANK, "sh", *words, np=plan.ranks, policy=policy)
        spec = replace(spec, launcher=plan.launcher, hosts=tuple(replace(host, slots=_SLOTS) for host in spec.hosts))
        record = self._cluster.submit(spec)
        until = time.monotonic() + MOST_SECONDS * self._patience
        while record["ended"] is None and time.monotonic() < until:
            time.sleep(0.5)
            if has_ended(self._cluster.events(plan.name)):
                record = self._cluster.job(plan.name)
        if record["ended"] is None:
            record = self._cluster.job(plan.name)
            self._cluster.call("stop", names=[plan.name], by="chaos", signal=15, grace=0)
        until = time.monotonic() + self.loss + _SETTLE_SECONDS * self._patience
        # Of the agent, of a launcher; of a rank.
        word = rf"/jobs/{plan.name}(/|\s|$)|\s{plan.name}\.end"
        while (left := self._cluster.alive(word)) and time.monotonic() < until:
            time.sleep(0.5)
        self._result.orphans += [f"{plan.name}: {pid} on {NAMES[on]}: {self._line(on, pid)}" for on, pid in left]
        return record

    def _line(self, on: int, pid: int) -> str:
        try:
            return (
                self._cluster.path(f"/proc/{pid}/cmdline", on).read_text("utf-8", "replace").replace("\0", " ")[-160:]
            )
        except OSError:
            return "gone meanwhile"

    def _is_wrong(self, plan: Plan, record: dict[str, Any], host: str, begin: float, end: float) -> str:
        """Return what is wrong with the told end of a job while a host was cut off, "" if nothing is."""
        if record["state"] == "SUCCEEDED":
            return untrue_success(self._truth, plan.name, plan.ranks, plan.exit_code)
        if record["state"] == "FAILED" and record["exit_code"] == plan.exit_code != 0:
            return ""
        taken = {NAMES[0], *(record["hosts"] or NAMES)}
        if host not in taken or len(taken) == 1 or end < record["submitted"] or begin > record["ended"]:
            return "nothing that it needs was cut off"
        # The first connection is not tried again for as long.
        if record["started"] is not None and end - begin < 0.33 * self.loss:
            return "its connections were back in time"
        return "" if any(name in record["reason"] for name in NAMES) else "its reason names no host"
