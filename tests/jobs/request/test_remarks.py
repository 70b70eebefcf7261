"""Notes on programs that ask for what a job does not give them."""

from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.request.caller import here
from taco_launch.jobs.request.remarks import remarks


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
