"""Programs that stand before the real ones on PATH, for tests of scripts that would change this machine."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taco_launch.setup import scripts

# What a host's /bin/sh may be.
SHELLS = tuple(shell for shell in ("dash", "bash", "busybox") if shutil.which(shell))


@dataclass(frozen=True)
class Fakes:
    """A folder of programs; each writes its name and arguments, a line a call, to `calls`. `shell` runs the scripts."""

    folder: Path
    shell: str = "dash"

    def make(self, name: str, body: str = "") -> None:
        """Make one: `body` is sh."""
        self.folder.mkdir(exist_ok=True)
        file = self.folder / name
        file.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>{self.folder}.calls\n{body}\n')
        file.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        file = Path(f"{self.folder}.calls")
        return file.read_text().splitlines() if file.exists() else []

    @property
    def sh(self) -> tuple[str, ...]:
        """The shell as it is when it goes by the name of sh."""
        return (self.shell, *{"bash": ("--posix",), "busybox": ("sh",)}.get(self.shell, ()))

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", **(more or {})}

    def run(self, *names_and_args: str, names: int = 1) -> "subprocess.CompletedProcess[str]":
        """Run scripts of set-up as an operation is run: the first `names` words name them, the rest are arguments."""
        return self.run_text("".join(map(scripts.text, names_and_args[:names])), *names_and_args[names:])

    def run_text(self, text: str, *args: str) -> "subprocess.CompletedProcess[str]":
        """Run a script's text in the same way."""
        argv = (*self.sh, "-euc", text, "setup", *args)
        return subprocess.run(
            argv, env=self.env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
        )
