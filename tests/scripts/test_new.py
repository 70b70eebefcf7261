"""scripts/new: each skeleton is whole, fits the tables, and has a test that fails until it is filled in."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT, SCRIPTS

NAMES = {
    "backend": "elsewhere",
    "fact": "nvme",
    "knob": "NCCL_SOMETHING_NEW",
    "launcher": "starter",
    "signature": "nccl-something-new",
    "stage": "tuning",
}
# The tables that get a row.
TABLES = (
    "taco_launch/core/facts/reports/summary.py",
    "taco_launch/core/facts/system/system.py",
    "taco_launch/core/launch/knobs/nccl.py",
    "taco_launch/core/model/engines.py",
    "taco_launch/core/model/launchers.py",
    "taco_launch/core/signatures/known/nccl.py",
    "taco_launch/core/model/host/facts.py",
    "docs/guides/setup-changes.md",
)
PROBE = "taco_launch/core/facts/probe.sh"


def new(root: Path, kind: str, name: str) -> "subprocess.CompletedProcess[str]":
    argv = (sys.executable, str(SCRIPTS / "new"), kind, name, "--root", str(root))
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for table in (*TABLES, PROBE):
        (tmp_path / table).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / table, tmp_path / table)
    return tmp_path


@pytest.mark.parametrize("kind", NAMES)
def test_a_skeleton_has_its_files_and_a_page(kind: str, root: Path) -> None:
    done = new(root, kind, NAMES[kind])
    assert (done.returncode, done.stderr) == (0, "")
    *paths, page = done.stdout.splitlines()
    assert any(path.startswith("tests/") for path in paths)
    for path in paths:
        text = (root / path).read_text("utf-8")
        if path.endswith(".py"):
            ast.parse(text)
    assert (ROOT / page.removeprefix("next: ")).is_file()


@pytest.mark.parametrize("kind", ["backend", "fact", "launcher", "stage"])
def test_its_test_fails(kind: str, root: Path) -> None:
    path = next(path for path in new(root, kind, NAMES[kind]).stdout.splitlines() if path.startswith("tests/"))
    module = ast.parse((root / path).read_text("utf-8"))
    (test,) = (node for node in module.body if isinstance(node, ast.FunctionDef))
    assert isinstance(test.body[-1], ast.Assert)
    assert ast.unparse(test.body[-1].test) == "False"


def test_a_row_is_a_part_of_its_table(root: Path) -> None:
    for kind, name in NAMES.items():
        assert new(root, kind, name).returncode == 0
    for table in TABLES[:-1]:
        ast.parse((root / table).read_text("utf-8"))
    assert "slurm-on-your-hosts) |\n| `tuning` | TODO: what the host has then |\n\n## What" in (
        root / TABLES[-1]
    ).read_text("utf-8")


def test_a_fact_is_four_files_of_the_product(root: Path) -> None:
    changed = [path for path in new(root, "fact", "nvme").stdout.splitlines() if path.startswith("taco_launch/")]
    assert len(changed) == 4
    assert all("nvme" in (root / path).read_text("utf-8") for path in changed)
    assert subprocess.run(("sh", "-n", str(root / PROBE)), check=False).returncode == 0


def test_nothing_is_overwritten(root: Path) -> None:
    assert new(root, "stage", "tuning").returncode == 0
    again = new(root, "stage", "tuning")
    assert (again.returncode, again.stdout) == (2, "")
    assert "taco_launch/setup/stages/tuning.py exists" in again.stderr


def test_a_name_of_the_wrong_form(root: Path) -> None:
    refused = new(root, "launcher", "../up")
    assert refused.returncode == 2
    assert "'../up' is no name of a launcher" in refused.stderr
