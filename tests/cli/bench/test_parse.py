"""bench parse: a log is read as the kind of benchmark, or the workload of a matrix, that was named, else as what it is."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.command_line import call, failing
from tests.support.paths import TESTS

LOG = str(TESTS / "bench/logs/nccl_tests/one_host.log")
MATRIX = {
    "name": "mine",
    "workloads": {
        "time": {"kind": "regex", "command": "x", "pattern": "([0-9.]+) us", "unit": "us", "better": "lower"}
    },
    "sizes": [1],
    "variants": {"v": {}},
}


def test_a_table_of_readings() -> None:
    lines = call("bench", "parse", LOG, "--workload", "nccl-tests", "--np", "8").stdout.splitlines()
    assert lines[0].split() == ["METRIC", "VALUE", "UNIT"]
    assert lines[1].split() == ["busbw", "average", "210.99", "GB/s"]
    assert lines[-1].split() == ["busbw", "1073741824", "B", "231.72", "GB/s"]


def test_a_workload_of_a_matrix(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(MATRIX))
    done = call("bench", "parse", "-", "--workload", f"{path}:time", "--json", stdin="it took 12.5 us\n")
    assert json.loads(done.stdout) == {
        "readings": [{"name": "us", "unit": "us", "higher_is_better": False, "value": 12.5}]
    }


def test_a_log_without_a_result_is_told() -> None:
    done = call("bench", "parse", LOG, "--workload", "nccl-tests", "--np", "16")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"error: {LOG}: no sample: 16 ranks ran, but the log shows 8\n"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--workload", "ncl-tests"], "did you mean 'nccl-tests'?"),
        (["--workload", "lab:gradient"], "did you mean 'gradients'?"),
        (["--workload", "lba:gradients"], "did you mean 'lab'?"),
        (["--workload", ""], "the value is empty"),
    ],
)
def test_what_is_no_workload(words: list[str], part: str) -> None:
    assert part in failing("bench", "parse", LOG, *words)


def test_a_log_of_a_known_kind_needs_no_workload() -> None:
    named, alone = (call("bench", "parse", LOG, *words) for words in (("--workload", "nccl-tests"), ()))
    assert (alone.exit_code, alone.stdout) == (0, named.stdout)
    assert "16 ranks ran, but the log shows 8" in call("bench", "parse", LOG, "--np", "16").stderr
    rate = call("bench", "parse", "-", "--np", "2", stdin="Total img/sec on 2 GPU(s): 5.0 +-0.1\n")
    assert rate.exit_code == 0
    other = call("bench", "parse", "-", "--np", "4", stdin="Total img/sec on 2 GPU(s): 5.0 +-0.1\n")
    assert (other.exit_code, "no sample: the log shows 2 ranks, not the 4 of --np" in other.stderr) == (1, True)


@pytest.mark.parametrize(
    ("log", "words", "advised"),
    [
        ("Total img/sec on 2 GPU(s): 5.0 +-0.1\n", ("--np", "4"), False),
        ("Iter #0: 9.3 img/sec per GPU\n", (), False),
        ("epoch 1, 5 tokens/s\n", (), True),
    ],
)
def test_a_pattern_is_advised_for_logs_of_unknown_form_only(log: str, words: tuple[str, ...], advised: bool) -> None:
    refused = call("bench", "parse", "-", *words, stdin=log)
    assert (refused.exit_code, "for a program of your own" in refused.stderr) == (1, advised)


def test_perftest_is_read() -> None:
    log = str(TESTS / "bench/logs/perftest/write_bw.log")
    assert call("bench", "parse", log).stdout.splitlines()[1] == "RDMA_Write BW 65536 B  11077  MiB/s"
    assert "osu_*" in call("bench", "parse", "-", stdin="# OSU MPI Latency Test v7.4\n").stderr
