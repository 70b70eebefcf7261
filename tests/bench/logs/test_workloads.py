"""A log is read as its workload says: the kinds with a form of their own, and a user's pattern."""

from pathlib import Path

import pytest

from taco_launch.bench.logs import nccl_tests, patterns
from taco_launch.bench.logs.parse import NoSample
from taco_launch.bench.logs.workloads import read, read_other, recognised
from taco_launch.bench.model.matrix import LogFormat, Workload
from taco_launch.bench.model.runs import Measurement, Metric

LOGS = Path(__file__).parent
PLAIN = (LOGS / "cases" / "mpirun_tags.log").read_text()  # 8 ranks, 3204.0 img/sec
TF = (LOGS / "cases" / "tf_four_ranks.log").read_text()
NCCL = (LOGS / "nccl_tests" / "one_host.log").read_text()


def of(kind: LogFormat) -> Workload:
    return Workload("w", kind, ("true",))


def latency(pattern: str = r"latency: ([0-9.]+) ms", *, last: bool = False) -> Workload:
    return Workload("w", LogFormat.REGEX, ("true",), pattern, "ms", higher_is_better=False, last=last)


def why(workload: Workload, text: str, ranks: int | None = None) -> str:
    found = read(workload, text, ranks)
    assert isinstance(found, NoSample), found
    return found.why


@pytest.mark.parametrize("ranks", [8, None])
def test_a_rate(ranks: int | None) -> None:
    assert read(of(LogFormat.HOROVOD), PLAIN, ranks) == (Measurement(Metric("img/sec", "img/sec"), 3204.0),)


def test_a_rate_of_tf_cnn_benchmarks() -> None:
    found = read(of(LogFormat.TF_CNN), TF, 4)
    assert not isinstance(found, NoSample), found
    assert found[0].metric.name == "img/sec"


@pytest.mark.parametrize("kind", [LogFormat.HOROVOD, LogFormat.TF_CNN, LogFormat.NCCL_TESTS])
def test_a_log_of_another_number_of_ranks_gives_none(kind: LogFormat) -> None:
    text = {LogFormat.HOROVOD: PLAIN, LogFormat.TF_CNN: TF, LogFormat.NCCL_TESTS: NCCL}[kind]
    assert "3 ranks ran, but the log shows " in why(of(kind), text, 3)


@pytest.mark.parametrize(("kind", "text"), [(LogFormat.HOROVOD, TF), (LogFormat.TF_CNN, PLAIN)])
def test_a_log_of_another_kind_gives_none(kind: LogFormat, text: str) -> None:
    assert f"the workload has kind {kind.value}" in why(of(kind), text)


def test_nccl_tests() -> None:
    found = read(of(LogFormat.NCCL_TESTS), NCCL, 8)
    assert not isinstance(found, NoSample), found
    assert found[0] == Measurement(Metric("busbw average", "GB/s"), 210.99)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("# OSU MPI-CUDA Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n8    4.21\n", "osu_*"),
        ("[1,0]<stdout>:# OSU MPI Bandwidth Test v7.4\n", "osu_*"),
        ("#------\n#    Intel(R) MPI Benchmarks 2021.7, MPI-1 part\n", "Intel MPI Benchmarks"),
        ("[ ID] Interval           Transfer     Bitrate\n[  5] 0.00-1.00 sec 1.10 GBytes\n", "iperf"),
        ("nvbandwidth Version: v0.5\n", "nvbandwidth"),
    ],
)
def test_another_program_is_named(text: str, name: str) -> None:
    found = read_other(text)
    assert isinstance(found, NoSample)
    assert name in found.why
    assert "workload of kind regex" in found.why


@pytest.mark.parametrize("text", [PLAIN, TF, NCCL, "", "hello\n"])
def test_a_known_log_is_no_other_program(text: str) -> None:
    assert read_other(text) is None


@pytest.mark.parametrize("start", ["# nThread", "#       size         count", "# Out of bounds"])
def test_a_log_of_nccl_tests_is_recognised_without_its_head(start: str) -> None:
    """As people paste it: then the reason says what is missing of nccl-tests, and not of another benchmark."""
    workload = recognised(NCCL[NCCL.index(start) :])
    assert workload is not None
    assert workload.kind is LogFormat.NCCL_TESTS
    assert recognised(PLAIN) is None


@pytest.mark.parametrize("before", ["", "> ", "[1,0]<stdout>:"])
def test_rows_alone_are_of_nccl_tests(before: str) -> None:
    rows = f"{before}  16384     256     float    none      -1   301.32    0.05    0.05       0   285.28    0.06    0.05      0\n"
    assert recognised(rows) == Workload("nccl-tests", LogFormat.NCCL_TESTS, ())
    found = nccl_tests.read(rows)
    assert isinstance(found, NoSample)
    assert found.why.startswith("no line '# nThread ...'")
    assert found.why.endswith("the column header and the line '# Avg bus bandwidth ...' are missing, too")


@pytest.mark.parametrize(
    "text",
    [
        "latency: 12.5 ms\n",
        "x\r\nlatency: 12.5 ms\r\n",
        "gpu1/0 | [1,0]<stdout>:latency: 12.5 ms\n",
        "\x1b[32mlatency: 12.5\x1b[0m ms\n",
        "latency: 12.5 ms\nlatency: 12.50 ms\nend",
        "gpu1/0 | latency: 12.5 ms\ngpu2/1 | latency: 12.5 ms\n",
    ],
)
def test_one_number_by_a_pattern(text: str) -> None:
    assert read(latency(), text, 2) == (Measurement(Metric("ms", "ms", higher_is_better=False), 12.5),)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no line matches latency: ([0-9.]+) ms"),
        ("latency: 12.5 seconds\n", "no line matches"),
        ("x\nlatency: 12.5 ms", "the log ends in the middle of line 2: 'latency: 12.5 ms'"),
        (
            "latency: 12.5 ms\nlatency: 13 ms\n",
            "several lines match latency: ([0-9.]+) ms with different values: line 1: 'latency: 12.5 ms'; line 2",
        ),
        (
            "latency: 1.2.5 ms\n",
            "line 1: 'latency: 1.2.5 ms': the group of latency: ([0-9.]+) ms matched '1.2.5', which is not a number above 0",
        ),
        (
            "latency: 0.0 ms\n",
            "which is not a number above 0",
        ),
    ],
)
def test_no_number_by_a_pattern(text: str, part: str) -> None:
    assert part in why(latency(), text)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e999", "1,000", "1_000", "٣", ""])
def test_what_is_no_number(text: str) -> None:
    assert "which is not a number above 0" in why(latency("is (.*)$"), f"is {text}\n")


def test_a_group_that_took_no_part() -> None:
    assert "line 1: 'a': the group of a(b)? matched ''" in why(latency("a(b)?"), "a\n")


def test_the_last_of_several() -> None:
    text = "gpu1/0 | latency: 12.5 ms\ngpu1/0 | latency: 13 ms\n"
    assert read(latency(last=True), text, 1) == (Measurement(Metric("ms", "ms", higher_is_better=False), 13.0),)
    ranks = text.replace("gpu1/0 | latency: 13", "gpu2/1 | latency: 13")
    for last in (True, False):
        said = "several ranks print this line; print it on rank 0 only (line 2: 'latency: 13 ms')"
        assert why(latency(last=last), ranks) == said


def test_a_pattern_that_never_ends_is_ended() -> None:
    with pytest.raises(patterns.FailedError, match="needs more than 1 s"):
        patterns.matches("(a+)+$", ("a" * 60 + "b",), seconds=1)


def test_many_lines_take_no_time() -> None:
    lines = [f"line {index} of a log, as long as such lines are" for index in range(100_000)]
    assert patterns.matches(r"line (99999) of", lines, seconds=5) == (patterns.PatternMatch(99_999, "99999"),)


@pytest.mark.parametrize(
    "pattern", ["", "a", "(a)(b)", "(", "(a", "*", "(" * 500, "(a{99999999999})", "(?P<a>", "x" * 1001]
)
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"regular expression|one group|longer"):
        patterns.compiled(pattern)


@pytest.mark.parametrize("pattern", ["(a)", "(?:x)(a|b)", "(?P<value>[0-9]+)"])
def test_patterns_with_one_group(pattern: str) -> None:
    assert patterns.compiled(pattern).groups == 1
