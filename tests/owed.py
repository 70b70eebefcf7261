"""Which extended tests are owed: those that have not passed with the files they cover as they are now.

python -m tests.owed choose [--touched BASE] [--again] [--minutes N]
python -m tests.owed summary
"""

import argparse
import ast
import datetime as dt
import hashlib
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests import budget
from tests.budget import Budget, Module

_ROOT = Path(__file__).resolve().parent.parent
# Lines of KEY DATE RESULT SECONDS UNIT. The key is a hash of contents, so that a line holds over merges and rebases.
RECORD = Path(__file__).with_name("extended_runs.txt")
_PASSED, _FAILED = "passed", "failed"
# Covered from the repository's root; every other prefix is one below taco_launch/.
_FROM_ROOT = ("docs/", "docker/", "scripts/", "README.md", "setup.cfg", "pyproject.toml")
_KEY_LENGTH = 16


def covered(module: Module, paths: Iterable[str]) -> list[str]:
    """Return which of the repository's paths a module covers: what it tests, itself, and what helps it.

    Helpers are the other files of its folder, and those of tests/support/ that it imports itself.
    """
    prefixes = tuple(each if each.startswith(_FROM_ROOT) else f"taco_launch/{each}" for each in module.covers)
    own = f"tests/{module.path}"
    folder = own.rpartition("/")[0] + "/"
    helpers = (folder, "tests/lab/") if folder == "tests/faults/" else (folder,)
    imported = _imported(own)

    def is_covered(path: str) -> bool:
        if path.startswith((*prefixes, own)) or path in imported:
            return True
        below, _, name = path.rpartition("/")
        return f"{below}/" in helpers and not name.startswith("test_")

    return [path for path in paths if is_covered(path)]


def _imported(own: str) -> set[str]:
    """Return the files of tests/support/ that a module imports, or any module of a room."""
    path = _ROOT / own
    files = path.rglob("*.py") if path.is_dir() else filter(Path.is_file, (path,))
    return {
        f"tests/support/{name.split('.')[2]}.py"
        for file in files
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ImportFrom)
        for name in (f"{node.module}.{each.name}" for each in node.names)
        if name.startswith("tests.support.")
    }


def keys(own: Budget, contents: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a hash of what each unit covers; `contents` has the hash of each file."""
    found = _contents() if contents is None else contents
    made = {}
    for unit, module in own.units.items():
        text = "\n".join(f"{path} {found[path]}" for path in sorted(covered(module, found)))
        made[unit] = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_KEY_LENGTH]
    return made


def line(key: str, *, passed: bool, seconds: float, unit: str) -> str:
    """Return a line of the record."""
    day = dt.datetime.now(dt.timezone.utc).date().isoformat()
    return f"{key} {day} {_PASSED if passed else _FAILED} {seconds:.0f} {unit}\n"


def owed(own: Budget, now: Mapping[str, str], record: str) -> list[str]:
    """Return the units whose last line for their key in the record does not say that they passed."""
    last: dict[tuple[str, str], str] = {}
    for row in record.splitlines():
        words = row.split(" ", 4)
        if len(words) == 5:
            last[words[4], words[0]] = words[2]
    return [unit for unit, module in own.units.items() if module.extended and last.get((unit, now[unit])) != _PASSED]


def within(own: Budget, units: Iterable[str], seconds: float) -> list[str]:
    """Return the units that fit into so many seconds, the cheapest first."""
    chosen, spent = [], 0.0
    for unit in sorted(units, key=lambda each: own.units[each].whole):
        spent += own.units[unit].whole / own.section(unit).workers
        if spent > seconds:
            break
        chosen.append(unit)
    return chosen


def _contents() -> dict[str, str]:
    listed = subprocess.run(
        ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=_ROOT, capture_output=True, check=True,
    ).stdout  # fmt: skip
    found = {}
    for name in listed.decode("utf-8", "surrogateescape").split("\0"):
        path = _ROOT / name
        if name and path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _changed(base: str) -> list[str]:
    """Return the paths that differ from where this branch left `base`, committed or not."""

    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=_ROOT, capture_output=True, check=True, text=True).stdout

    left = git("merge-base", base, "HEAD").strip()
    new = git("ls-files", "--others", "--exclude-standard")
    return [*git("diff", "--name-only", left).splitlines(), *new.splitlines()]


def main(arguments: Sequence[str]) -> int:
    """Print the units to run, a line `SECTION PATH` each, or one line that says how many are owed."""
    parser = argparse.ArgumentParser(prog="python -m tests.owed")
    parser.add_argument("what", choices=("choose", "summary"))
    parser.add_argument("--touched", metavar="BASE", help="only units that cover a file that changed since BASE")
    parser.add_argument("--again", action="store_true", help="also units that passed with the files as they are")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), metavar="N", help="only what fits into N minutes"
    )
    asked = parser.parse_args(arguments)
    own = budget.load()
    found = list(own.units) if asked.again else owed(own, keys(own), RECORD.read_text("utf-8"))
    if asked.what == "summary":
        seconds = sum(own.units[unit].whole / own.section(unit).workers for unit in found)
        print(f"owed: {len(found)} of {len(own.units)} modules, about {seconds / 60:.0f} min: scripts/test --owed")
        return 0
    if asked.touched:
        changed = _changed(asked.touched)
        found = [unit for unit in found if covered(own.units[unit], changed)]
    for unit in within(own, found, 60 * asked.minutes):
        print(own.section(unit).name, f"tests/{unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
