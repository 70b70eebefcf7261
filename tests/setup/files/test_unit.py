"""The systemd unit of the training container, and the files beside it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from taco_launch.core.model.host import paths
from taco_launch.setup.files import unit
from taco_launch.setup.files.container_definition import Definition
from tests.support.training import NAME, after, defined, ops, plan, problem, ready


def definition(cluster: str = "hcc", devices: tuple[str, ...] = ()) -> Definition:
    return Definition(cluster, "train:1", "sha256:1", (), devices, ())


def test_it_waits_for_the_devices_and_then_starts_the_container() -> None:
    text = unit.unit(definition(devices=("/dev/infiniband/uverbs0", "/dev/nvidia0")))
    lines = text.splitlines()
    wait = "/bin/sh /etc/taco-launch/hcc/wait.sh 300 /var/lib/taco-launch/containers/hcc /dev/infiniband/uverbs0 /dev/nvidia0"
    assert f"ExecStartPre={wait}" in lines
    assert "ExecStart=/bin/sh -c 'exec docker start --attach taco-launch-hcc'" in lines
    assert "Restart=always" in lines
    after = next(line for line in lines if line.startswith("After="))
    needed = {
        "docker.service",
        "openibd.service",
        "nvidia-persistenced.service",
        "nv_peer_mem.service",
        "rc-local.service",
    }
    assert needed <= set(after[6:].split())
    # systemd ends a start that takes longer than this: the wait has to fit in
    limit = re.search(r"^TimeoutStartSec=(\d+)$", text, re.MULTILINE)
    assert limit is not None
    assert int(limit[1]) > unit.DEVICE_SECONDS


def test_nothing_but_its_devices_differs_from_host_to_host() -> None:
    assert unit.unit(definition()) == unit.unit(definition())
    assert unit.unit(definition()) != unit.unit(definition(devices=("/dev/nvidia0",)))
    assert unit.unit(definition()) != unit.unit(definition("other"))


@pytest.mark.parametrize("cluster", ["hcc", "A.b-c_9"])
def test_names_stand_in_it_as_they_are(cluster: str) -> None:
    """No `%`, `$`, quote or blank of ours, each of which would mean something to systemd."""
    text = unit.unit(definition(cluster, ("/dev/infiniband/uverbs0",)))
    assert not re.search(r"[%$\"\\]", text)
    assert f"--attach {paths.container(cluster)}'" in text
    assert text.endswith("\n")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze: not found")
def test_systemd_understands_it(tmp_path: Path) -> None:
    file = tmp_path / "taco-launch-hcc.service"
    file.write_text(unit.unit(definition(devices=("/dev/nvidia0",))))
    done = subprocess.run(("systemd-analyze", "verify", str(file)), capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if file.name in line and "not found" not in line.lower()]


def test_its_files_lie_where_the_unit_looks() -> None:
    found = {file.path: file for file in unit.files(definition())}
    assert set(found) == {paths.main_script("hcc"), unit.wait_script("hcc"), paths.unit_file("hcc")}
    assert not [file for file in found.values() if file.mode != 0o644 or file.secret]


# --- What a container can reach on its host, and which of its variables other users can read


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
