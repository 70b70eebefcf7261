"""Alert rules, dashboards and metrics by Prometheus' own programs: promtool, and a server that scrapes a real exporter."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from taco_launch.bench.nightly import record
from taco_launch.bench.nightly.record import Installation, LastRun
from taco_launch.bench.nightly.schedule import Schedule, ScheduledRun
from taco_launch.core.model.job_counts import JobCounts
from taco_launch.core.model.job_view import LiveJob, Usage
from taco_launch.core.model.jobs import JobState
from taco_launch.core.model.slots import Drain, Occupancy, SlotState
from taco_launch.jobs.metrics import MONITORING
from taco_launch.jobs.metrics.families import text
from taco_launch.jobs.metrics.listen import Server
from tests.conftest import Taco, eventually
from tests.support.job_rows import row
from tests.support.monitoring import RULES, expressions
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

UNIT_TESTS = Path(__file__).with_name("alert_rules.yml")
FILES = [RULES, *sorted(MONITORING.glob("*.json"))]
STEPS = """
import time
for step in range(1, 10_000):
    print(f"step {step}/10000 | train loss 3.1 | norm 1.0 | lr 1.0 | 20 ms | 1234 tok/s", flush=True)
    time.sleep(0.1)
"""
SIMULATED = {
    "taco_launch_host_drain_info",
    "taco_launch_host_drain_timestamp_seconds",
    "taco_launch_job_gpu_use_ratio",
    "taco_launch_job_gpu_memory_ratio",
    "taco_launch_job_rdma_receive_bytes_per_second",
    "taco_launch_job_rdma_transmit_bytes_per_second",
}
INTERVAL = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}


def program(name: str) -> str:
    folder = os.environ.get("TACO_LAUNCH_PROMETHEUS")
    path = shutil.which(name) if folder is None else f"{folder}/{name}"
    if path is None:
        pytest.skip(f"cannot: TACO_LAUNCH_PROMETHEUS names no folder with {name}")
    return path


def promtool(*args: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [program("promtool"), *args], input=given, capture_output=True, text=True, timeout=patience(60), check=False
    )


def test_promtool_reads_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert (done.returncode, done.stderr) == (0, "")


def outcome_of(folder: Path, rules: str) -> "subprocess.CompletedProcess[str]":
    (folder / RULES.name).write_text(rules)
    shutil.copy(UNIT_TESTS, folder)
    return promtool("test", "rules", str(folder / UNIT_TESTS.name))


def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    rules = RULES.read_text("utf-8")
    named = {rule["alert"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]}
    assert {test["name"] for test in yaml.safe_load(UNIT_TESTS.read_text("utf-8"))["tests"]} == named
    done = outcome_of(tmp_path, rules)
    assert done.returncode == 0, done.stdout + done.stderr
    late = rules.replace("{{ $labels.host }} does not answer", "{{ $labels.host }} is away")
    assert "FAILED" in outcome_of(tmp_path, late).stderr


@pytest.fixture
def exporter(taco: Taco) -> Iterator[str]:
    """The address of a real exporter: of a job that trains, and a nightly run."""
    nights = taco.state / "nights"
    record.write(nights / "taco", LastRun(1.0, 1, 2.0, 8, "regression", summary=f"{nights}/taco/2026-03-02-1.md"))
    judged = {"hosts": ["n1"], "gpu": "", "workload": "a", "variant": "b", "ranks": 2, "metric": "img/sec"}
    summary = {"outcome": "regression", "ended": 2.0, "judged": [{**judged, "tonight": 9.0, "baseline": 10.0}]}
    (nights / "taco" / "2026-03-02-1.json").write_text(json.dumps(summary))
    hours_ago = (datetime.now().astimezone() - timedelta(hours=4)).hour  # whatever time of day it is
    entry = ScheduledRun("taco", Schedule(hours_ago, 30), "/", ("taco-launch",))
    record.write(nights / "taco", Installation("cron", "", entry, 0.0))
    taco.ok("submit", "--name", "train", "--np", "1", "--", sys.executable, "-c", STEPS)
    eventually(lambda: (taco.job("train").get("progress") or {}).get("rate"), what="progress")
    server = taco.start("metrics", "--listen", "0", "--compat", "mpi-operator")
    try:
        assert server.stderr is not None
        yield server.stderr.readline().decode().split()[-1].removeprefix("http://").removesuffix("/metrics")
    finally:
        server.kill()
        server.communicate()
        taco("stop", "--grace", "0", "train")


@pytest.mark.enable_socket
def test_promtool_reads_the_metrics(exporter: str, drained: str) -> None:
    scraped = {}
    for address in (exporter, drained):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=patience(30)) as answer:
            scraped[address] = answer.read().decode()
        done = promtool("check", "metrics", given=scraped[address])
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "\nmpi_operator_jobs_created_total 1.0\n" in scraped[exporter]
    assert '\nmpi_operator_job_info{launcher="train-launcher",namespace="local"} 1.0\n' in scraped[exporter]
    assert "taco_launch_job_rdma_receive_bytes_per_second{" in scraped[drained]


@pytest.fixture
def drained() -> Iterator[str]:
    """The address of an exporter of a simulated host with GPUs that is drained: a real drain would hold for this whole machine."""
    host = Occupancy("n1", (SlotState("slot-0"),), drain=Drain("ann@desk", 1.0, "new cable"))
    usage = Usage(1.0, 60.0, rdma_received=1e9, rdma_sent=1e9, gpus=8, gpu=0.9, gpu_memory=0.5)
    live = (LiveJob("gpus", None, (("n1", usage),)),)
    families = text((row("gpus", 1, JobState.RUNNING, 5.0),), JobCounts(), {"n1": host}, "simulated", live=live)
    with Server("127.0.0.1", 0, lambda: families) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def prometheus(exporter: str, drained: str, tmp_path: Path) -> Iterator[str]:
    """The URL of a real server that scrapes the exporters and has the rules."""
    config = {
        "global": INTERVAL,
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [target]}]}
            for name, target in (("real", exporter), ("simulated", drained))
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    argv = [program("prometheus"), f"--config.file={tmp_path}/prometheus.yml", f"--web.listen-address={address}"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        server = subprocess.Popen([*argv, f"--storage.tsdb.path={tmp_path}/data"], stdout=log, stderr=log)
    try:
        yield f"http://{address}/api/v1"
    finally:
        server.terminate()
        server.wait(patience(20))


def get(url: str, **query: str) -> Any:
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}", timeout=patience(30)) as answer:
        return json.load(answer)["data"]


@pytest.mark.enable_socket
def test_a_real_prometheus_has_what_rules_and_dashboards_ask_for(prometheus: str) -> None:
    def has(name: str) -> bool:
        try:
            return bool(get(f"{prometheus}/query", query=name)["result"])
        except OSError:  # it is starting
            return False

    queries = [expression for path in FILES for expression in expressions(path)]
    names = {name for query in queries for name in re.findall(r"taco_launch_\w+", query)}
    assert len(names) > 20
    for name in sorted(names):
        job = "simulated" if name in SIMULATED else "real"
        eventually(partial(has, f'{name}{{job="{job}"}}'), 60, name)
    for query in queries:  # an error would be a status of 400
        get(f"{prometheus}/query", query=query.replace("$__range", "1h"))

    def firing() -> set[str]:
        alerts = get(f"{prometheus}/alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    due = {"NightlyRegression", "NightlyMissing", "HostDrained"}
    eventually(lambda: due <= firing(), 30, "alerts of the nightly run and the drain")
    assert not firing() & {"JobHung", "HostNotReady", "NightlyFailed"}
