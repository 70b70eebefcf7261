"""Flight recorders of three ranks of torch 2.13 with Gloo, as torch wrote them; and pickles that are none."""

import os
import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.stalls import flight_recorder, plain
from taco_launch.stalls.flight_recorder import Recording
from taco_launch.stalls.plain import NotPlainError, loads

FOLDER = Path(__file__).parent / "flight_recorder"


def recordings(name: str, form: str) -> dict[int, Recording]:
    return {rank: flight_recorder.read((FOLDER / f"{name}_{rank}.{form}").read_bytes()) for rank in range(3)}


@pytest.mark.parametrize("form", ["json", "pickle"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing", "ranks 0, 1 wait in gloo:all_reduce{} (number 4 of group 0 (default_pg)); rank 2 has not joined"),
        (
            "mismatch",
            "ranks 0, 1 wait in gloo:all_reduce{} (number 4 of group 0 (default_pg)), where rank 2 calls gloo:broadcast{}",
        ),
        ("done", None),
    ],
)
def test_real_dumps(name: str, form: str, told: str | None) -> None:
    found = [str(one) for one in flight_recorder.verdict(recordings(name, form), 3)]
    lines = (" at train.py:16", " at train.py:22") if form == "pickle" else ("", "")
    assert found == ([] if told is None else [told.format(*lines)])


def test_a_rank_that_was_not_read_is_not_said_to_be_missing() -> None:
    some = {rank: one for rank, one in recordings("missing", "pickle").items() if rank < 2}
    (found,) = flight_recorder.verdict(some, 3)
    assert (found.waiting, found.missing) == ((0, 1), ())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.pickle")), ids=lambda path: path.stem)
def test_the_same_as_pickle_itself(path: Path) -> None:
    data = path.read_bytes()
    assert loads(data) == pickle.loads(data)


class Attack:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/a_pickle_was_obeyed",)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pickle.dumps({"entries": [Attack()]}, 2), "it holds GLOBAL"),
        (pickle.dumps({"entries": [Attack()]}, 4), "it holds STACK_GLOBAL"),
        (pickle.dumps(Path("x"), 2), "it holds GLOBAL"),
        (b"\x80\x02cos\nsystem\nX\x01\x00\x00\x00a\x85R.", "it holds GLOBAL"),
        (b"\x80\x02P1\n.", "it holds PERSID"),
        (b"\x80\x02}(]K\x01u.", "no whole pickle"),  # a list as a key
        (b"\x80\x02h\x07.", "no whole pickle"),
        (b"\x80\x02K\x01K\x02.", "no whole pickle"),
        (b"\x80\x02K\x01", "no whole pickle"),
        (b"\x80\x02u.", "no mark"),
        (b"", "no whole pickle"),
        (b"\x80\x02X\xff\xff\xff\x7fabc.", "no whole pickle"),
    ],
)
def test_nothing_is_obeyed(data: bytes, reason: str) -> None:
    with pytest.raises(NotPlainError, match=reason):
        loads(data)
    assert not Path("/tmp/a_pickle_was_obeyed").exists()


def test_a_memo_of_any_size_takes_no_memory() -> None:
    assert loads(b"\x80\x02K\x01r" + struct.pack("<I", 0xFFFFFFF0) + b".") == 1


def test_a_pickle_that_is_too_big(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MOST_BYTES", 10)
    with pytest.raises(NotPlainError, match="larger than 10 bytes"):
        loads(bytes(11))


def test_values_that_hold_themselves_a_million_times_take_no_time() -> None:
    """Each level holds the one below twice: as a text it would be a billion long."""
    levels: list[object] = [[1], [1]]
    for _ in range(60):
        levels = [levels, levels]
    entry = {"process_group": ("0", "x"), "collective_seq_id": 1, "profiling_name": "a", "state": "scheduled"}
    for field in ("input_sizes", "frames", "process_group"):
        data = pickle.dumps({"entries": [{**entry, field: levels}], "pg_config": {"0": {"ranks": levels}}}, 2)
        assert isinstance(flight_recorder.read(data), Recording)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each) | st.tuples(each, each),
    )
)
def test_plain_data_comes_back(value: object) -> None:
    for protocol in (2, 4):
        assert loads(pickle.dumps(value, protocol)) == value


@given(st.binary())
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    for each in (data, b"\x80\x02" + data, b"{" + data):
        try:
            flight_recorder.read(each)
        except ValueError:
            continue


@given(st.integers(0, 1581), st.integers(0, 255))
def test_a_dump_with_another_byte(position: int, value: int) -> None:
    data = bytearray((FOLDER / "missing_0.pickle").read_bytes())
    data[position % len(data)] = value
    try:
        found = flight_recorder.read(bytes(data))
    except ValueError:
        return
    flight_recorder.verdict({0: found}, 3)


def test_sizes_that_differ() -> None:
    entry = {
        "process_group": ["1", "tp"],
        "collective_seq_id": 5,
        "profiling_name": "nccl:all_reduce",
        "state": "started",
    }
    made = {
        rank: flight_recorder.read(repr({"entries": [{**entry, "input_sizes": [[size]]}]}).replace("'", '"').encode())
        for rank, size in enumerate((1000, 1000, 500))
    }
    (found,) = flight_recorder.verdict(made, 3)
    assert (
        str(found)
        == "ranks 0, 1 wait in nccl:all_reduce (number 5 of group 1 (tp)), where rank 2 calls nccl:all_reduce of [500] instead of [1000]"
    )


@pytest.mark.parametrize("data", [b"{", b"{}", b'{"entries": 3}', b"[]", b"\x80\x02]."])
def test_what_is_no_dump(data: bytes) -> None:
    with pytest.raises(ValueError, match="no "):
        flight_recorder.read(data)
