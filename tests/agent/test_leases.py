"""Slots are taken all or none; who has them is told; what the last holder left is ended first."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent import leases, roots
from taco_launch.agent.folders import JobFolder
from taco_launch.agent.leases import Leases
from taco_launch.errors import HostError
from tests.agent.conftest import Family


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run" / "leases"


@pytest.fixture
def first(place: Path) -> Iterator[Leases]:
    found = Leases(place)
    yield found
    found.release(gone=True)


@pytest.fixture
def second(place: Path) -> Iterator[Leases]:
    found = Leases(place)
    yield found
    found.release(gone=True)


def take(leases_: Leases, folder: JobFolder, slots: int = 2, job_id: str = "one") -> tuple[str, ...]:
    return tuple(leases_.take(slots, job_id, "agent.pyz", folder))


def test_who_has_them_is_told(first: Leases, second: Leases, folder: JobFolder) -> None:
    before = time.strftime("%H:%M")
    assert take(first, folder) == ()
    told = take(second, folder, job_id="two")
    assert told in {(f"2 of 2 slots held by job job (since {at})",) for at in (before, time.strftime("%H:%M"))}
    # The first holder has slots 0 and 1; of four none is given.
    assert take(second, folder, 4, "two") == (told[0].replace("2 of 2", "2 of 4"),)
    first.release(gone=True)
    assert take(second, folder, 4, "two") == ()


def test_a_refusal_leaves_nothing_locked(first: Leases, second: Leases, folder: JobFolder, place: Path) -> None:
    assert take(first, folder, 1) == ()
    assert take(second, folder, 3, "two")
    first.release(gone=True)
    third = Leases(place)
    assert take(third, folder, 3, "three") == ()
    third.release(gone=True)


def test_it_may_be_asked_twice(first: Leases, folder: JobFolder) -> None:
    assert take(first, folder) == take(first, folder) == ()


def test_what_the_last_holder_left_is_ended(first: Leases, second: Leases, folder: JobFolder, family: Family) -> None:
    assert take(first, folder, job_id=family.job_id) == ()
    marked, registered = family.start(("sleep", "60"), marked=True), family.start(("sleep", "60"))
    bystander = family.start(("sleep", "60"))
    roots.keep(folder, family.job_id, [family.root(registered)])
    first.release(gone=False)  # as the kernel does when the guard is killed
    assert take(second, folder, job_id="two") == ()
    assert (marked.wait(1), registered.wait(1), bystander.poll()) == (-9, -9, None)


def test_who_ended_in_order_is_forgotten(first: Leases, folder: JobFolder, place: Path) -> None:
    take(first, folder)
    assert (place / "slot-0").read_text(encoding="ascii").startswith('{"job":"job","id":"one","since":')
    first.release(gone=True)
    assert (place / "slot-0").read_bytes() == b""
    assert (place.stat().st_mode & 0o777, (place / "slot-1").stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"job": "a"}'])
def test_a_file_that_says_nothing(first: Leases, second: Leases, folder: JobFolder, place: Path, text: str) -> None:
    place.mkdir(parents=True)
    (place / "slot-0").write_text(text, encoding="ascii")
    assert take(first, folder, 1) == ()
    (place / "slot-0").write_text(text, encoding="ascii")
    assert take(second, folder, 1, "two") == ("1 of 1 slots held by another job",)


def test_a_folder_that_cannot_be_made(folder: JobFolder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    with pytest.raises(HostError, match=r"no leases in .*file/leases: Not a directory") as caught:
        take(Leases(tmp_path / "file" / "leases"), folder)
    assert caught.value.hint == "name a folder of your own with TACO_LAUNCH_LEASES, or run as root"


def test_where_they_lie() -> None:
    assert str(leases.place({})) == "/run/taco-launch/leases"
    assert str(leases.place({"TACO_LAUNCH_LEASES": "/x"})) == "/x"
    assert os.environ.get("TACO_LAUNCH_LEASES") is None
