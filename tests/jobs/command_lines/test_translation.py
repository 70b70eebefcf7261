"""A launcher's line as options of `run`: each part of it is among them, or named as left out."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines.launcher_line import UnclearError
from taco_launch.jobs.command_lines.translation import Translation, translate
from tests.support.command_line import VERBS

CASES = yaml.safe_load(Path(__file__).with_name("lines.yaml").read_text("utf-8"))


def translated(line: str) -> Translation:
    words = shlex.split(line)
    found = inner(words)
    assert found is not None
    return translate(words, found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["typed"])
def test_a_line(case: dict[str, Any]) -> None:
    done = translated(case["typed"])
    hostfile = ["-i", done.hostfile] if done.hostfile and "-H" not in done.options else []
    assert shlex.join([*hostfile, "run", *done.options, "--", *done.program]) == case["here"]
    assert [row.original for row in done.left_out if not row.is_remark] == case["without"]
    assert all(row.why for row in done.left_out)


def test_a_program_that_may_be_an_options_value_is_named() -> None:
    remarks = [row for row in translated("accelerate launch --same_network true --tee 3 main.py").rows if row.is_remark]
    assert [row.original for row in remarks] == ["true"]
    assert "although --tee follows it" in remarks[0].why


@pytest.mark.parametrize(
    "script",
    [
        "'torchrun t.py > log'",
        "'torchrun *.py'",
        "'! torchrun t.py'",
        "'while :; do torchrun t.py; done'",
        "'torchrun ~/t.py {1,2}'",
        "'torchrun t.py $1' _ a",
    ],
)
def test_a_shell_that_does_more_than_start_a_launcher_is_not_removed(script: str) -> None:
    with pytest.raises(UnclearError, match="is a script that starts torchrun, and does more"):
        translated(f"srun bash -c {script}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["typed"])
def test_the_command_line_accepts_what_is_printed(case: dict[str, Any]) -> None:
    done = translated(case["typed"])
    with VERBS["run",].make_context("run", [*done.options, "--", *done.program]) as context:
        assert context.params["command"] == done.program
