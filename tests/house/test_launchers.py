"""The launchers: no code asks for one by its name, but where its own words are."""

import re
from importlib import import_module
from pathlib import Path

import click

import taco_launch
from taco_launch.cli.jobs.run import run
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.jobs.documents.job_schema import JobDocument

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
    assert asking == []
    assert _ASKS.search('if spec.launcher == "mpirun":')


def test_each_has_a_kind_of_kubernetes() -> None:
    assert {launcher.kind for launcher in LAUNCHERS.values()} == {"MPIJob", "PyTorchJob"}
    assert [name for name, launcher in LAUNCHERS.items() if launcher.is_single != launcher.is_mpi] == []


def test_each_has_a_plan() -> None:
    plans = {
        name: import_module(f"taco_launch.core.launch.launchers.{row.plan}").plan for name, row in LAUNCHERS.items()
    }
    assert all(map(callable, plans.values()))


def test_every_way_to_name_a_launcher_takes_each_of_them() -> None:
    for name in LAUNCHERS:
        assert JobDocument.model_validate({"launcher": name}).model_dump()["launcher"] == name
    option = next(each for each in run.params if each.name == "launcher")
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == list(LAUNCHERS)
