"""Which commands `--light` changes, and how."""

import pytest

from taco_launch.core.launch.command_line.overrides import command_tokens
from taco_launch.core.launch.light_program import names_light, with_light


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("python3 train.py --lr 1", "python3 -m taco_launch.light train.py --lr 1"),
        (
            "/opt/conda/bin/python3.11 -u -X dev train.py",
            "/opt/conda/bin/python3.11 -u -X dev -m taco_launch.light train.py",
        ),
        ("python -m train -m x", "python -m taco_launch.light -m train -m x"),
        ("python3 -m taco_launch.light train.py", "python3 -m taco_launch.light train.py"),
        ("python3 -c print()", "python3 -c print()"),
        ("python3 -", "python3 -"),
        ("python3 -u", "python3 -u"),
        ("python3", "python3"),
        ("bash train.sh", "bash train.sh"),
        ("./pythonic train.py", "./pythonic train.py"),
    ],
)
def test_a_command(command: str, changed: str) -> None:
    assert " ".join(with_light(command.split())) == changed
    assert names_light(changed.split()) == ("taco_launch.light" in changed)


def test_the_words_that_light_adds_are_not_those_of_the_command() -> None:
    command = with_light(("python3", "-u", "-m", "train", "-m", "x"))
    added = [token.text for token in command_tokens(command) if token.why.startswith("--light")]
    assert added == ["-m", "taco_launch.light"]
    assert [token.text for token in command_tokens(command)] == list(command)
