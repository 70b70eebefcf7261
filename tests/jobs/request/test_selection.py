"""--selector, --exclude, --gpu-ids and --gpu-model: which hosts of a job are left, and which of their GPUs."""

from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.errors import SpecError
from taco_launch.core.model.host.hosts import GpuConstraints, Host, Inventory
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.request.caller import here
from taco_launch.jobs.request.remarks import remarks
from taco_launch.jobs.request.selection import indices, narrow, selector

HOSTS = (
    Host("gpu1", "10.0.0.1", labels=(("leaf", "a"), ("rack", "1"))),
    Host("gpu2", "10.0.0.2", labels=(("leaf", "b"), ("rack", "1"))),
    Host("gpu3", "10.0.0.3", labels=(("leaf", "b"),), constraints=GpuConstraints(topology=False)),
    Host("fe80::3", "fe80::3"),
)
CLUSTER = Inventory("c", "gpu1", HOSTS, groups=(("nightly", ("gpu1", "gpu3")),), source="c.yaml")


WRITTEN = {"gpu_ids": "--gpu-ids", "exclude": "--exclude", "selectors": "--selector", "gpu_models": "--gpu-model"}


def left(**asked: Any) -> dict[str, GpuConstraints]:
    asked["selectors"] = tuple(map(selector, asked.pop("selectors", ())))
    request = JobRequest(**asked, written=WRITTEN)
    return {host.name: host.constraints for host in narrow(request, CLUSTER, HOSTS)}


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"selectors": ("leaf=b",)}, "gpu2 gpu3"),
        ({"selectors": ("leaf=b", "rack=1")}, "gpu2"),
        ({"exclude": ("gpu2",)}, "gpu1 gpu3 fe80::3"),
        ({"exclude": ("gpu[2-3]", "[fe80::3]")}, "gpu1"),
        ({"exclude": ("nightly", "gpu2:0")}, "gpu2 fe80::3"),
        ({"exclude": ("gpu1:0", "gpu1")}, "gpu2 gpu3 fe80::3"),
        ({"exclude": ("gpu1", "gpu1:0")}, "gpu2 gpu3 fe80::3"),
    ],
)
def test_which_hosts_are_left(asked: dict[str, Any], names: str) -> None:
    assert list(left(**asked)) == names.split()


def test_which_gpus_are_left() -> None:
    found = left(exclude=("gpu3:0,1", "gpu3:4-5", "[fe80::3]:1"), gpu_ids="6,0-2", gpu_models=("V100",))
    assert found["gpu1"] == GpuConstraints((0, 1, 2, 6), (), ("V100",))
    assert found["gpu3"] == GpuConstraints((0, 1, 2, 6), (0, 1, 4, 5), ("V100",), topology=False)
    assert found["fe80::3"].without == (1,)


@pytest.mark.parametrize(("asked", "expected"), [(None, (True, False)), (True, (True, True)), (False, (False, False))])
def test_the_command_line_goes_before_the_inventorys_topology(asked: bool | None, expected: tuple[bool, bool]) -> None:
    found = left(gpu_topology=asked)
    assert (found["gpu1"].topology, found["gpu3"].topology) == expected


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpu_ids": "0;2"}, "--gpu-ids: 1 error\n  '0;2': indices of GPUs are written 0,2,4-7"),
        ({"gpu_ids": ""}, "indices of GPUs are written 0,2,4-7"),
        ({"gpu_ids": "3-1"}, "indices of GPUs are written 0,2,4-7"),
        ({"gpu_ids": "0,999"}, "indices of GPUs are written 0,2,4-7"),
        ({"gpu_ids": "0,0"}, "--gpu-ids: 1 error\n  '0,0': 0 is listed twice"),
        ({"gpu_ids": "0-3,2"}, "2 is listed twice"),
        ({"exclude": ("gpu2:x",)}, "--exclude: 1 error\n  'x': indices of GPUs are written 0,2,4-7"),
        ({"exclude": ("gpu1:",)}, "indices of GPUs are written 0,2,4-7"),
        ({"exclude": ("gpu9",)}, "unknown host 'gpu9': the hosts of c.yaml are "),
        ({"exclude": ("gpu[1-3]", "[fe80::3]")}, "no host is left"),
        (
            {"gpu_ids": "0", "exclude": ("gpu2:0",)},
            "--gpu-ids: 1 error\n  '0': --exclude leaves none of these on gpu2",
        ),
        ({"selectors": ("leaf",)}, "  'leaf': must be LABEL=VALUE"),
        ({"selectors": ("leef=a",)}, "no host has a label 'leef'; the hosts have leaf, rack (did you mean 'leaf'?)"),
        ({"selectors": ("leaf=c",)}, "no host has it; there are leaf=a, leaf=b"),
        ({"selectors": ("leaf=a", "leaf=b")}, "no host has all of these"),
        ({"gpu_models": (" ",)}, "is empty, but must be a part of a GPU's name"),
    ],
)
def test_what_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        left(**asked)
    assert words in str(caught.value)


def test_indices_in_ascending_order() -> None:
    assert indices(" 4-6, 0 ,7", "--gpu-ids") == (0, 4, 5, 6, 7)


# --- Notes on programs that ask for what a job does not give them


@pytest.mark.parametrize(
    ("command", "is_told"),
    [(("python3", "-u", "elastic.py"), True), (("python3", "plain.py"), False), (("true",), False), (("x.py",), False)],
)
def test_a_script_of_elastic_horovod(tmp_path: Path, command: tuple[str, ...], *, is_told: bool) -> None:
    (tmp_path / "elastic.py").write_text("import horovod.torch as hvd\n@hvd.elastic.run\ndef train(state): ...\n")
    (tmp_path / "plain.py").write_text("import horovod.torch as hvd\n")
    words = tuple(str(tmp_path / word) if word.endswith(".py") else word for word in command)
    note = "".join(remarks(JobSpec("j", words, (Host("me", "127.0.0.1"),)), here({})))
    assert bool(note) is is_told
    assert ("a rank that dies ends the attempt" in note) is is_told


@pytest.mark.parametrize(
    ("launcher", "command", "changes", "is_told"),
    [
        ("env", ("python3", "{}"), {}, True),
        ("torchrun", ("python3", "-u", "{}"), {}, True),
        ("env", ("python3", "-c", "import os; import horovod.torch as hvd; hvd.init()"), {}, True),
        ("mpirun", ("python3", "{}"), {}, False),
        ("hydra", ("python3", "{}"), {}, False),
        ("env", ("python3", "{}"), {"np": 1}, False),
        ("env", ("python3", "{}"), {"per_host": 1}, False),
        ("env", ("python3", "{}"), {"env": (("HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"),)}, False),
        ("env", ("python3", "-c", "print('import horovod')"), {}, False),
    ],
)
def test_horovod_under_a_launcher_without_mpi(
    tmp_path: Path, launcher: str, command: tuple[str, ...], changes: dict[str, Any], *, is_told: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nimport horovod.torch as hvd\n")
    words = tuple(word.replace("{}", str(script)) for word in command)
    spec = JobSpec("j", words, (Host("me", "127.0.0.1"),), launcher=launcher, **{"np": 2, **changes})
    told = "".join(remarks(spec, here({})))
    assert bool(told) is is_told
    assert not told or ("Use --launcher mpirun" in told and f"--launcher {launcher}:" in told)
