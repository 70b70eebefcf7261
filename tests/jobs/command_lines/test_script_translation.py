"""Scripts as people give them to a shell, Slurm, PBS or LSF: each launcher in them is a line here, and nothing is lost."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.command import shell
from taco_launch.jobs.command_lines import shell_script
from taco_launch.jobs.command_lines.script_translation import translate_script

SCRIPTS = Path(__file__).with_name("scripts")
CASES = sorted(path for path in SCRIPTS.iterdir() if path.suffix != ".yaml")


def lines(text: str) -> list[str]:
    """Return what a script is here: the line of each job, then what is left out."""
    done = translate_script(text)
    found = [f"{line}: {shell((*job.options, '--', *job.program))}" for line, job in done.jobs]
    rows = [*(row for _line, job in done.jobs for row in job.rows), *done.rows]
    return [*found, *(f"without {row.original}: {row.why}" for row in rows if not row.here)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_a_script(path: Path) -> None:
    assert lines(path.read_text("utf-8")) == yaml.safe_load(path.with_suffix(".yaml").read_text("utf-8"))


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("mpirun -np 2 a 'b c' \"d $HOME\" e\\ f", ("a", "b c", "d $HOME", "e f")),
        ("A=1; B=$A-2\nmpirun -np 2 a $A ${B} ${C:-3} '$A'", ("a", "1", "1-2", "3", "$A")),
        ("mpirun -np 2 a 2>&1 > log < /dev/null | tee x", ("a",)),
        ("x=(1 2 $(mpirun -np 9 no))\nmpirun -np 2 a \\\n  b # mpirun -np 3 c", ("a", "b")),
        ("if true; then mpirun -np 2 a; fi", ("a",)),
        ("true && FOO=`date` mpirun -np 2 a `hostname`", ("a", "$(...)")),
        ("cat <<'X' > f\nmpirun -np 7 no\nX\nmpirun -np 2 a", ("a",)),
    ],
)
def test_a_shells_grammar(text: str, program: tuple[str, ...]) -> None:
    ((_line, job),) = translate_script(text).jobs
    assert job.program == program
    assert job.options[:2] == ("--np", "2")


@given(st.text("mpirun -np2a$(){}[]'\"\\`#;|&<>=\n\t x", max_size=60))
def test_any_text_is_read(text: str) -> None:
    shell_script.read(f"#!/bin/sh\n{text}")
    for job in (job for _line, job in translate_script(text).jobs):
        assert job.program
        assert not {shell_script.UNKNOWN, shell_script.LITERAL} & set("".join((*job.options, *job.program)))
