"""The zipapp: the same sources give the same file, and the standard library is all it needs."""

import ast
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import taco_launch
from taco_launch.hosts.remote import agent_bundle
from tests.agent.conftest import PYTHON
from tests.support.command_line import call

# Before 3.11 only the places of the files are the same.
BUILD = """
import hashlib, io, sys, zipfile
from taco_launch.hosts.remote import agent_bundle
data = agent_bundle.build(agent_bundle.sources())
if sys.version_info < (3, 11):
    data = repr([(each.filename, each.header_offset) for each in zipfile.ZipFile(io.BytesIO(data)).infolist()]).encode()
print(hashlib.sha256(data).hexdigest())
"""
# Imports every module of the zipapp; whatever lies outside the standard library is not to be found with -I -S.
IMPORT = """
import importlib, sys, zipfile
path = sys.argv[1]
sys.path.insert(0, path)
names = [name[:-3] for name in zipfile.ZipFile(path).namelist() if name.endswith(".py") and name != "__main__.py"]
for name in [name for name in names if "/light/" not in name]:  # ranks import it, and have torch
    name = name.replace("/", ".")
    module = importlib.import_module(name[: -len(".__init__")] if name.endswith(".__init__") else name)
    assert module.__file__.startswith(path), module.__file__
    print(module.__name__)
"""


def test_same_sources_same_name_and_bytes() -> None:
    contents = agent_bundle.sources()
    assert contents == agent_bundle.sources()
    assert agent_bundle.name(contents) == agent_bundle.name(agent_bundle.sources())
    digests = {
        subprocess.run(
            [sys.executable, "-c", more + BUILD], env={"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, check=True
        ).stdout
        # what a process has imported besides decides which strings it shares
        for seed, more in (("1", ""), ("2", "import asyncio, fabric, pydantic, yaml"))
    }
    assert len(digests) == 1
    with zipfile.ZipFile(io.BytesIO(agent_bundle.build(contents))) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_other_sources_other_name() -> None:
    (path, data), *rest = agent_bundle.sources()
    names = {
        agent_bundle.name(contents)
        for contents in (
            ((path, data), *rest),
            ((path, data + b"#"), *rest),
            ((path + "x", data), *rest),
            tuple(rest),
            ((path + "\0", data[1:]), *rest),
        )
    }
    assert len(names) == 5


def test_it_imports_nothing_outside_the_standard_library(agent: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*PYTHON, "-c", IMPORT, str(agent)], capture_output=True, text=True, cwd=tmp_path, env={}, check=False
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.split())
    assert {
        "taco_launch.core.errors",
        "taco_launch.core.model.jobs",
        "taco_launch.agent.supervisor.supervisor",
    } <= modules
    assert not [name for name in modules if name.startswith(("taco_launch.cli", "taco_launch.hosts.inventory"))]


def test_what_functions_import_ships_too() -> None:
    """An import inside a function fails only when the function runs."""
    contents = dict(agent_bundle.sources())
    shipped = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in contents}
    missing = set()
    for path, data in contents.items():
        for node in ast.walk(ast.parse(data)) if path.endswith(".py") else ():
            if isinstance(node, ast.Import):
                imported = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported = _modules(str(node.module), [alias.name for alias in node.names])
            else:
                continue
            missing |= {(path, name) for name in imported - shipped if name.startswith("taco_launch")}
    assert missing == set()


def _modules(base: str, names: list[str]) -> set[str]:
    """Return the modules that `from base import names` loads."""
    root = Path(taco_launch.__file__).parent.parent
    below = {name for name in names if (root / base.replace(".", "/") / name).with_suffix(".py").exists()}
    return {base, *(f"{base}.{name}" for name in below)}


def test_a_bug_of_the_agent_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tuple(
        (path, data + b"\ndef _list(*_): raise ValueError('boom')\nOPERATIONS = dict.fromkeys(OPERATIONS, _list)\n")
        if path.endswith("agent/api/queries.py")
        else (path, data)
        for path, data in agent_bundle.sources()
    )
    monkeypatch.setattr(agent_bundle, "sources", lambda: broken)
    logs = tmp_path / "logs"
    logs.mkdir()
    folders = {"TACO_LAUNCH_STATE": str(tmp_path / "state"), "XDG_STATE_HOME": str(tmp_path), "TMPDIR": str(logs)}
    refused = call("list", env=folders)
    (log,) = logs.iterdir()
    assert refused.exit_code == 1
    assert "a bug in the agent: ValueError: boom" in refused.stderr
    assert f"the details are in {log}" in refused.stderr
    assert "network" not in refused.stderr


def test_compiled_code_lies_beside_every_source(agent: Path) -> None:
    names = zipfile.ZipFile(agent).namelist()
    sources = {name for name in names if name.endswith(".py")} - {"__main__.py"}
    assert {name for name in names if name.endswith(".pyc")} == {f"{name}c" for name in sources}
    assert len(names) == len(set(names))


def test_it_stays_small() -> None:
    """Every host of a job gets it once per version, also over a slow link and onto a disk that is almost full."""
    assert len(agent_bundle.build(agent_bundle.sources())) < 4_215_000


def test_the_sources_suffice(slim: Path) -> None:
    """Another Python passes the compiled code over."""
    done = subprocess.run([*PYTHON, str(slim), "list"], input=b"", stdout=subprocess.PIPE, env={}, check=False)
    assert b'"op":"list"' in done.stdout
    assert done.returncode == 0, "it was started ahead, and not called"


def test_a_python_without_zlib_is_named(slim: Path) -> None:
    run = "import runpy, sys; sys.modules['zlib'] = None; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run([*PYTHON, "-c", run, str(slim), "list"], input=b"", capture_output=True, check=False)
    assert done.stdout == b"unready module zlib\n", done.stderr


@pytest.fixture
def slim(tmp_path: Path) -> Path:
    """Build the zipapp as another Python sees it: without compiled code."""
    path = tmp_path / "slim.pyz"
    with (
        zipfile.ZipFile(io.BytesIO(agent_bundle.build(agent_bundle.sources()))) as whole,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in whole.namelist():
            if not name.endswith(".pyc"):
                target.writestr(zipfile.ZipInfo(name), whole.read(name), whole.getinfo(name).compress_type)
    return path


def test_the_probe_is_in_it(agent: Path) -> None:
    read = (
        "import pkgutil, sys; sys.path[0] = sys.argv[1]; print(pkgutil.get_data('taco_launch.core.facts', 'probe.sh'))"
    )
    done = subprocess.run([*PYTHON, "-c", read, str(agent)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("b'#!/bin/sh")
