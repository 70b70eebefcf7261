"""setup --only slurm on bare hosts with systemd: a Slurm that starts processes on each, takes our jobs, and goes again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.lab.images import root
from tests.lab.rig import Lab, made

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Hosts of Debian 12 (Slurm 22.05) and 13 (Slurm 24.11)."""
    if root.own_release() not in ("bookworm", "trixie"):
        pytest.skip("cannot: both come from the archives of Debian")
    words = ("--hosts", "2", "--slots", "2", "--release", request.param)
    with made("slurm", tmp_path_factory.mktemp("slurm-state"), *words) as lab:
        yield lab


def test_two_bare_hosts_become_a_slurm_and_bare_again(bare: Lab, tmp_path: Path) -> None:
    ready = bare.cluster.setup("--only", "slurm", "--yes", seconds=400)
    assert ready.returncode == 0, ready.stderr
    bare.cluster.converged("--only", "slurm")
    assert bare.sh("gpu1", "sinfo -h -N -o '%N %T'").split() == ["gpu1", "idle", "gpu2", "idle"]
    assert sorted(bare.sh("gpu1", "srun -N2 hostname").split()) == ["gpu1", "gpu2"]

    (tmp_path / ".ssh").mkdir()
    config = f"IdentityFile {bare.key}\nUserKnownHostsFile {bare.known_hosts}\n"
    (tmp_path / ".ssh" / "config").write_text(config)
    source = f"slurm:root@{bare.address('gpu1')}"
    words = ("run", "--launcher", "env", "--np", "2", "-H", "gpu1", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE here")
    done = bare.taco("-i", source, *words, env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert {line.partition("| ")[2] for line in done.stdout.splitlines()} == {"0 of 2 here", "1 of 2 here"}

    gone = bare.cluster("teardown", "--yes", seconds=200)
    assert gone.returncode == 0, gone.stderr
    assert (
        bare.sh("gpu2", "ls /etc/slurm/*.conf 2>/dev/null | grep -v plugstack; systemctl is-active slurmd; true")
        == "inactive"
    )
