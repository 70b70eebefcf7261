"""What a container can reach on its host, and which of its variables other users can read."""

import re

import pytest

from taco_launch.core.model.host import paths
from taco_launch.setup.files import unit
from tests.support.training import NAME, after, defined, ops, plan, problem, ready


def test_nothing_that_the_hosts_root_runs_is_in_a_mount() -> None:
    """Neither what units and operations run, nor what they read to know what to do."""
    made = defined(ready())
    sources = [option.split("source=")[1].split(",")[0] for option in made.options if option.startswith("--mount=")]
    writable = [option.split("source=")[1].split(",")[0] for option in made.options if option.startswith("--mount=") and "readonly" not in option]  # fmt: skip
    assert writable == [paths.state("hcc"), paths.LEASES]
    run = [word for file in unit.files(made) if file.path.endswith(".service") for word in file.data.decode().split()]
    ours = [word for word in run if word.startswith(("/var/lib", "/run", "/etc/taco-launch"))]
    assert ours == [unit.wait_script("hcc"), paths.state("hcc")]
    hidden = (unit.wait_script("hcc"), paths.host_folder("hcc"), paths.secrets_file("hcc"))
    assert not [(path, source) for path in hidden for source in sources if f"{path}/".startswith(f"{source}/")]


def test_what_a_variable_holds_stands_in_no_argument_and_no_label() -> None:
    one, two = (defined(ready(), env=(("TOKEN", value),)) for value in ("geheim", "anders"))
    assert not [word for word in one.argv if "geheim" in word]
    assert "geheim" not in repr(one)
    (told,) = [option for option in one.label_options if "TOKEN" in option]
    assert re.fullmatch("--env=TOKEN#[0-9a-f]{16}", told)
    assert one.digest != two.digest
    (create, *_) = ops(after(ready(), env=(("TOKEN", "geheim"),)), env=(("TOKEN", "anders"),))
    assert create.why.split("; ")[0] == "from now on with another value of --env=TOKEN"
    assert "anders" not in create.script + "".join(create.args)


@pytest.mark.parametrize("value", ["one\nOTHER=two", "one\r"])
def test_a_line_break_in_a_variable_is_refused(value: str) -> None:
    found = problem(plan(ready(), env=(("TOKEN", value),)))
    assert found.message.startswith(f"{NAME}: the variable TOKEN contains a line break")
    assert "one" not in found.message
