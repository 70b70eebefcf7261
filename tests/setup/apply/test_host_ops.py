"""A batch on this machine as on a host: its log, and what is said where that or the answer fails."""

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError
from taco_launch.core.model.host import paths
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.setup.apply.host_ops import SetupEvent, SetupLog, apply
from taco_launch.setup.model.ops import Op
from taco_launch.setup.plan import batch


class Host(LocalTransport):
    """This machine, without sudo."""

    def tail(self, command: Command) -> Any:
        return super().tail(replace(command, sudo=False))


@pytest.fixture(autouse=True)
def own_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_HEAD", batch._HEAD.replace(paths.RUN, str(tmp_path / "run")))


def failing(text: str, log: SetupLog, host: LocalTransport) -> tuple[HostError, list[str]]:
    """Have an operation done that fails; give the error, and what was told on the way."""
    steps: list[SetupEvent] = []
    with pytest.raises(HostError) as caught:
        apply(host, [Op("image", "pull", "it is not here", text)], log, steps.append)
    return caught.value, [step.kind for step in steps]


def test_an_answer_that_breaks_off_names_the_log_with_what_was_said(tmp_path: Path) -> None:
    class Cut(LocalTransport):
        @contextmanager
        def tail(self, command: Command) -> Iterator[IO[bytes]]:
            yield io.BytesIO(f"{command.argv[-2]} begin 0\nlayer 3 of 7\n".encode())

    error, told = failing("", SetupLog(tmp_path / "logs", ()), Cut("gpu1"))
    assert error.message == "gpu1: the output ended during: pull"
    (log,) = (tmp_path / "logs").glob("*/gpu1.log")
    assert error.hint is not None
    assert error.hint.endswith(f"Its output so far: {log}")
    assert "image: pull (it is not here): broken off\nlayer 3 of 7\n" in log.read_text()
    assert told == ["begins", "interrupted"]


def test_how_far_an_operation_is_comes_behind_its_name(tmp_path: Path) -> None:
    class Pulls(LocalTransport):
        @contextmanager
        def tail(self, command: Command) -> Iterator[IO[bytes]]:
            mark = command.argv[-2]
            told = f"{mark} begin 0\n{mark} progress 2 of 7 layers\n{mark} end 0 0\n{mark} done\n"
            yield io.BytesIO(told.encode())

    steps: list[SetupEvent] = []
    apply(Pulls("gpu1"), [Op("image", "pull", "it is not here")], SetupLog(tmp_path, ()), steps.append)
    assert [(step.what, step.kind) for step in steps] == [
        ("pull", "begins"),
        ("pull: 2 of 7 layers", "begins"),
        ("pull", "done"),
    ]


@pytest.mark.parametrize(
    ("text", "why", "last"),
    [(":", "", "done"), ("echo no route >&2; exit 1", "pull: no route; and ", "failed")],
)
def test_a_log_that_cannot_be_written_is_an_error_of_that_host(text: str, why: str, last: str, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    error, told = failing(text, SetupLog(tmp_path / "logs", ()), Host("gpu1"))
    assert error.message.startswith(f"gpu1: {why}its log cannot be written on this machine: {tmp_path}/logs")
    assert error.message.endswith(": Not a directory")
    assert "TACO_LAUNCH_STATE" in str(error.hint)
    assert told == ["begins", last]


def test_the_next_step_that_a_script_tells_is_the_hint(tmp_path: Path) -> None:
    text = "echo error: no key >&2; echo hint: enrol it >&2; exit 1"
    error, _ = failing(text, SetupLog(tmp_path / "logs", ()), Host("gpu1"))
    (log,) = (tmp_path / "logs").glob("*/gpu1.log")
    assert (error.message, error.hint) == ("gpu1: pull: no key", f"enrol it; full output: {log}")


def test_a_host_that_does_not_end_is_given_up_and_told_with_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers no more, or a step of it hangs in the kernel, where no signal ends it."""

    class Hangs(Host):
        def tail(self, command: Command) -> Any:
            text = f"echo {command.argv[-2]} begin 0; echo layer 3 of 7; exec sleep 60"
            return super().tail(replace(command, argv=("sh", "-c", text)))

    monkeypatch.setattr(batch, "_LOCK_SECONDS", -120.0)
    monkeypatch.setattr(batch, "_OVERHEAD_SECONDS", 0.5)
    error, told = failing("", SetupLog(tmp_path / "logs", ()), Hangs("gpu1"))
    (log,) = (tmp_path / "logs").glob("*/gpu1.log")
    assert error.message == "gpu1: set-up did not finish within 1 s; last operation: pull"
    assert error.hint is not None
    assert "fuser -v " in error.hint
    assert "layer 3 of 7" in log.read_text()
    assert told == ["begins", "failed"]


def test_a_host_that_is_not_heard_of_in_time_is_told_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SSH, reading fails."""

    class Silent(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, _buffer: Any) -> int:
            time.sleep(0.1)
            raise HostError("gpu1: no whole answer after 0.05 s")

    class Hangs(LocalTransport):
        @contextmanager
        def tail(self, _command: Command) -> Iterator[IO[bytes]]:
            yield io.BufferedReader(Silent())

    monkeypatch.setattr(batch, "_LOCK_SECONDS", -120.0)
    monkeypatch.setattr(batch, "_OVERHEAD_SECONDS", 0.0)
    error, _ = failing("", SetupLog(tmp_path / "logs", ()), Hangs("gpu1"))
    assert error.message == "gpu1: set-up did not finish within 0 s"
    monkeypatch.setattr(batch, "_OVERHEAD_SECONDS", 60.0)
    error, _ = failing("", SetupLog(tmp_path / "logs", ()), Hangs("gpu1"))
    assert error.message == "gpu1: no whole answer after 0.05 s"
