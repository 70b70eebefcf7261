"""The ladder and the nightly run on three hosts: a table, green nightly runs, a slow link that is found and named, and green again."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.bench.history.history import Ladder, LadderKind, open_history
from tests.lab.rig import Cluster, Done, Image, Lab, made
from tests.support.mail_server import mail_server

pytest.importorskip("scipy")
# A ladder is 36 jobs, a nightly run 6, each with the start of Python and torch.
pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(1500)]

NIGHTS, DAY = 12, 86400.0
# As lab.yaml, in less time: over the slow link a run of four ranks exchanges for seconds what else takes milliseconds.
MATRIX = """
name: night
workloads:
  gradients:
    kind: horovod
    command: >-
      python3 /opt/benchmark/pytorch_synthetic_benchmark.py --model tiny --gradients-only --threads 1
      --num-batches-per-iter 4
sizes: [2, 4]
variants: {plain: {mca: {mpi_yield_when_idle: 1}}}
repeats: 3
warmUps: 0
minEffect: 30%
"""


@dataclass(frozen=True)
class Site:
    """A lab that is set up, its history filled by a ladder, and a matrix to measure every night."""

    lab: Lab
    matrix: Path
    ladder: Done

    def __call__(self, *args: str, seconds: float = 900) -> Done:
        return self.lab.cluster(*args, seconds=seconds)

    @property
    def history(self) -> Path:
        return self.lab.state / "history.db"

    def night(self, cluster: Cluster | None = None, *words: str) -> tuple[int, str, dict[str, Any]]:
        """Make a nightly run, and give its exit code, its line and its summary."""
        done = (cluster or self.lab.cluster)("nightly", "run", str(self.matrix), *words, seconds=900)
        path = done.stdout.rpartition("summary: ")[2].strip()
        assert path.endswith(".md"), done.stdout + done.stderr
        return done.returncode, done.stdout, json.loads(Path(path).with_suffix(".json").read_text())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    words = ("--hosts", "3", "--slots", "2")
    with made("night", tmp_path_factory.mktemp("state"), *words, image=Image.TORCH) as lab:
        lab.cluster.ok("setup", "--yes", seconds=400)
        measured = lab.cluster("bench", "ladder", "lab", seconds=1300)
        assert measured.returncode == 0, measured.stderr
        matrix = tmp_path_factory.mktemp("matrix") / "night.yaml"
        matrix.write_text(MATRIX)
        yield Site(lab, matrix, measured)


@pytest.fixture(scope="module")
def seeded(site: Site) -> Site:
    """Return it with what a ladder of the matrix measures in its history, as a dozen accepted nights.

    Nights on two busy cores differ by far more than nightly runs on GPUs, so these do: each has other runs of the ladder, and a
    quarter more or less.
    """
    measured = site("bench", "ladder", str(site.matrix), "--repeats", "6")
    assert measured.returncode == 0, measured.stderr
    with open_history(site.history) as history:
        (one,) = history.ladders(LadderKind.LADDER, "night")
        runs = [run for _at, run in history.runs(one.id)]
        for ago in range(1, NIGHTS + 1):
            started, wave = one.started - ago * DAY, math.exp(0.25 * math.sin(7 * ago))
            night = f"night-{ago:06x}"
            history.begin(
                Ladder(night, "night", LadderKind.NIGHTLY_RUN, "", 1, one.cluster, started, started, "ok", True)
            )
            for position, run in enumerate(run for run in runs if (run.repeat + ago) % 2):
                readings = tuple(replace(each, value=each.value * wave) for each in run.readings)
                history.add(night, position, replace(run, readings=readings))
    return site


def test_a_ladder_prints_its_table_and_fills_the_history(site: Site) -> None:
    text = site.ladder.stdout
    for ranks in (1, 2, 4):
        assert re.search(rf"^ *{ranks} +[\d.,]+ ", text, re.MULTILINE), text
    assert "plain to fp16" in text
    found = json.loads(site("bench", "history", "--json").stdout)
    assert found, "the history shows nothing"
    with open_history(site.history) as history:
        (one,) = history.ladders(LadderKind.LADDER, "lab")
        runs = [run for _at, run in history.runs(one.id)]
    assert one.outcome == "done"
    assert len(runs) == 36
    assert all(run.readings for run in runs)
    assert {run.cell.ranks: run.hosts for run in runs} == {1: ("gpu1",), 2: ("gpu1",), 4: ("gpu1", "gpu2")}
    assert all(Path(run.log).is_file() for run in runs)
    assert json.loads(site("list", "--json").stdout)["jobs"] == []


def test_nights(seeded: Site) -> None:
    site = seeded
    for _ in range(2):
        code, line, told = site.night()
        assert (code, told["outcome"]) == (0, "ok"), line
        assert line.startswith("nightly night: OK: 2 cells as before; ")
    site.lab.fault("gpu2", "slow-link", "100mbit")
    chat = site.matrix.with_name("chat.json")
    pager = site.matrix.with_name("pager")
    pager.write_text(f"#!/bin/sh\ncat > {chat}\n")
    pager.chmod(0o755)
    with mail_server() as (port, mails):
        notify = ["notify:", f"  - 'smtp://127.0.0.1:{port}/?to=ops@example.com'", f"  - exec:{pager}", ""]
        site.matrix.write_text(MATRIX + "\n".join(notify))
        try:
            code, line, told = site.night()
        finally:
            site.lab.fault("gpu2", "heal")
            site.matrix.write_text(MATRIX)
    assert (code, told["outcome"]) == (6, "regression"), line
    assert "gradients plain at 4 ranks -" in line
    ((_sender, to, mail),) = mails
    assert (to, "Subject: [taco-launch] nightly night: regression" in mail) == (["ops@example.com"], True)
    sent = json.loads(chat.read_text())
    assert [row[:2] for row in sent["table"]][1] == ["gradients plain at 4 ranks", "regression"]
    page = Path(sent["files"][0]).read_text()
    assert page.index("gradients plain at 4 ranks -") < page.index("100Mbit") < page.index("<svg")
    assert 'night_outcome{night="night",outcome="regression"} 1.0' in site("metrics").stdout
    assert re.search(r"changed since the last accepted run: gpu2: NIC rate \S+: .*100Mbit", line), line
    judged = {each["ranks"]: each["verdict"] for each in told["judged"]}
    assert judged == {2: "ok", 4: "regression"}
    code, line, told = site.night()
    assert (code, told["outcome"]) == (0, "ok"), line


def test_a_slow_host_is_found_and_drained_and_the_next_night_measures_the_rest(seeded: Site, tmp_path: Path) -> None:
    """The policy drains it; after `heal` and `host resume` all hosts are judged by their own baseline again."""
    site = seeded
    health = {"drain": ["network rate"], "after": 2}
    names, container = ("gpu1", "gpu2", "gpu3"), site.lab.training()
    ops = site.lab.inventory(tmp_path / "c.yaml", *names, cluster=site.lab.name, container=container, health=health)
    site.lab.fault("gpu2", "slow-link", "100mbit")
    try:
        code, line, told = site.night(ops, "--bisect")
        assert (code, told["outcome"]) == (6, "regression"), line
        assert "gpu2: drained until host resume: policy: network rate: sends 0." in line
        code, line, told = site.night(ops, "--bisect")
    finally:
        site.lab.fault("gpu2", "heal")
    assert (code, told["outcome"]) == (0, "ok"), line
    assert "measured without drained hosts: gpu2 (by " in line
    assert {host for each in told["judged"] for host in each["hosts"]} == {"gpu1", "gpu3"}
    assert ops("host", "resume", "gpu2").returncode == 0
    code, line, told = site.night(ops)
    assert (code, told["outcome"]) == (0, "ok"), line
    assert "2 cells as before" in line
