"""Whatever is done to a good log of nccl-tests: its numbers come out, or none, never others, and in linear time."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.bench.logs.nccl_tests import read
from taco_launch.bench.logs.parse import NoSample
from taco_launch.bench.model.runs import Measurement

Numbers = dict[str, float]
# (columns before the values, their values in a row, what counts wrong values, as it is for none)
FORMS = (
    ("type op", "float sum", "res", "0e+00"),
    ("type", "float", "error", "0e+00"),
    ("type root", "float 0", "error", "0e+00"),
    ("type redop", "float sum", "error", "2e-07"),
    ("type redop", "float     ", "error", "N/A"),
    ("type redop root", "float sum -1", "#wrong", "0"),
    ("type redop root", "bfloat16 none 3", "#wrong", "N/A"),
)


def written(rate: float) -> str:
    """Write a bandwidth as util.cu does: two digits after the point, one from 1000 on, none from 10000 on."""
    return f"{rate:.2f}" if rate < 1000 else f"{rate:.1f}" if rate < 10000 else f"{rate:.0f}"


@st.composite
def logs(draw: st.DrawFn, most_ranks: int = 20) -> tuple[list[str], int, Numbers]:
    """Return the lines of a good log, the number of ranks, and the numbers in it."""
    keys, words, wrong, none = draw(st.sampled_from(FORMS))
    ranks, gpus = draw(st.integers(2, most_ranks)), draw(st.integers(1, 2))
    counts = draw(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=6, unique=True).map(sorted))
    rates = draw(st.lists(st.floats(1.0, 20000.0), min_size=2 * len(counts), max_size=2 * len(counts)))
    columns = f"time algbw busbw {wrong}"
    # all_reduce counts the elements of all data, all_gather and its like those of one rank.
    width = {"bfloat16": 2, "float": 4}[words.split()[0]] * draw(st.sampled_from((1, ranks * gpus)))
    sizes = [count * width for count in counts]
    rows = [
        f"{size:12} {size // width:12}  {words}  12.5  1.25  {written(out)}  {none}  13011  1.25  {written(within)}  {none}"
        for size, out, within in zip(sizes, rates[::2], rates[1::2], strict=True)
    ]
    average = sum(rates) / len(rates)
    lines = [
        f"# nThread 1 nGpus {gpus} minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) warmup iters: 5 iters: 20 ",
        "# Using devices",
        *(f"#  Rank {rank:2} Group  0 Pid 1 on h1 device  0 [0x07] NVIDIA A100" for rank in range(ranks * gpus)),
        "#",
        f"#       size         count  {keys}  {columns}  {columns}",
        *rows,
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {average:g} ",
        "#",
    ]
    numbers = {f"busbw {size} B": float(written(rate)) for size, rate in zip(sizes, rates[::2], strict=True)}
    return lines, ranks, {"busbw average": float(f"{average:g}")} | numbers


def true_or_none(found: tuple[Measurement, ...] | NoSample, numbers: Numbers) -> bool:
    """Return whether all readings are those of the log; the average may be cut within what the rows are rounded to."""
    if isinstance(found, NoSample):
        return True
    given = {reading.metric.name: reading.value for reading in found}
    near = max(1.1 * 0.5 * 10.0 ** -(2 if rate < 1000 else 1 if rate < 10000 else 0) for rate in numbers.values())
    average = given.pop("busbw average")
    return given.items() <= numbers.items() and abs(average - numbers["busbw average"]) <= 2 * near + average * 1e-5


@given(logs())
def test_a_whole_log_gives_its_numbers(log: tuple[list[str], int, Numbers]) -> None:
    lines, ranks, numbers = log
    found = read("\n".join(lines) + "\n", ranks)
    assert not isinstance(found, NoSample), found
    assert {reading.metric.name: reading.value for reading in found} == numbers


@given(logs(most_ranks=3))
@settings(max_examples=settings().max_examples // 5)
def test_a_cut_at_any_byte_gives_no_number_before_the_average_is_whole(log: tuple[list[str], int, Numbers]) -> None:
    lines, ranks, numbers = log
    text = "\n".join(lines) + "\n"
    whole = text.index("Avg bus")
    whole = text.index("\n", whole) + 1
    for end in range(len(text) + 1):
        found = read(text[:end], ranks)
        assert isinstance(found, NoSample) == (end < whole), text[:end]
        assert true_or_none(found, numbers)


@given(logs(), st.data())
def test_lines_lost_doubled_or_moved(log: tuple[list[str], int, Numbers], data: st.DataObject) -> None:
    lines, ranks, numbers = log
    kept = data.draw(st.lists(st.sampled_from(lines), max_size=2 * len(lines)) | st.permutations(lines))
    assert true_or_none(read("\n".join(kept) + "\n", ranks), numbers)


@given(logs(), st.data())
def test_a_line_that_another_rank_breaks_into(log: tuple[list[str], int, Numbers], data: st.DataObject) -> None:
    lines, ranks, numbers = log
    text = "\n".join(lines) + "\n"
    at = data.draw(st.integers(0, len(text)))
    broken = data.draw(
        st.sampled_from(["[1,1]<stdout>:", "[1,1]<stderr>:x\n", "\n", "\r", " ", "x", "0.0\n", "# ", "-"])
    )
    assert true_or_none(read(text[:at] + broken + text[at:], ranks), numbers)


@given(logs(), st.data())
def test_separate_runs_give_none_however_their_lines_are_mixed(
    log: tuple[list[str], int, Numbers], data: st.DataObject
) -> None:
    lines, ranks, _numbers = log
    own = [line for line in lines if " Rank " not in line or " Rank  0 " in line or " Rank  1 Group" in line]
    runs = [iter(own) for _ in range(min(ranks, 3))]
    turns = data.draw(st.permutations([index for index in range(len(runs)) for _ in own]))
    mixed = "".join(f"[1,{turn}]<stdout>:{next(runs[turn])}\n" for turn in turns)
    assert isinstance(read(mixed, len(runs)), NoSample)


@given(st.text() | st.lists(st.sampled_from(["# nThread 1 nGpus 1 minBytes 8 maxBytes 8 x\n", "#  Rank  0 on h device  0 [0] x\n",
    "# size count type redop time algbw busbw error time algbw busbw error\n", "8 2 float sum 1 1 1.00 0 1 1 1.00 0\n", "\r", "8 ",
    "# Avg bus bandwidth    : 1\n", "#  Rank  1 on h device  0 [0] x\n", "nan", "\n", "# Out of bounds values : 0 OK\n"]) | st.text(max_size=3),
    max_size=20).map("".join))  # fmt: skip
@settings(max_examples=2 * settings().max_examples)
def test_any_text_gives_positive_numbers_or_a_reason(text: str) -> None:
    for ranks in (None, 2):
        found = read(text, ranks)
        if isinstance(found, NoSample):
            assert found.why
            assert "\n" not in found.why
        else:
            assert all(0 < reading.value < float("inf") for reading in found)


BEGIN = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 x\n# size count type time algbw busbw res time algbw busbw res\n"
MEGABYTES = 1 << 20
LONG = {
    "one line": "1 " * (MEGABYTES // 2),
    "one row": "8 2 float " + "1 " * (MEGABYTES // 2),
    "one rank": "#  Rank  0 on " + " " * MEGABYTES,
    "one average": "# Avg bus bandwidth" + " " * MEGABYTES,
    "rows": "".join(f"{size} 2 float 1 1 1.00 0 1 1 1.00 0\n" for size in range(MEGABYTES // 40)),
    "begins": BEGIN * (MEGABYTES // len(BEGIN)),
    "other lines": "gpu1:1:1 [0] NCCL INFO Rank 0 Channel 00/0 : 1[1000] -> 0[2000]\n" * (MEGABYTES // 60),
}


@pytest.mark.parametrize("name", LONG)
def test_long_logs_take_no_time(name: str) -> None:
    begin = time.process_time()
    assert isinstance(read(BEGIN + LONG[name] + "\n"), NoSample)
    assert time.process_time() - begin < 10  # where time is quadratic it is hours


def test_a_size_that_another_line_breaks_into_is_no_smaller_size() -> None:
    head = "# nThread 1 nGpus 1 minBytes 8 maxBytes 44436 step: 2(factor) warmup iters: 5 iters: 20 \n"
    head += (
        "#  Rank  0 Group  0 Pid 1 on h1 device  0 [0x07] A100\n#  Rank  1 Group  0 Pid 1 on h1 device  1 [0x0f] A100\n"
    )
    head += "#       size         count  type op  time algbw busbw res  time algbw busbw res\n"
    row = "       44436        11109  float sum  12.5  1.25  9.00  0e+00  13011  1.25  9.00  0e+00\n"
    end = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 9 \n"
    assert not isinstance(read(head + row + end, 2), NoSample)
    assert isinstance(read(head + row.replace("44436", "44\n436") + end, 2), NoSample)
