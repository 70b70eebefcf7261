"""What people type who come from Arena is refused, and they are told how it is typed here."""

import pytest

from taco_launch.cli.options.foreign_options import arena_hint
from tests.support.command_line import call, failing, succeeding

TYPE = "Type: taco-launch arena submit"
NO_TYPE = "would be taken for the program: jobs have no type here, so omit it and put --"
TYPED = (
    (("submit", "pytorch", "--name=b", "python x.py -n 1"), f"{TYPE} pytorch --name=b 'python x.py -n 1'\n"),
    (("submit", "mpijob", "--name=b", "--gpus=1", "--", "mpirun", "x"), f"{TYPE} mpijob --name=b --gpus=1 mpirun x\n"),
    (("run", "tf", "--name", "b"), f"'tf' {NO_TYPE}"),
    (("run", "--env=A=1", "--", "true"), "No such option: --env: set a variable with -x NAME=VALUE\n"),
)


@pytest.mark.parametrize(("words", "told"), TYPED, ids=[" ".join(words) for words, _ in TYPED])
def test_spelling(words: tuple[str, ...], told: str) -> None:
    assert told in failing(*words)


@pytest.mark.parametrize("words", [("--", "mpi", "--gpus", "2"), ("--name", "tf", "true")], ids=" ".join)
def test_a_program_may_be_called_so(words: tuple[str, ...]) -> None:
    succeeding("run", "--dry-run", *words)
    assert arena_hint("taco-launch", ("mpi",), ("mpi",), (), alone=True) is None


@pytest.mark.parametrize("name", ["b-master-0", "b-worker-12", "a-b-launcher"])
def test_the_inventory_is_no_instance(name: str) -> None:
    assert f"did you mean --instance {name}? -i names the inventory" in failing("logs", "b", "-i", name)
    assert "--instance" not in call("logs", "b", "-i", f"./{name}").stderr
