"""The archive of a real job: what its ranks printed is there, and no secret."""

import tarfile
from pathlib import Path

import pytest

from tests.conftest import Taco

pytestmark = pytest.mark.e2e

SCRIPT = "echo rank $RANK has $MY_TOKEN; echo API_KEY=of-the-program; echo DB_PASS=of-the-pass; exit $RANK"


def test_support_of_a_real_job(taco: Taco, tmp_path: Path) -> None:
    options = ("--name", "it", "--np", "2", "-x", "MY_TOKEN=my-own-secret", "--launcher", "env")
    assert taco("run", *options, "--", "sh", "-c", SCRIPT).returncode == 1
    done = taco("support", "it", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    with tarfile.open(tmp_path / "it-support.tar.gz") as archive:
        archive.extractall(tmp_path)  # filters are there from Python 3.11.4 on
    files = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.glob("it-support/**/*.*")}
    assert not [
        name
        for name, text in files.items()
        if "my-own-secret" in text or "of-the-program" in text or "of-the-pass" in text
    ]
    assert files["it-support/logs/rank-1.log"] == "rank 1 has ***\nAPI_KEY=***\nDB_PASS=***\n"
    assert "rank 1 on localhost exited with code 1" in files["it-support/get.txt"]
    assert all(name.partition("/")[2] in done.stdout for name in files)
