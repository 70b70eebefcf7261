#!/usr/bin/env python3
"""Records the README's session as docs/assets/session.svg: a job that fails, its cause, and the job that is fixed.

Every line is what the command printed on this machine; lines that tell nothing of the story are counted. Run it in a checkout
that scripts/quickstart has set up, on a machine without GPUs, again where one of these commands prints something new.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "assets" / "session.svg"
WIDTH = 112
_TRAIN = """\
import sys

import torch
import torch.distributed as dist

dist.init_process_group(sys.argv[1])
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(512, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
images, labels = torch.randn(64, 512), torch.randint(0, 10, (64,))
for step in range(1, 101):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    if dist.get_rank() == 0 and step % 50 == 0:
        print(f"step {step}/100, loss {loss.item():.3f}", flush=True)
dist.destroy_process_group()
"""
# Each command, and which lines of its output are kept.
COMMANDS = (
    ("taco-launch run --name first --launcher env --np 2 -- python3 train.py nccl", "job |cause: |next: |its log: "),
    ("taco-launch logs first | taco-launch explain -", ""),
    ("taco-launch run --name second --launcher env --np 2 -- python3 train.py gloo", "job |localhost/0 "),
    ("taco-launch list", ""),
)
_STYLES = {r"\bFAILED\b": "bold red", r"\bSUCCEEDED\b": "bold green", r"^ *cause:.*": "yellow"}


def main() -> int:
    """Run the commands in an empty folder, with a state folder of their own; write the picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(_TRAIN, encoding="utf-8")
        environment = {
            **os.environ,
            "COLUMNS": str(WIDTH),
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "TACO_LAUNCH_STATE": str(Path(folder, "state")),
        }
        for command, kept in COMMANDS:
            done = subprocess.run(
                ("/bin/bash", "-c", command),
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            console.print(Text(f"$ {command}", style="bold"))
            for line in shortened(done.stdout.splitlines(), kept):
                text = Text(line)
                for pattern, style in _STYLES.items():
                    text.highlight_regex(pattern, style)
                console.print(text)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(picture(console), encoding="utf-8")
    return 0


def shortened(lines: list[str], kept: str) -> Iterator[str]:
    """Yield the lines that begin as `kept` says, a regular expression, and of others how many they are."""
    for told, group in groupby(lines, key=lambda line: re.match(kept, line) is not None):
        found = list(group)
        yield from found if told else [f"  ... {len(found)} lines ..."]


def picture(console: Console) -> str:
    """Return what was printed as SVG, in a font of the reader's machine: the picture loads nothing."""
    begin, end = CONSOLE_SVG_FORMAT.index("    @font-face"), CONSOLE_SVG_FORMAT.index("    .{unique_id}-matrix")
    form = CONSOLE_SVG_FORMAT[:begin] + CONSOLE_SVG_FORMAT[end:]
    return console.export_svg(title="taco-launch", theme=MONOKAI, code_format=form, unique_id="session")


if __name__ == "__main__":
    sys.exit(main())
