"""An image that no registry has, to four hosts: one of which loses its power, and then again after Ctrl-C."""

import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.conftest import eventually
from tests.lab.rig import Cluster, Lab, docker, made

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(600)]

HOSTS = ("gpu1", "gpu2", "gpu3", "gpu4")
SOME = 10_000_000
_PART = "stat -c %s /var/lib/docker/tmp/taco-launch-image-*.part"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four hosts with an engine each, which no image has."""
    with made("copy", tmp_path_factory.mktemp("state"), "--hosts", str(len(HOSTS)), "--slots", "1") as lab:
        yield lab


@pytest.fixture(scope="module")
def image(bare: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Have this machine's engine have a training image: a lab host's, and the names of what is missing in that."""
    folder = tmp_path_factory.mktemp("image")
    for name in ("python3", "mpirun"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    base = docker("inspect", "--format", "{{.Config.Image}}", bare.container("gpu1"))
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY python3 mpirun /usr/bin/\n")
    name = f"{bare.name}:1"
    docker("build", "--quiet", "--tag", name, str(folder))
    yield name
    docker("image", "rm", name)


@pytest.fixture(scope="module")
def ops(bare: Lab, image: str) -> Cluster:
    container = {"image": {"name": image, "from": "controller"}}
    return bare.inventory(bare.state / "copy.yaml", *HOSTS, cluster="copy", slots=1, container=container)


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    out, errors = process.communicate(timeout=300)
    return process.returncode, out + errors


def arrived(lab: Lab, host: str) -> int:
    return int(lab.inside(host, "sh", "-c", _PART).stdout or 0)


def identity(lab: Lab, host: str, image: str) -> str:
    return lab.sh(host, f"docker image inspect --format '{{{{.Id}}}}' {image}")


def left(lab: Lab, host: str) -> str:
    return lab.sh(host, "ls -A /var/lib/docker/tmp; ls -A /run/taco-launch")


def test_a_host_dies_and_ctrl_c_comes_and_all_have_the_image(bare: Lab, image: str, ops: Cluster) -> None:
    code, said = end(ops.start("setup", "--yes", "--only", "docker"))
    assert code == 0, said
    wanted = docker("image", "inspect", "--format", "{{.Id}}", image)

    plan = ops.setup("--only", "image", "--dry-run")
    assert plan.stdout.startswith(
        f"gpu[1-4]: + image: copy {image} from the controller (it is not here; requires about "
    )

    bare.fault("gpu1", "slow-link", "100mbit")
    copying = ops.start("setup", "--yes", "--only", "image")
    eventually(lambda: arrived(bare, "gpu4") > SOME, 90, "gpu4 to get some of it, from gpu2")
    bare.fault("gpu2", "power-off")
    code, said = end(copying)
    assert code == 5, said
    assert "gpu4 gets no more of the image from gpu2: " in said
    assert "reached 3 hosts" in said
    for host in ("gpu1", "gpu3", "gpu4"):
        assert identity(bare, host, image) == wanted
        assert left(bare, host).split() == ["setup.lock"]

    bare.fault("gpu2", "power-on")
    eventually(lambda: bare.answers("gpu2"), 30, "gpu2 to be back")
    again = ops.start("setup", "--yes", "--only", "docker,image")
    eventually(lambda: arrived(bare, "gpu2") > SOME * 3, 90, "gpu2 to get some of it")
    again.send_signal(signal.SIGINT)
    code, said = end(again)
    assert code == 130, said
    assert "to continue: " in said
    has = arrived(bare, "gpu2")
    assert has > SOME
    bare.sh("gpu2", "touch -d '10 minutes ago' /run/taco-launch/image-copy/beat")
    eventually(lambda: len(left(bare, "gpu2").split()) == 2, 30, "all but the part and the lock to be gone by itself")
    eventually(lambda: bare.sh("gpu2", "pgrep -c sshd") == "1", 30, "one sshd, the host's")
    assert arrived(bare, "gpu2") == has
    code, said = end(ops.start("setup", "--yes", "--only", "docker,image"))
    assert code == 0, said
    sent, size = figures(said)
    assert sent <= size - has + 1e6
    assert identity(bare, "gpu2", image) == wanted
    assert left(bare, "gpu2").split() == ["setup.lock"]
    check: Any = ops.setup("--only", "docker,image", "--check")
    # the hosts differ in the speed of gpu1's link, which was slowed above
    assert (check.returncode, "+ " in check.stdout) == (0, False), check.stdout + check.stderr
    assert "nothing to do: gpu[1-4] already set up as " in check.stderr


def figures(said: str) -> tuple[float, float]:
    """Read what was sent of how much, in bytes."""
    (line,) = (line for line in said.splitlines() if "the controller sent" in line)
    words = line.replace("(", "").replace(")", "").split()
    units = {"MiB": 1 << 20, "GiB": 1 << 30}
    found = [float(word) * units[unit] for word, unit in pairwise(words) if unit in units]
    return found[-1], found[0]
