"""Every module of the package is reached by a command, by the agent, or by the Python interface: no code lies there unused."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = (
    "taco_launch",
    "taco_launch.__main__",
    "taco_launch.cli.main",
    "taco_launch.agent.__main__",
    "taco_launch.api.cluster",
    "taco_launch.light",
)
# What users copy (`init --example`), and what is sent to hosts as a file (setup/proofs/container_network.py).
DATA = re.compile(r"taco_launch[.]examples[.]|taco_launch[.]setup[.]scripts[.]peers$")
# `api.submission` in a table of what is loaded when it is called.
_NAME = re.compile(r"[a-z_]+(?:[.][a-z_]+)*")


def modules() -> dict[str, str]:
    """Return the text of each module by its name."""
    found = {}
    for path in sorted((ROOT / "taco_launch").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path.read_text("utf-8")
    return found


def named(name: str, text: str, files: dict[str, str]) -> set[str]:
    """Return the modules that a module imports, or names in a string."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            base = ".".join((*above, *([node.module] if node.module else [])))
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            ends = f".{node.value}"
            found |= {other for other in files if other.endswith(ends)}
    return found & files.keys()


def reached(files: dict[str, str]) -> set[str]:
    seen: set[str] = set()
    more = [
        *ENTRIES,
        *(name for name in files if name.startswith("taco_launch.setup.stages.")),
    ]  # stage_rules.py lists them
    while more:
        name = more.pop()
        if name in files and name not in seen:
            seen.add(name)
            above = name.rpartition(".")[0]
            more += [*([above] if above else []), *named(name, files[name], files)]
    return seen


def test_every_module_is_reached() -> None:
    files = modules()
    assert sorted(name for name in files.keys() - reached(files) if not DATA.match(name)) == []


def test_one_that_nothing_names_is_found() -> None:
    files = {**modules(), "taco_launch.core.verify.unused_by_all": "import os\n"}
    assert files.keys() - reached(files) >= {"taco_launch.core.verify.unused_by_all"}
