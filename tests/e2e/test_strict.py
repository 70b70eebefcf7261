"""A job that has to run as planned is ended where it does not."""

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.conftest import Taco
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

MODULE = "taco_launch/agent/supervisor/verification.py"


@pytest.fixture
def soon(taco: Taco, agent: Path, tmp_path: Path) -> Taco:
    """The command line, whose agent looks at the ranks after a second."""
    changed = tmp_path / agent.name
    with zipfile.ZipFile(agent) as whole, zipfile.ZipFile(changed, "w") as parts:
        for name in whole.namelist():
            data = whole.read(name)
            if name == MODULE:
                assert b"_AT_SECONDS = (60.0," in data
                data = data.replace(b"_AT_SECONDS = (60.0,", b"_AT_SECONDS = (1.0,")
            if name != f"{MODULE}c":  # what was compiled is of the other source
                parts.writestr(name, data)
    installed = taco.state / "agent" / agent.name
    installed.unlink()  # the same file as every test's
    changed.rename(installed)
    return taco


def run(taco: Taco, seconds: float, *options: str, before: str = "export NCCL_DEBUG=INFO") -> "tuple[int, str]":
    words = ("--name", "it", "--np", "2", "--grace", "1", "-x", "NCCL_DEBUG=WARN", *options)
    done = taco("run", *words, "--", "sh", "-c", f"{before}; exec sleep {seconds:.0f}")
    return done.returncode, done.stderr


def test_a_variable_that_the_program_sets_again_ends_a_strict_job(soon: Taco) -> None:
    code, said = run(soon, 600, "--strict")
    assert code == 125, said
    why = "rank 0 on localhost: environment: planned NCCL_DEBUG=WARN, is NCCL_DEBUG=INFO"
    assert f"it does not run as planned (--strict): {why}" in said
    job = soon.job("it")
    assert (job["state"], job["exit_code"], job["verified"]["status"]) == ("FAILED", 125, "False")
    assert job["reason"].startswith(f"it does not run as planned (--strict): {why}")
    assert "taco-launch exec it --rank 0 -- env" in job["hint"]


def test_ranks_that_load_different_libraries_end_a_strict_job(soon: Taco, tmp_path: Path) -> None:
    """Both load a real library, under names of two releases of libfabric."""
    (libm,) = set(re.findall(r"/\S+/libm[.-]\S*$", Path("/proc/self/maps").read_text(), re.MULTILINE))
    for release in ("1.25.0", "1.26.0"):
        shutil.copy(libm, tmp_path / f"libfabric.so.{release}")
    before = f"export LD_PRELOAD={tmp_path}/libfabric.so.1.2$((5 + OMPI_COMM_WORLD_RANK)).0"
    code, said = run(soon, 600, "--strict", before=before)
    assert code == 125, said
    assert "rank 1 on localhost: library libfabric: planned 1.25.0 as on localhost, is 1.26.0" in said


def test_without_strict_it_is_a_warning(soon: Taco) -> None:
    code, said = run(soon, patience(6))
    assert code == 0, said
    assert soon.job("it")["verified"]["status"] == "False"
    header, line = soon("list", "-o", "wide").stdout.splitlines()
    assert line[header.index("VERIFIED") :].split()[0] == "False"
