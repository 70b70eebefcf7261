"""The launchers: no code asks for one by its name, but where its own words are."""

import re
from pathlib import Path

import taco_launch
from taco_launch.model.launchers import LAUNCHERS

_ROOT = Path(taco_launch.__file__).parent
# A comparison of a job's launcher, or of a name, with one that is written out.
_ASKS = re.compile(rf"launcher\w*\)? *(?:==|!=|in|not in) *[\(\[{{]?\"(?:{'|'.join(LAUNCHERS)})\"")


def test_a_launcher_is_asked_for_what_it_does_and_not_for_its_name() -> None:
    asking = [
        f"{path.relative_to(_ROOT)}: {line.strip()}"
        for path in sorted(_ROOT.rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if _ASKS.search(line)
    ]
    # Open MPI refuses to be started by itself.
    assert [line.partition(":")[0] for line in asking] == ["cli/options/nested_launcher.py"] * 3 + [
        "launch/nested_launcher.py",
        "request/resolve.py",
    ]


def test_each_has_a_kind_of_kubernetes() -> None:
    assert {launcher.kind for launcher in LAUNCHERS.values()} == {"MPIJob", "PyTorchJob"}
    assert [name for name, launcher in LAUNCHERS.items() if launcher.is_single] == ["mpirun", "hydra"]
