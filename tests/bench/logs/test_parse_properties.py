"""Whatever is done to a good log: the parser gives its number or none, never another one, and in linear time."""

import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.bench.logs import nccl_tests
from taco_launch.bench.logs.lines import untagged
from taco_launch.bench.logs.parse import NoSample, Sample, parse

WORDS = re.compile(r"mg/sec|mages/sec|Model:|Batch size:|Number of .PUs:|per device|Devices:")
DRESSES: dict[str, Callable[[str], str]] = {
    "plain": lambda line: f"{line}\n",
    "windows": lambda line: f"{line}\r\n",
    "colour": lambda line: f"\x1b[1;32m{line}\x1b[0m\n",
    "mpirun": lambda line: f"[1,0]<stdout>:{line}\n",
    "mpirun, line end apart": lambda line: f"[1,0]<stdout>:{line}[1,0]<stdout>:\n",
    "mpirun with time": lambda line: f"Fri Nov 20 15:18:13 2026[1,0]<stdout>:{line}\n",
    "mpirun 5 with time": lambda line: f"[Sun Nov  1 05:08:03 2026][1,0]<stdout>: {line}\n",
    "horovodrun": lambda line: f"[0]<stdout>:{line}\n",
    "merged": lambda line: f"localhost/0 | {line}\n",
    "merged mpirun": lambda line: f"gpu-1.rack/0 | [1,0]<stdout>:{line}\n",
}


@st.composite
def horovod_logs(draw: st.DrawFn) -> tuple[list[str], Sample]:
    """Return the lines of a good log and what it says."""
    ranks = draw(st.integers(1, 4096))
    batch_size = draw(st.integers(1, 4096))
    model = draw(st.sampled_from(["resnet50", "vgg16", "mobilenet_v2", "ViT-B/16"]))
    rates = draw(st.lists(st.floats(0.1, 99999) | st.integers(2, 9999).map(lambda n: n / 20), min_size=1, max_size=12))
    mean, half_width = statistics.fmean(rates), 1.96 * statistics.pstdev(rates)
    numbers = [f"{number:.1f}" for number in (mean, half_width, ranks * mean, ranks * half_width)]
    lines = [
        f"Model: {model}",
        f"Batch size: {batch_size}",
        f"Number of GPUs: {ranks}",
        "Running warmup...",
        "Running benchmark...",
        *(f"Iter #{index}: {rate:.1f} img/sec per GPU" for index, rate in enumerate(rates)),
        f"Img/sec per GPU: {numbers[0]} +-{numbers[1]}",
        f"Total img/sec on {ranks} GPU(s): {numbers[2]} +-{numbers[3]}",
    ]
    sample = Sample(ranks, float(numbers[2]), float(numbers[3]), float(numbers[0]), model, batch_size, len(rates))
    return lines, sample


@st.composite
def tf_logs(draw: st.DrawFn) -> tuple[list[str], Sample]:
    ranks = draw(st.integers(1, 8))
    rate = draw(st.floats(10, 99999))
    total = f"{ranks * rate:.2f}"
    lines = [
        "Model:       resnet101",
        "             64 per device",
        f"Devices:     [{', '.join(repr(f'horovod/gpu:{rank}') for rank in range(ranks))}]",
        "Step\tImg/sec\ttotal_loss",
        *(f"{step}\timages/sec: {rate:.1f} +/- 0.1 (jitter = 0.2)\t9.1" for step in (1, 10) for _ in range(ranks)),
        *[f"total images/sec: {total}"] * ranks,
    ]
    return lines, Sample(ranks, float(total), None, float(total) / ranks, "resnet101", 64, 10)


def logs() -> st.SearchStrategy[tuple[list[str], Sample]]:
    return horovod_logs() | tf_logs()


def same_or_none(found: Sample | NoSample, sample: Sample) -> bool:
    if isinstance(found, NoSample):
        return True
    # A number may be cut so that it agrees with the others all the same, within what they were rounded to.
    near = pytest.approx((sample.img_per_sec, sample.half_width or 0.0), abs=0.1 * sample.ranks)
    return found.ranks == sample.ranks and (found.img_per_sec, found.half_width or 0.0) == near


@given(logs(), st.sampled_from(sorted(DRESSES)))
def test_what_stands_around_the_lines_makes_no_difference(log: tuple[list[str], Sample], dress: str) -> None:
    lines, sample = log
    assert parse("".join(map(DRESSES[dress], lines))) == sample


@given(horovod_logs(), st.sampled_from(sorted(DRESSES)))
@settings(max_examples=settings().max_examples // 5)
def test_a_cut_at_any_byte_gives_no_number_before_the_total_is_whole(log: tuple[list[str], Sample], dress: str) -> None:
    lines, sample = log
    data = "".join(map(DRESSES[dress], lines)).encode()
    whole = data.rindex(lines[-1].encode()) + len(lines[-1])
    for end in range(len(data) + 1):
        found = parse(data[:end].decode())
        if end < whole:
            assert isinstance(found, NoSample), data[:end]
        elif end in (whole, len(data)):
            assert found == sample
        else:
            assert same_or_none(found, sample)


@given(tf_logs())
@settings(max_examples=settings().max_examples // 5)
def test_a_cut_tf_log_gives_no_number_before_a_total_is_whole(log: tuple[list[str], Sample]) -> None:
    lines, sample = log
    data = "\n".join(lines)
    whole = data.index(lines[-1]) + len(lines[-1])
    for end in range(len(data) + 1):
        found = parse(data[:end])
        assert isinstance(found, NoSample) if end < whole else same_or_none(found, sample)
    assert parse(data) == sample


@given(horovod_logs(), st.data())
def test_a_log_whose_front_is_lost_gives_its_number_or_none(log: tuple[list[str], Sample], data: st.DataObject) -> None:
    lines, sample = log
    text = "\n".join(lines)
    assert same_or_none(parse(text[data.draw(st.integers(0, len(text))) :]), sample)


@given(logs(), st.data())
def test_other_lines_in_between_make_no_difference(log: tuple[list[str], Sample], data: st.DataObject) -> None:
    lines, sample = log
    other = st.text(max_size=40).filter(lambda text: not WORDS.search(text))
    mixed = [part for line in lines for part in (*data.draw(st.lists(other, max_size=2)), line)]
    assert parse("\n".join(mixed)) == sample


@given(logs(), st.data())
def test_lines_lost_doubled_or_moved_give_its_number_or_none(
    log: tuple[list[str], Sample], data: st.DataObject
) -> None:
    lines, sample = log
    kept = data.draw(st.lists(st.sampled_from(lines), max_size=2 * len(lines)) | st.permutations(lines))
    assert same_or_none(parse("\n".join(kept)), sample)


@given(logs(), st.data())
def test_a_line_that_another_rank_breaks_into_gives_its_number_or_none(
    log: tuple[list[str], Sample], data: st.DataObject
) -> None:
    lines, sample = log
    text = "\n".join(lines)
    at = data.draw(st.integers(0, len(text)))
    broken = data.draw(st.sampled_from(["[1,1]<stdout>:", "[1,1]<stderr>:x\n", "\n", "\r", " ", "x", "0.0\n", "\x00"]))
    assert same_or_none(parse(text[:at] + broken + text[at:]), sample)


FRAGMENTS = [
    "Total img/sec on ", "4", "0", " GPU(s): ", "820.5", " +-", "2.5", "nan", "-inf", "Img/sec per GPU: ", "Iter #", ": ",
    " img/sec per GPU", "total images/sec: ", "308.27", "10\timages/sec: 154.2 +/- 0.4 (jitter = 4.0)\t8.2", "Model: ",
    "Number of GPUs: ", "Devices: ['horovod/gpu:0', 'horovod/gpu:1']", "[1,0]<stdout>:", "gpu1/0 | ", "\n", "\r", "\x1b[",
    "Total img/sec on 4 GPU(s): 820.5 +-2.5\n", "Img/sec per GPU: 205.1 +-0.6\n", "Iter #0: 205.1 img/sec per GPU\n",
]  # fmt: skip


@given(st.text() | st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=40).map("".join))
@settings(max_examples=4 * settings().max_examples)
def test_any_text_gives_a_positive_number_or_a_reason(text: str) -> None:
    found = parse(text)
    if isinstance(found, Sample):
        assert found.ranks >= 1
        assert 0 < found.img_per_sec < float("inf")
    else:
        assert found.why
        assert "\n" not in found.why


MEGABYTES = 1 << 20
LONG = {
    "no line at all": "x" * MEGABYTES,
    "only line ends": "\n" * MEGABYTES,
    "other lines": "gpu1:1:1 [0] NCCL INFO Channel 00/0 : 1[1000] -> 0[2000] via P2P/IPC\n" * (MEGABYTES // 70),
    "one line of words": "Model:" * (MEGABYTES // 6),
    "one line of rates": "Total img/sec on 4 GPU(s): " * (MEGABYTES // 27),
    "one line of steps": "1 images/sec: 1.0 +/- 0 (jitter = 0)" + " 1" * (MEGABYTES // 2) + "\x00",
    "one line of spaces": "Model:" + " " * MEGABYTES,
    "one line of slashes": "1/" * (MEGABYTES // 2) + " Model:",
    "one line of digits": "[" + "1" * MEGABYTES + "]<stdout>:Model: x",
    "one line of tags": "[1,0]<stdout>:" * (MEGABYTES // 14) + "Model: x",
    "one line of devices": "Devices: [" + "'horovod/gpu:0', " * (MEGABYTES // 17),
    "one line of carriage returns": "Model: x" + "\r" * MEGABYTES,
    "escapes": "\x1b[" * (MEGABYTES // 2) + "Model: x",
    "one escape": "\x1b[" + "1" * MEGABYTES,
    "titles": "\x1b]0;" * (MEGABYTES // 4),
    "models": "Model: x\n" * (MEGABYTES // 90),
    "iterations": "".join(f"Iter #{index}: 1.0 img/sec per GPU\n" for index in range(MEGABYTES // 300)),
    "ranks": "".join(f"[1,{index}]<stdout>:Model: x\n" for index in range(MEGABYTES // 250)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_logs_take_no_time(name: str) -> None:
    begin = time.process_time()
    assert isinstance(parse(LONG[name]), NoSample)
    total = f"{LONG[name]}\nTotal img/sec on 1 GPU(s): 5.0 +-0.1\n"
    parse(total)
    assert time.process_time() - begin < 10  # where time is quadratic it is hours


# --- A log collector may put a label before each line: the values stay the same


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
