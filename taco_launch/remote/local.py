"""This machine as a host: put a file there, and follow what a command says, by subprocess."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from taco_launch.agent.folders import make_private
from taco_launch.command import Command
from taco_launch.errors import HostError


class Local:
    """The machine that the controller itself runs on."""

    name = "localhost"

    def put(self, data: bytes, path: Path) -> None:
        """Write a file, whole or not at all, readable by its owner only.

        Raises:
            HostError: it cannot be written.
        """
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            make_private(path.parent)
            with part.open("xb") as file:
                part.chmod(0o600)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # a file that is there is whole, also after a power cut
            part.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise HostError(
                f"{self.name}: cannot write {path}: {error.strerror}",
                hint="name another folder with TACO_LAUNCH_STATE",
            ) from None

    @contextlib.contextmanager
    def tail(self, command: Command) -> Iterator[IO[bytes]]:
        """Execute a command and give its stdout while it runs; at the end of the block it is ended.

        Raises:
            HostError: it cannot be executed.
        """
        try:
            # A session of its own: Ctrl-C in the caller's terminal is the controller's business.
            process = subprocess.Popen(
                command.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise HostError(f"{self.name}: cannot run {command.argv[0]}: {error.strerror}") from None
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with contextlib.suppress(BrokenPipeError):  # it ended without reading: what it says tells why
                    process.stdin.write(command.stdin)
                    process.stdin.close()
                yield process.stdout
            finally:
                process.stdout.close()
                process.terminate()
