"""Notes on programs that ask for what a job does not give them."""

from pathlib import Path

import pytest

from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.request.caller import here
from taco_launch.jobs.request.remarks import remark


@pytest.mark.parametrize(
    ("command", "is_told"),
    [(("python3", "-u", "elastic.py"), True), (("python3", "plain.py"), False), (("true",), False), (("x.py",), False)],
)
def test_a_script_of_elastic_horovod(tmp_path: Path, command: tuple[str, ...], *, is_told: bool) -> None:
    (tmp_path / "elastic.py").write_text("import horovod.torch as hvd\n@hvd.elastic.run\ndef train(state): ...\n")
    (tmp_path / "plain.py").write_text("import horovod.torch as hvd\n")
    words = tuple(str(tmp_path / word) if word.endswith(".py") else word for word in command)
    note = remark(JobSpec("j", words, (Host("me", "127.0.0.1"),)), here({}))
    assert bool(note) is is_told
    assert ("a rank that dies ends the attempt" in note) is is_told
