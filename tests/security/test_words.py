"""Words and numbers of others that end in a shell's line, in an inventory, or in arithmetic."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from taco_launch.bench.history.history import open_history
from taco_launch.bench.logs.workloads import read
from taco_launch.bench.model.matrix import LogFormat, Workload
from taco_launch.cli.main import cli
from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.facts.network.network import parse_network
from taco_launch.core.facts.text import sections
from taco_launch.core.model.host.fact_value import NOT_ASKED
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.hosts.inventory import scaffold
from tests.support.evil_head import JOB, answered, changed
from tests.support.ladders import ladder

EVIL = ("$(id)", "`id`", "x;id", "x id", "a\nb", "*", "-x", "\x1b[2J")


def test_a_shell_is_offered_names_alone(tmp_path: Path) -> None:
    """What it offers stands in the line that is typed as it is, and the next key may be Enter."""
    for name in (*EVIL, "vgg16"):
        (tmp_path / "jobs" / name).mkdir(parents=True)
    for verb in ("logs", "stop"):
        environ = {"TACO_LAUNCH_STATE": str(tmp_path), "_TACO_LAUNCH_COMPLETE": "bash_complete"}
        words = {"COMP_WORDS": f"taco-launch {verb} ".replace(" ", "\n"), "COMP_CWORD": "2"}
        done = subprocess.run(
            (sys.executable, "-c", "from taco_launch.cli.main import main; main()"),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **environ, **words},
        )
        assert done.stdout == "plain,vgg16\n", (verb, done.stderr)


@pytest.mark.parametrize("name", EVIL)
def test_a_head_names_no_job_so_that_its_name_is_a_command(name: str) -> None:
    """Messages say what to type next, with the name of the job in it."""
    result = answered(("get", "vgg16"), [{"op": "job", "job": changed(JOB, ("spec", "name"), name)}])
    assert isinstance(result.exception, HostError), result.output
    assert "no job has the name" in result.exception.message


def interfaces(master: str) -> bytes:
    """Return the answer of a host that is reached by eth0, which it says is a part of another interface."""
    files = [
        f"/sys/class/net/{name}/{file}:{text}"
        for name, index in (("eth0", "2"), (master, "7"))
        for file, text in (("ifindex", index), ("mtu", "1500"), ("operstate", "up"), ("type", "1"))
    ]
    told = {
        "network.files": "",
        "network.interfaces": "\n".join([*files, "/sys/class/net/eth0/master/ifindex:7"]),
        "network.addresses": "2: eth0    inet 10.0.0.1/24 scope global eth0",
        "network.connection": "10.0.0.9 1 10.0.0.1 22",
    }
    lines = [line for name, text in told.items() for line in (f"n begin {name}", text, f"n end {name} 0")]
    return "\n".join(["n probe 1 5", *lines, "n done 6", ""]).encode()


@pytest.mark.parametrize("break_", ["\u2028", "\u2029", "\x85", "\r"])
def test_a_host_writes_no_line_of_the_inventory(break_: str) -> None:
    """A line break of YAML, in the name of an interface: behind it a comment has ended."""

    def sketch(master: str) -> scaffold.HostSketch:
        network = parse_network(sections.read(interfaces(master)))
        nothing: dict[str, Any] = dict.fromkeys(("system", "docker", "image", "topology"), NOT_ASKED)
        return scaffold.HostSketch.of(HostFacts("h", gpu=NOT_ASKED, rdma=NOT_ASKED, network=network, **nothing))

    assert sketch("bond0").interface == "bond0"
    found = {"h1": sketch("bond0"), "h2": sketch(f"x{break_}? container{break_}#")}
    text = scaffold.text(found, cluster="c", file="hosts.yaml")
    assert "? container" not in text


@pytest.mark.parametrize("value", [1e308, 1e-320, 1e31])
def test_a_number_that_nothing_measures_is_no_reading(tmp_path: Path, value: float) -> None:
    """Its square is none any more: whoever reads the history could not compare anything."""
    with open_history(tmp_path / "one.db") as history:
        history.begin(ladder(1))
    runner = CliRunner()
    told = runner.invoke(cli, ["bench", "export", "--db", str(tmp_path / "one.db")], standalone_mode=False)
    document = json.loads(told.stdout)
    run = {"position": 0, "workload": "w", "variant": "v", "ranks": 1, "repeat": 0, "warm_up": False, "job": "j"}
    run |= {"started": 1.0, "seconds": 1.0, "gpu": "", "why": "", "log": "", "hosts": ["h"], "circumstances": []}
    reading = {"name": "r", "unit": "u", "higher_is_better": True, "value": value}
    document["ladders"][0]["runs"] = [{**run, "readings": [reading]}]
    (tmp_path / "export.json").write_text(json.dumps(document))
    words = ["bench", "import", str(tmp_path / "export.json"), "--db", str(tmp_path / "two.db")]
    done = runner.invoke(cli, words, standalone_mode=False)
    assert isinstance(done.exception, TacoLaunchError), done.exception
    assert "is not a reading" in done.exception.message
    workload = Workload("w", LogFormat.REGEX, (), pattern="rate: (.*)", unit="u")
    assert not isinstance(read(workload, f"rate: {value:e}\n", 1), tuple)


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-1.0", "1e300"])
def test_a_run_has_taken_a_time(tmp_path: Path, seconds: str) -> None:
    run = {"position": 0, "workload": "w", "variant": "v", "ranks": 1, "repeat": 0, "warm_up": False, "job": "j"}
    run |= {"started": 1.0, "gpu": "", "why": "w", "log": "", "hosts": [], "circumstances": [], "readings": []}
    of = {"id": "i", "matrix": "m", "kind": "night", "digest": "", "seed": 0, "cluster": "", "started": 1.0}
    one = {**of, "ended": None, "outcome": "", "accepted": False, "runs": [{**run, "seconds": "SECONDS"}]}
    text = json.dumps({"format": "taco-launch history", "version": 1, "circumstances": [], "ladders": [one]})
    (tmp_path / "export.json").write_text(text.replace('"SECONDS"', seconds))
    words = ["bench", "import", str(tmp_path / "export.json"), "--db", str(tmp_path / "history.db")]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    assert isinstance(done.exception, TacoLaunchError), done.exception
    assert "is not a time" in done.exception.message
