"""What a host answers to set-up: without an end, or with numbers of its own, it is that host's error and nobody else's."""

import io
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError
from taco_launch.hosts.remote import reply_errors
from taco_launch.setup.apply.host_ops import SetupLog, apply
from taco_launch.setup.files import daemon_json
from taco_launch.setup.model.ops import Op

OPS = (Op(name="n", why="w", stage="docker", script="true"),)


class Evil:
    """A host that answers a batch as it likes; `{}` is the marker that it was given."""

    name = "evil"

    def __init__(self, answer: str) -> None:
        self._answer = answer

    @contextmanager
    def tail(self, command: Command) -> Iterator[IO[bytes]]:
        yield io.BytesIO(self._answer.replace("{}", command.argv[3]).encode())


@pytest.mark.parametrize(
    "answer",
    ["{} begin 999\n", "{} begin x\n", "{} begin \u00b2\n", "{} end 0 0x\n", "{} begin 0\n{} end 7 7\n{} done\n"],
)
def test_numbers_of_its_own(answer: str, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="evil"):
        apply(Evil(answer), OPS, SetupLog(tmp_path / "log", ()), lambda _step: None)  # type: ignore[arg-type]


def test_a_line_without_an_end() -> None:
    with subprocess.Popen(("tr", "\\0", "7"), stdin=Path("/dev/zero").open("rb"), stdout=subprocess.PIPE) as endless:
        assert endless.stdout is not None
        with pytest.raises(HostError, match="a line of more than 1024 KiB"):
            list(reply_errors.lines(endless.stdout, "evil", "set-up"))
        endless.kill()


def test_lines_without_an_end() -> None:
    with subprocess.Popen(("yes", "x" * 1000), stdout=subprocess.PIPE) as endless:
        assert endless.stdout is not None
        with pytest.raises(HostError, match="answer is too long: it has 32 MiB"):
            for _line in reply_errors.lines(endless.stdout, "evil", "set-up"):
                pass
        endless.kill()


def test_a_number_of_thousands_of_digits_in_daemon_json() -> None:
    with pytest.raises(daemon_json.NotOursError):
        daemon_json.read('{"max-concurrent-downloads": ' + "1" * 5000 + "}")
