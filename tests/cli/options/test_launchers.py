"""--launcher and --per-host on the command line: what a dry run prints and writes, and what is refused."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import call, failing, succeeding

INVENTORY = 'cluster: two\nnetwork: {interface: eth0}\nversions: {openmpi: "4.1.4"}\nhosts:\n  n[1-2]: {slots: 2}\n'


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    file = tmp_path / "two.yaml"
    file.write_text(INVENTORY, encoding="ascii")
    return ["-i", str(file), "run", "--dry-run"]


def test_a_line_for_each_host(two: list[str]) -> None:
    found = succeeding(*two, "--launcher", "torchrun", "--", "python3", "train.py", "a b")
    lines = found.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["n1", "n2"]
    assert all(f"torchrun --nnodes 2 --nproc_per_node 2 --node_rank {number} " in lines[number] for number in (0, 1))
    assert all(line.endswith(" python3 train.py 'a b'") for line in lines)


def test_json_explain_and_files(two: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = [*two, "--launcher", "env", "--", "sh", "-c", "echo $RANK:$LOCAL_RANK:$WORLD_SIZE"]
    found = json.loads(call(*asked[:4], "--json", *asked[4:]).stdout)
    assert [(one["host"], one["ranks"]) for one in found["commands"]] == [("n1", [0, 1]), ("n2", [2, 3])]
    assert found["line"] == shlex.join(token["text"] for token in found["tokens"])
    explained = call(*asked[:4], "--explain", *asked[4:]).stdout
    assert "LOCAL_RANK=0" in explained
    assert f"\nn2: {found['commands'][1]['line']}\n" in explained
    assert call(*asked[:4], "--to", str(out), *asked[4:]).exit_code == 0
    for host, expected in (("n1", ["0:0:4", "1:1:4"]), ("n2", ["2:0:4", "3:1:4"])):
        done = subprocess.run(["sh", str(out / f"{host}.sh")], capture_output=True, text=True, check=True, timeout=10)
        assert sorted(done.stdout.split()) == expected


def test_per_host_counts_hosts(two: list[str]) -> None:
    found = json.loads(call(*two, "--launcher", "env", "--per-host", "--json", "--", "true").stdout)
    assert [one["ranks"] for one in found["commands"]] == [[0], [1]]
    assert (
        "MASTER_PORT=23456 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 GROUP_RANK=1 NODE_RANK=1 RANK=1"
        in found["commands"][1]["line"]
    )


@pytest.mark.parametrize("launcher", [[], ["--launcher", "torchrun"]])
def test_per_host_is_for_env_alone(two: list[str], launcher: list[str]) -> None:
    found = call(*two, *launcher, "--per-host", "--", "true")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "--per-host" in found.stderr
    assert "--launcher env" in found.stderr


@pytest.mark.parametrize(
    "line",
    [
        "deepspeed --num_gpus 2 t.py --deepspeed",
        "accelerate launch --num_processes 4 t.py",
        "srun -N 2 --ntasks-per-node=2 a.out",
        "composer -n 2 t.py",
        "colossalai run --nproc_per_node 2 --host n1,n2 t.py",
        "mpiexec.hydra -n 2 -genv A=1 a.out",
        "torchrun --nnodes 2 --nproc_per_node=2 t.py",
        "A=1 nohup mpirun -np 4 -wdir /tmp -H n1:2,n2:2 a.out",
        "numactl -N 0 python -m torch.distributed.run --nproc_per_node 2 t.py",
        "horovodrun -np 4 -H n1:2,n2:2 python t.py",
    ],
)
def test_the_line_for_a_launcher_as_the_command_is_one_that_works(two: list[str], line: str) -> None:
    refused = failing(*two, "--", *line.split())
    assert "the command is a launcher itself" in refused
    program, *hint = shlex.split(refused.partition("hint: ")[2])
    assert program == "taco-launch"
    succeeding(*hint)
