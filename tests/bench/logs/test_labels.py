"""What stands before each line of a log, by whoever collected it, changes nothing that is read."""

from pathlib import Path

import pytest

from taco_launch.bench.logs import nccl_tests
from taco_launch.bench.logs.lines import untagged
from taco_launch.bench.logs.parse import NoSample, Sample, parse

BENCH = Path(__file__).parent
LABELS = {
    "srun -l": " 0: ",
    "Hydra -l": "[0] ",
    "kubectl logs --prefix": "[pod/nccl-tests-launcher-x7k2p/nccl] ",
    "kubectl logs --prefix --timestamps": "[pod/a/b] 2026-01-01T10:00:00.123456789Z ",
    "docker compose": "nccl-1  | ",
    "torchrun": "[default0]:",
    "mpirun": "[1,0]<stdout>:",
    "taco-launch logs": "gpu1/0 | ",
}


def labelled(log: str, label: str) -> str:
    return "".join(f"{label}{line}\n" for line in (BENCH / log).read_text("utf-8").splitlines())


@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS)
def test_a_label_is_taken_off(label: str) -> None:
    sample = parse(labelled("cases/plain.log", label))
    assert isinstance(sample, Sample), sample
    assert sample == parse(labelled("cases/plain.log", ""))
    text = labelled("nccl_tests/alltoall_8_ranks.log", label)
    readings = nccl_tests.read(text, 8)
    assert not isinstance(readings, NoSample), readings
    assert nccl_tests.speaks(text)


def test_an_unknown_label_is_shown() -> None:
    text = labelled("nccl_tests/alltoall_8_ranks.log", "w0> ")
    found = nccl_tests.read(text, 8)
    assert nccl_tests.speaks(text)
    assert isinstance(found, NoSample)
    assert "'w0> # nThread 1" in found.why
    assert "not a known line prefix" in found.why


@pytest.mark.parametrize("line", ["[0] 5 us", "3: 5 us", "latency | 5"])
def test_what_a_program_may_print_itself_stays_for_a_pattern(line: str) -> None:
    assert untagged(line, loose=False) == (line, ())
    assert untagged(f"gpu1/0 | {line}", loose=False)[0] == line


@pytest.mark.parametrize(
    "columns", ["bytes N type op", "bytes N type", "size count type root", "size count type redop root"]
)
def test_the_columns_of_every_program_are_known(columns: str) -> None:
    assert nccl_tests.speaks(f"#  {columns}  time algbw busbw error  time algbw busbw error\n")
