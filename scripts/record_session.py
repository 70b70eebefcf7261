#!/usr/bin/env python3
"""Records the README's session as docs/assets/session.svg: set-up, a job and explain, on a lab of two hosts that it makes.

Every line is what the command printed; of long output the beginning and the end are kept. The lab is taken down after that.
Run it as root from a checkout that scripts/quickstart has set up, again where one of these commands prints something new.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "assets" / "session.svg"
PROGRAM = "taco-launch"
WIDTH = 112
# Lines that are kept at the beginning and at the end of each command's output.
_HEAD, _TAIL = 6, 8
_LOG = ROOT / "tests" / "core" / "cases" / "explain" / "nccl_gid.txt"
_TRAIN = """\
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = [None] * dist.get_world_size()
dist.all_gather_object(ranks, dist.get_rank())
print(f"rank {dist.get_rank()} sees ranks {ranks}", flush=True)
dist.destroy_process_group()
"""
COMMANDS = (
    (PROGRAM, "-i", "lab", "setup", "--yes"),
    (PROGRAM, "-i", "lab", "run", "--launcher", "torchrun", "--sync", ".", "--", "python3", "train.py"),
    (PROGRAM, "explain", "train.log"),
)


def main() -> int:
    """Make the lab, run the commands in an empty folder, write the picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
    subprocess.run([PROGRAM, "lab", "up", "--yes", "--hosts", "2"], env=environment, check=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "train.py").write_text(_TRAIN, encoding="utf-8")
            shutil.copy(_LOG, Path(folder, "train.log"))
            for command in COMMANDS:
                done = subprocess.run(
                    command,
                    cwd=folder,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=True,
                )
                console.print(Text(f"$ {' '.join(command)}", style="bold"))
                console.print(Text.from_ansi("\n".join(shortened(done.stdout.splitlines()))))
    finally:
        subprocess.run([PROGRAM, "lab", "down"], env=environment, check=True)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(picture(console), encoding="utf-8")
    return 0


def shortened(lines: list[str]) -> list[str]:
    """Return the first and the last lines, with a mark where some are left out."""
    if len(lines) <= _HEAD + _TAIL + 1:
        return lines
    return [*lines[:_HEAD], f"  ... {len(lines) - _HEAD - _TAIL} lines ...", *lines[-_TAIL:]]


def picture(console: Console) -> str:
    """Return what was printed as SVG, in a font of the reader's machine: the picture loads nothing."""
    begin, end = CONSOLE_SVG_FORMAT.index("    @font-face"), CONSOLE_SVG_FORMAT.index("    .{unique_id}-matrix")
    form = CONSOLE_SVG_FORMAT[:begin] + CONSOLE_SVG_FORMAT[end:]
    return console.export_svg(title="taco-launch", theme=MONOKAI, code_format=form, unique_id="session")


if __name__ == "__main__":
    sys.exit(main())
