"""What is known of how containers get GPUs: the toolkit's programs and packages, CDI's specifications, and who reads them."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.facts.parse import parse
from taco_launch.core.facts.reports.summary import rows
from taco_launch.core.facts.text.sections import read
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import DockerFacts
from tests.support.host_facts import host, known
from tests.support.shells import SCRIPT, each_shell, run, tool

# As `nvidia-ctk cdi generate` writes them; some tools write JSON, on one line or on many.
YAML = """\
cdiVersion: 0.5.0
containerEdits:
  hooks:
  - args:
    - nvidia-ctk
    hookName: createContainer
kind: nvidia.com/gpu
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits: {}
  name: all
"""
JSON = {"cdiVersion": "0.5.0", "kind": "vendor.com/nic", "devices": [{"name": "mlx5_0", "containerEdits": {}}]}


def answer(shell: tuple[str, ...], folder: Path, info: dict[str, Any] | None = None) -> DockerFacts:
    """Have the probe look at docker among tools in `folder`/bin, and specifications in `folder`/cdi and /run."""
    told = {"ServerVersion": "28.3.0", "Runtimes": {"runc": {}}, **(info or {})}
    tool(folder / "bin", "docker", f"""case "$1" in info) printf '%s\\n' '{json.dumps(told)}' ;; esac""")
    script = SCRIPT.replace(b"/etc/cdi", f"{folder}/cdi".encode()).replace(b"/var/run/cdi", f"{folder}/run".encode())
    done = run(shell, "docker", script=script, path=f"{folder}/bin:{os.environ['PATH']}")
    assert done.stderr == b""
    return known(parse("gpu1", done.stdout, 0.0, 1.0).docker)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("bin", "cdi", "run"):
        (tmp_path / name).mkdir()
    return tmp_path


@each_shell
def test_what_a_host_has(shell: tuple[str, ...], folder: Path) -> None:
    found = answer(shell, folder)
    assert (found.toolkit_programs, found.cdi) == ((), ())
    assert isinstance(found.cdi_folders, Absent)  # before 25.0
    for name in ("nvidia-container-runtime", "nvidia-ctk"):
        tool(folder / "bin", name, "echo 'NVIDIA Container Toolkit CLI version 1.17.8'")
    (folder / "run/nvidia.yaml").write_text(YAML)
    found = answer(shell, folder, {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]})
    assert found.toolkit == "1.17.8"
    assert found.toolkit_programs == ("nvidia-ctk", "nvidia-container-runtime")
    assert found.cdi == ("nvidia.com/gpu=0", "nvidia.com/gpu=all")
    assert found.cdi_folders == ("/etc/cdi", "/var/run/cdi")
    for number, indent in enumerate((None, 2)):
        (folder / f"cdi/{number}.json").write_text(json.dumps(JSON, indent=indent))
    (folder / "cdi/half.yaml").write_text("devices:\n- name: all\n")  # of no kind
    found = answer(shell, folder, {"CDISpecDirs": None})
    assert found.cdi == ("nvidia.com/gpu=0", "nvidia.com/gpu=all", "vendor.com/nic=mlx5_0")
    assert found.cdi_folders == ()


@pytest.mark.parametrize(
    ("cdi", "shown", "wide"),
    [
        (
            ("nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1", "nvidia.com/gpu=all"),
            "nvidia.com/gpu=all and 2 other names",
            False,
        ),
        (("nvidia.com/gpu=all", "vendor.com/nic=0"), "nvidia.com/gpu=all and 1 other name", False),
        (("vendor.com/nic=0",), "vendor.com/nic=0", False),
        ((), "none", True),
    ],
)
def test_people_see_what_cdi_names(cdi: tuple[str, ...], shown: str, *, wide: bool) -> None:
    facts = host("gpu1")
    (row,) = (
        row for row in rows(replace(facts, docker=replace(known(facts.docker), cdi=cdi))) if row.name == "CDI devices"
    )
    assert (row.text, row.wide) == (shown, wide)


PACKAGES = """m probe 1 1.000000000
m begin made.package
{}

m end made.package 0
m done 2.000000000
"""


@pytest.mark.parametrize(
    ("lines", "of_docker", "of_toolkit"),
    [
        (
            "ii docker-ce 5:28.3.0-1\nun nvidia-docker2 \nii nvidia-container-toolkit 1.17.8-1",
            "docker-ce 5:28.3.0-1",
            ("nvidia-container-toolkit 1.17.8-1",),
        ),
        ("ii nvidia-docker2 2.13.0-1", Absent("no docker package is installed"), ("nvidia-docker2 2.13.0-1",)),
        ("package nvidia-docker2 is not installed\nii docker 1.13.1", "docker 1.13.1", ()),
    ],
)
def test_the_packages(lines: str, of_docker: Any, of_toolkit: tuple[str, ...]) -> None:
    text = PACKAGES.format(lines).encode()
    assert "made.package" in read(text)
    found = known(parse("gpu1", text, 0.0, 1.0).made)
    assert (found.docker_package, found.toolkit_packages) == (of_docker, of_toolkit)


def test_what_is_not_understood_is_unknown() -> None:
    found = known(parse("gpu1", PACKAGES.format("ii docker").encode(), 0.0, 1.0).made)
    assert isinstance(found.toolkit_packages, Unknown)


@each_shell
@pytest.mark.parametrize("socket", ["listening", "running"])
def test_an_engine_that_has_stopped_is_not_started_by_a_look(shell: tuple[str, ...], folder: Path, socket: str) -> None:
    """Where systemd listens in its place, whatever is asked of it starts it."""
    tool(folder / "bin", "systemctl", f'[ "$*" != "show -p SubState docker.socket" ] || echo SubState={socket}')
    tool(folder / "bin", "docker", f"echo >{folder}/asked; echo '{{}}'")
    script = SCRIPT.replace(b"-d /run/systemd/system", b"-d /")
    done = run(shell, "docker", script=script, path=f"{folder}/bin:{os.environ['PATH']}")
    found = known(parse("gpu1", done.stdout, 0.0, 1.0).docker)
    assert (folder / "asked").exists() == (socket == "running")
    if socket == "listening":
        why = "Cannot connect to the Docker daemon: it does not run, and docker.socket would start it"
        assert found.version == Absent(why)
