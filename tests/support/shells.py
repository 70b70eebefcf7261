"""The probe run under every shell that is here, among tools of a test's own."""

import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

SCRIPT = files("taco_launch.core.facts").joinpath("probe.sh").read_bytes()
# by what they are: /bin/sh is another's name
SHELLS = tuple(
    {
        os.path.realpath(shutil.which(argv[0]) or ""): argv
        for argv in (("/bin/sh",), ("dash",), ("bash", "--posix"), ("busybox", "sh"), ("zsh", "--emulate", "sh"))
        if shutil.which(argv[0])
    }.values()
)
each_shell = pytest.mark.parametrize("shell", SHELLS, ids=" ".join)


def run(
    shell: tuple[str, ...], *words: str, script: bytes = SCRIPT, path: str | None = None, **env: str
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*shell, "-s", "--", "m", *words],
        input=script,
        capture_output=True,
        env={"PATH": os.environ["PATH"] if path is None else path, **env},
        timeout=60,
        check=False,
    )


def tool(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
