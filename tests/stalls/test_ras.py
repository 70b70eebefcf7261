"""Answers of NCCL's RAS: of its documentation, and of issues NVIDIA/nccl 1730, 1762, 1911."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.stalls import ras
from taco_launch.stalls.ras import RasAnswer, RasFault, RasRank

FOLDER = Path(__file__).parent / "ras"


def answer(name: str) -> RasAnswer:
    return ras.read((FOLDER / name).read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        (
            "docs_incomplete.txt",
            "",
            (
                "the job: process 3487984 on 172.16.64.213 does not answer NCCL's RAS",
                "communicator 0-0: rank 21 does not answer NCCL's RAS",
            ),
        ),
        (
            "docs_dead.txt",
            "",
            (
                "the job: process 3487984 on 172.16.64.213 is considered dead by NCCL's RAS",
                "communicator 0-0: rank 21 does not answer NCCL's RAS",
            ),
        ),
        ("docs_2_29.json", "2.29.1", ("communicator 0: rank 1 on 172.16.64.245 does not answer NCCL's RAS",)),
        (
            "nccl1762_missing_process.txt",
            "2.27.3",
            (
                "the job: process 60004 on 10.4.109.13 does not answer NCCL's RAS",
                "communicator 0-0: rank 1 on 10.4.109.13 does not answer NCCL's RAS",
            ),
        ),
        ("nccl1730_healthy.txt", "2.26.2", ()),
        ("nccl1911_counts_differ.txt", "2.26.2", ()),
        ("docs_2_24_counts_differ.txt", "", ()),
    ],
)
def test_what_one_answer_tells(name: str, version: str, told: tuple[str, ...]) -> None:
    found = answer(name)
    assert (found.version, ras.verdict(found)) == (version, told)


def test_counts_that_differ_tell_only_where_they_stay_so() -> None:
    found = answer("nccl1911_counts_differ.txt")
    moved = found._replace(faults=(found.faults[0]._replace(counts=((30, 700), (2, 701))),))
    assert ras.verdict(found, moved) == ()
    assert ras.verdict(found, found) == (
        "communicator 0-0: 30 ranks have launched AllGather 640, 2 ranks 641 (rank 12 on 10.137.190.124, rank 13 on 10.137.190.124)",
    )


def test_an_answer_that_is_cut_is_not_whole() -> None:
    text = (FOLDER / "nccl1730_healthy.txt").read_text("utf-8")
    assert ras.read(text).is_whole
    assert not ras.read(text[: text.index("Warnings")]).is_whole


@pytest.mark.parametrize("text", ["", "hello", "OK\n", '{"communicators": 3}', '{"communicators": ['])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match="RAS"):
        ras.read(text)


def test_json_with_errors_and_counts() -> None:
    rank = '{{"rank": {}, "host": "h", "pid": 5, "status": {{"init_state": {}, "async_error": {}}}, "collective_counts": {{"AllReduce": {}}}}}'
    ranks = ", ".join(
        rank.format(number, *values) for number, values in enumerate([(0, 0, 7), (0, 7, 7), (0, 2, 7), (7, 0, 6)])
    )
    found = ras.read(
        f'OK\n{{"nccl_version": "2.30.7", "communicators": [{{"ranks": [{ranks}], "missing_ranks": [{{"rank": 9, "status": {{"considered_dead": true}}}}]}}]}}'
    )
    assert found.faults == (
        RasFault("DEAD", "0", (RasRank(9),)),
        RasFault("ERROR", "0", (RasRank(2, 5, "h"),)),
        RasFault("MISMATCH", "0", (RasRank(3, 5, "h"),), "AllReduce", ((3, 7), (1, 6))),
    )


@given(st.text())
def test_any_text_is_refused_or_read(text: str) -> None:
    for each in (text, f"Job summary\n{text}", f'{{"communicators": {text}'):
        try:
            ras.verdict(ras.read(each))
        except ValueError:
            continue


@given(st.integers(0, 2000), st.text(max_size=20))
def test_an_answer_with_something_else_in_it(position: int, text: str) -> None:
    for path in FOLDER.iterdir():
        whole = path.read_text("utf-8")
        try:
            ras.read(whole[:position] + text + whole[position:])
        except ValueError:
            continue
