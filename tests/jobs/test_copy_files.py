"""Copies between this machine and a rank's host: where they go, what is said, and that a part is never left."""

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.rank.tree_pack import pack
from taco_launch.agent.rank.tree_unpack import unpack
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.protocol.calls.caller_input import CallerInput, Hangup, InputData
from taco_launch.core.protocol.calls.copy_files import WriteFiles
from taco_launch.jobs import copy_files
from tests.support.fake_backend import FakeBackend

Take = Callable[[bytes], None]


class Copies(FakeBackend):
    """A rank's host that is a folder here; the transport alone is a fake."""

    def __init__(self, folder: Path, broken_after: int | None = None) -> None:
        self._folder = folder
        self._left = broken_after

    def at_rank(self, request: Any, given: Iterable[CallerInput], out: Take, err: Take) -> int:
        if isinstance(request, WriteFiles):
            return self._write(request.path, request.most, given, err)
        return self._read(request.path, request.most, out, err)

    def _read(self, path: str, most: int, out: Take, err: Take) -> int:
        packed = io.BytesIO()
        code = _answer(lambda: pack(self._folder / path, packed, most, lambda line: err(f"{line}\n".encode())), err)
        data = packed.getvalue()
        for begin in range(0, len(data), 10_000):
            if self._left is not None and begin > self._left:
                raise HostError("gpu1: the answer to read-files broke off")
            out(data[begin : begin + 10_000])
        return code

    def _write(self, path: str, most: int, given: Iterable[CallerInput], err: Take) -> int:
        data = b""
        for frame in given:
            if isinstance(frame, Hangup):
                return 143
            assert isinstance(frame, InputData)
            data += frame.data
            if self._left is not None and len(data) > self._left:
                err(b"disk full\n")
                return 2
        return _answer(lambda: unpack(io.BytesIO(data), self._folder / path, most, lambda _line: None), err)


def _answer(act: Callable[[], object], err: Take) -> int:
    try:
        act()
    except TacoLaunchError as error:
        err(f"{error.message}\n".encode() + (f"hint: {error.hint}\n".encode() if error.hint else b""))
        return error.exit_code
    return 0


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A rank's folder."""
    folder = tmp_path / "there"
    (folder / "run").mkdir(parents=True)
    (folder / "run/big").write_bytes(bytes(range(256)) * 2000)
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def test_there_and_back(there: Path, here: Path) -> None:
    host = Copies(there)
    assert copy_files.fetch(host, "j", 0, "run", here)[0] == here / "run"
    assert copy_files.fetch(host, "j", 0, "run/big", here / "named")[1] == (1, 512_000)
    assert copy_files.fetch(host, "j", 0, ".", here)[0] == here / "j"
    copied = copy_files.send(host, "j", 0, here / "run", "again")
    assert copied == (1, 512_000)
    copy_files.send(host, "j", 0, here / "named", "again/")
    assert (
        (there / "again/big").read_bytes() == (there / "again/named").read_bytes() == (there / "run/big").read_bytes()
    )


def test_what_is_there_already(there: Path, here: Path) -> None:
    copy_files.fetch(Copies(there), "j", 0, "run", here)
    with pytest.raises(UsageError, match="run: the folder exists already and is not empty"):
        copy_files.fetch(Copies(there), "j", 0, "run", here)
    copy_files.fetch(Copies(there), "j", 0, "run/big", here / "run")


@pytest.mark.parametrize("after", [0, 200_000])
def test_a_connection_that_breaks(there: Path, here: Path, after: int) -> None:
    with pytest.raises(HostError, match="broke off"):
        copy_files.fetch(Copies(there, after), "j", 0, "run", here)
    assert list(here.iterdir()) == []


def test_a_host_that_has_enough(there: Path, here: Path) -> None:
    (here / "big").write_bytes(bytes(2_000_000))
    with pytest.raises(UsageError, match="j: rank 3: up: disk full"):
        copy_files.send(Copies(there, 200_000), "j", 3, here / "big", "up")


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda host, here: copy_files.fetch(host, "j", 0, "nosuch", here), "j: rank 0: .*nosuch: No such file"),
        (lambda host, here: copy_files.fetch(host, "j", 0, "run", here, 10_000), "is larger than 10000 bytes"),
        (lambda host, here: copy_files.send(host, "j", 0, here / "nosuch", "x"), "nosuch: No such file"),
        (lambda host, here: copy_files.send(host, "j", 0, here, "no/such/folder"), "cannot write to this folder"),
        (lambda host, here: copy_files.fetch(host, "j", 0, "run", here / "no/such"), "cannot write to this folder"),
    ],
)
def test_what_is_refused(there: Path, here: Path, act: Callable[..., Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        act(Copies(there), here)
    assert list(here.iterdir()) == []
    assert [path.name for path in there.iterdir()] == ["run"]


def test_what_a_host_sends_is_not_trusted(there: Path, here: Path) -> None:
    class Evil(Copies):
        def at_rank(self, _request: Any, _given: object, out: Take, _err: Take) -> int:
            for _piece in range(2000):
                out(b"evil" * 1000)
            return 0

    with pytest.raises(UsageError, match="not a taco-launch archive"):
        copy_files.fetch(Evil(there), "j", 0, "run", here)
    assert list(here.iterdir()) == []


def test_what_was_left_out_is_said(there: Path, here: Path) -> None:
    (there / "run/out").symlink_to("/etc")
    said: list[str] = []
    copy_files.fetch(Copies(there), "j", 0, "run", here, say=said.append)
    assert said == ["left out: tree/out: this link points outside of the copied folder"]
