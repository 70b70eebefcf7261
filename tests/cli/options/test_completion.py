"""Completion in real shells: bash and zsh on a terminal with the Tab key, fish with its own `complete`."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.patience import patience

SHELLS = {"bash": ("bash", "--norc", "--noprofile", "-i"), "zsh": ("zsh", "-f", "-i"), "fish": ("fish", "--no-config")}
ZSH = "bindkey -e; autoload -Uz compinit; compinit -u -D"
CASES = (
    ("taco-launch sus", "taco-launch suspend"),
    ("taco-launch get vg", "taco-launch get vgg16"),
    ("taco-launch -i hosts.yaml facts rack", "taco-launch -i hosts.yaml facts rack7"),
    ("taco-launch -i hosts.yaml run -H gpu1:8,gpu", "taco-launch -i hosts.yaml run -H gpu1:8,gpu2"),
    ("taco-launch run --profile taco-b", "taco-launch run --profile taco-bare-metal"),
    ("taco-launch run --knob NCCL_IB_GID_I", "taco-launch run --knob NCCL_IB_GID_INDEX="),
    ("taco-launch knobs LIGHT_TOPK_R", "taco-launch knobs LIGHT_TOPK_RATIO"),
    ("taco-launch help exit", "taco-launch help exit-codes"),
    ("taco-launch -i host", "taco-launch -i hosts.yaml"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a job, an inventory, and the program."""
    (tmp_path / "state" / "jobs" / "vgg16").mkdir(parents=True)
    (tmp_path / "hosts.yaml").write_text("cluster: c\nhosts: {'gpu[1-2]': {}, rack7: {}}\n")
    program = tmp_path / "bin" / "taco-launch"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m taco_launch "$@"\n')
    program.chmod(0o755)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TACO_LAUNCH_")}
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    root = str(ROOT)
    own = {"HOME": str(folder), "PATH": path, "TERM": "xterm", "PYTHONPATH": root, "PS1": "> "}
    return {**kept, **own, "TACO_LAUNCH_STATE": str(folder / "state")}


def script(shell: str, folder: Path) -> Path:
    """Return the file with what `completion SHELL` prints."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (apt-get install fish zsh)")
    path = folder / f"completion.{shell}"
    answer = subprocess.run(
        ["taco-launch", "completion", shell], env=environment(folder), capture_output=True, text=True, check=True
    )
    path.write_text(answer.stdout)
    return path


def typed_in(shell: str, folder: Path, lines: list[str]) -> list[str]:
    """Type lines into a shell on a terminal, Tab at the end of each, and return what is in the line then."""
    setup = f"source {script(shell, folder)}"
    keys = [f"{ZSH}; {setup}\r" if shell == "zsh" else f"{setup}\r"]
    keys += [f"{line}\t\x01echo DONE: \x05 :END\r" for line in lines]  # Ctrl-A and Ctrl-E: emacs' keys
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(SHELLS[shell][0], SHELLS[shell], environment(folder))
    os.write(master, "".join(keys).encode())
    text = b""
    until = time.monotonic() + patience(60)
    try:
        while len(done(text)) < len(lines) and time.monotonic() < until:
            if select.select([master], [], [], 1.0)[0]:
                text += os.read(master, 65536)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(master)
    return done(text)


def done(text: bytes) -> list[str]:
    """Return what the lines held that were entered."""
    shown = [
        line for line in text.decode(errors="replace").splitlines() if line.startswith("DONE: ") and ":END" in line
    ]
    return [line.removeprefix("DONE: ").partition(":END")[0].rstrip() for line in shown]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key_completes(shell: str, folder: Path) -> None:
    assert typed_in(shell, folder, [line for line, _whole in CASES]) == [whole for _line, whole in CASES]


@pytest.mark.timeout(300)
def test_fish_offers_the_same(folder: Path) -> None:
    asked = "; ".join(f"complete -C '{line}'; echo END" for line, _whole in CASES)
    program = f"source {script('fish', folder)}; cd {folder}; {asked}"
    answer = subprocess.run(
        [*SHELLS["fish"], "-c", program], env=environment(folder), capture_output=True, text=True, check=False
    )
    offered = [part.split("\n") for part in answer.stdout.split("END\n")[:-1]]
    words = [[line.partition("\t")[0] for line in part if line] for part in offered]
    assert words == [[whole.rpartition(" ")[2]] for _line, whole in CASES], answer.stderr
