"""The documentation as its reader sees it: pages, the commands that they show, and the files that they hold."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.slurm_programs import write_programs

ROOT = Path(__file__).resolve().parents[2]
# Made from the code: tests/house/test_generated_docs.py.
GENERATED = re.compile(
    r"docs/(reference/((cli|failures)/.*|inventory|job|knobs|matrix|messages|metrics)|zh/(inventory|job))\.md"
)
_FENCE = re.compile(r"^ *```(\w*)([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'\btitle="([^"]+)"')
_SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)


@dataclass(frozen=True)
class Shown:
    """One command of a ```console block, and the output that the page shows below it."""

    command: str
    output: str


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the name of the file that it is ("" where it is none), and its text."""

    language: str
    title: str
    text: str


def written() -> tuple[str, ...]:
    """Return the pages that people wrote, by their paths below the root."""
    first = ("README.md", "README.zh-CN.md", "CONTRIBUTING.md")
    found = [*(ROOT / name for name in first), *sorted((ROOT / "docs").rglob("*.md"))]
    return tuple(name for path in found if not GENERATED.fullmatch(name := path.relative_to(ROOT).as_posix()))


def text_of(page: str) -> str:
    """Return a page's text."""
    return (ROOT / page).read_text("utf-8")


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    for language, rest, block in _FENCE.findall(text):
        title = _TITLE.search(rest)
        yield Block(language, title[1] if title else "", textwrap.dedent(block))


def consoles(text: str) -> Iterator[Shown]:
    """Yield the commands of the ```console blocks: lines that begin with `$ `, joined where they end in a backslash."""
    for block in blocks(text):
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, output = re.sub(r"\\\n(> )?", "", part).partition("\n")
                yield Shown(command, output)


def commands(text: str) -> Iterator[str]:
    """Yield the command lines that the blocks of a page show."""
    yield from (one.command for one in consoles(text))
    for block in blocks(text):
        if block.language in ("sh", "bash"):
            yield from block.text.splitlines()


def spans(text: str) -> Iterator[str]:
    """Yield what stands in backquotes outside of blocks."""
    for _, span in _SPAN.findall(_FENCE.sub("", text)):
        yield " ".join(span.split())


def prose(text: str) -> str:
    """Return what stands neither in a block nor in backquotes, without the addresses of links."""
    return re.sub(r"\]\([^)]*\)", "]", _SPAN.sub("", _FENCE.sub("", text)))


def files() -> dict[str, tuple[str, str]]:
    """Return the files that the pages show whole: by name the page and the text.

    Raises:
        AssertionError: two pages show different files under one name.
    """
    found: dict[str, tuple[str, str]] = {}
    for page in written():
        for block in blocks(text_of(page)):
            if block.title:
                first, text = found.setdefault(block.title, (page, block.text))
                assert text == block.text, f"{block.title} differs between {first} and {page}"
    return found


def offline(*arguments: str) -> list[str]:
    """Return what runs taco-launch; as root without a network, where the hosts of the pages are unreachable at once."""
    alone = ["unshare", "--net"] if os.geteuid() == 0 and shutil.which("unshare") else []
    return [*alone, sys.executable, "-m", "taco_launch", *arguments]


def environment_of(page: str, folder: Path) -> dict[str, str]:
    """Return the environment in which the commands of a page run: that on Slurm has a Slurm as its inventory."""
    if not page.endswith("/slurm.md"):
        return dict(os.environ)
    programs = write_programs(folder / "programs")
    path = f"{programs}:{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path, "TACO_LAUNCH_INVENTORY": "slurm:"}


def working_folder(folder: Path) -> Path:
    """Return a folder with the files that the pages show, and the checkout's inventories and scripts."""
    for name, (_page, text) in files().items():
        if not name.startswith(("/", "~")) and ".." not in Path(name).parts:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
    for name in ("inventories", "scripts", "docker"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder
