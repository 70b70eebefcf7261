"""What we read in a hostfile is what the real mpirun reads: the same slots, the same most."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from taco_launch.hosts.inventory.load import load
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

MPIRUNS = ["mpirun", *filter(None, [os.environ.get("TACO_LAUNCH_OPENMPI5")])]
FILES = {
    "plain": "localhost slots=3\n",
    "most": "localhost slots=3 max-slots=5\n",
    "most with an underscore": "localhost max_slots=5 slots=3\n",
    "spaces around equals": "localhost slots = 3 max-slots= 5\n",
    "tabs": "\tlocalhost\tslots=3\t\n",
    "comments": "# one\n// two\n\nlocalhost slots=3 # three\n",
    "glued comment": "localhost slots=3#x\n// localhost slots=4\n",
    "no newline at the end": "localhost slots=3",
    "leading zero": "localhost slots=08\n",
    "address": "127.0.0.1 slots=2\n",
    "user": "nobody@localhost slots=3\n",
}


@pytest.mark.parametrize("mpirun", MPIRUNS)
@pytest.mark.parametrize("name", FILES)
def test_slots_are_those_that_mpirun_reads(mpirun: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(FILES[name])
    (host,) = load(str(file), {}).hosts
    argv = [mpirun, "--allow-run-as-root", "--hostfile", str(file), "--display-allocation", "-np", "1", "true"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=patience(60), check=True)
    seen = re.findall(r"slots=(\d+) max_slots=(\d+)", run.stdout + run.stderr)
    assert set(seen) == {(str(host.slots), str(host.max_slots or 0))}
