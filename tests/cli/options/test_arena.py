"""What people type who come from Arena is refused, and they are told how it is typed here."""

import shlex

import pytest

from taco_launch.cli.options.arena import arena_hint
from tests.cli.test_cli import call

ARENAS = shlex.split("--workers 2 --gpus 4 --env A=1 --tensorboard --mca a b --gdr -H h1")
# As the guide on ACK's topology scheduling has it, in short.
ACK = (
    'mpirun --allow-run-as-root -np "4" -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH '
    "--mca btl ^openib python x.py"
)
TYPED = (
    (
        ("submit", "pytorch", "--name=b", "python x.py -n 1"),
        "Type: taco-launch submit --launcher env --name b -- python x.py -n 1\n",
    ),
    (
        ("submit", "mpijob", "--name=b", "--gpus=1", "--workers=3", "--image=i:1", "python x.py"),
        "Type: taco-launch submit --workers 3 --gpus 1 --name b --image i:1 -- python x.py\n",
    ),
    (("run", "--np", "2", "tf", "--", "python3", "a b.py"), "Type: taco-launch run --np 2 -- python3 'a b.py'\n"),
    (
        ("submit", "tf", *ARENAS, "python x.py"),
        ("Type: taco-launch submit --workers 2 --gpus 4 --gdr --mca a b -H h1 --tensorboard -x A=1 -- python x.py\n"),
    ),
    (
        ("submit", "pytorch", "--working-dir=/root", "--sync-mode=git", "--epochs=3", "python x.py"),
        (
            "--workdir /root --sync-mode git -- python x.py\n  left out: --epochs is no option here; one of your program goes after --\n"
        ),
    ),
    (
        ("submit", "mpi", "--name=b", "--gpus=1", "--workers=4", "--gputopology=true", ACK),
        "Type: taco-launch submit --workers 4 --gpus 1 --name b --gputopology -x NCCL_DEBUG=INFO --mca btl '^openib' -- python x.py\n",
    ),
    (
        ("submit", "pytorch", "--workers=2", "--gpus=2", "torchrun --nproc_per_node=2 --node_rank=$RANK x.py"),
        (
            "Type: taco-launch submit --launcher env --per-host --workers 2 --gpus 2 -- bash -c 'torchrun --nproc_per_node=2 "
            "--node_rank=$RANK x.py'\n"
        ),
    ),
    (("run", "--env=A=1", "--", "true"), "No such option: --env: set a variable with -x NAME=VALUE\n"),
    (("run", "horovod", "--name", "b"), "Type: taco-launch run --name b -- python3 train.py\n"),
    (("run", "pytorch", "python 'x.py"), "Type: taco-launch run --launcher env -- python3 train.py\n"),
)


@pytest.mark.parametrize(("words", "told"), TYPED, ids=[" ".join(words) for words, _ in TYPED])
def test_spelling(words: tuple[str, ...], told: str) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize("words", [("--", "mpi", "--gpus", "2"), ("--name", "tf", "true")], ids=" ".join)
def test_a_program_may_be_called_so(words: tuple[str, ...]) -> None:
    result = call("run", "--dry-run", *words)
    assert result.exit_code == 0, result.stderr
    assert arena_hint("run", (), ("mpi",), (), alone=True) is None


@pytest.mark.parametrize("name", ["b-master-0", "b-worker-12", "a-b-launcher"])
def test_the_inventory_is_no_instance(name: str) -> None:
    result = call("logs", "b", "-i", name)
    assert result.exit_code == 2
    assert f"did you mean --instance {name}? -i names the inventory" in result.stderr
    assert "--instance" not in call("logs", "b", "-i", f"./{name}").stderr
