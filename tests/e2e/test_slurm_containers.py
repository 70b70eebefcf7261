"""Jobs in containers on a real Slurm of two nodes; Apptainer and pyxis are simulated (tests/support/slurm_containers.py)."""

import os
from pathlib import Path

import pytest

from tests.conftest import Taco, eventually
from tests.support import slurm_containers

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(("program", "ending"), [("apptainer", "sif"), ("pyxis", "sqsh")])
def test_ranks_are_in_the_container(
    taco: Taco, of_slurm: dict[str, str], tmp_path: Path, program: str, ending: str
) -> None:
    programs, config, data = (tmp_path / name for name in ("programs", "config/taco-launch", "data"))
    for folder in (programs, config, data):
        folder.mkdir(parents=True, mode=0o700)
    calls = slurm_containers.write(programs)
    image = slurm_containers.image(tmp_path / f"image.{ending}")
    (config / "config.yaml").write_text(f"slurm: {{containers: {program}}}\n")
    (data / "file").write_text("of the data\n")
    own = {
        "TACO_LAUNCH_INVENTORY": "slurm:",
        "XDG_CONFIG_HOME": str(config.parent),
        "PATH": f"{programs}:{taco.env.get('PATH', os.defpath)}:{of_slurm['PATH']}",
    }
    on_slurm = Taco(taco.state, {**taco.env, **of_slurm, **own})
    inside = ("--image", str(image), "--data", f"{data}:/data:ro")
    script = "cat /etc/image-name /data/file; touch /data/new; echo SET=$SET $RANK; sleep 1; exit $((RANK * 2))"
    done = on_slurm(
        *("run", "--name", "r", "--np", "4", "--launcher", "env", "-x", "SET=by the job", *inside),
        *("--", "sh", "-c", script),
    )
    assert done.returncode in (2, 4, 6), done.stderr
    printed = on_slurm.ok("logs", "r").stdout
    for rank in range(4):
        lines = [line.partition("| ")[2] for line in printed.splitlines() if f"/{rank} |" in line]
        assert {"from-image", "of the data", f"SET=by the job {rank}"} <= {*lines}, printed
    assert "no shell expands" not in done.stderr
    assert not (data / "new").exists()
    assert str(image) in calls.read_text()
    assert len(calls.read_text().splitlines()) == (4 if program == "apptainer" else 2)

    on_slurm.ok("submit", "--name", "s", "--np", "4", *inside, "--", "sh", "-c", "cat /etc/image-name; sleep 1000")
    eventually(lambda: on_slurm.ok("logs", "s").stdout.count("from-image") == 4, 30, "all ranks to print")
    visit = on_slurm("exec", "s", "--rank", "3", "--", "sh", "-c", "cat /etc/image-name; pwd; exit 5")
    assert (visit.returncode, visit.stdout) == (5, f"from-image\n{os.getcwd()}\n")  # noqa: PTH109
    on_slurm.ok("stop", "s")
    assert on_slurm("wait", "s").returncode == 143

    missing = on_slurm("run", "--name", "m", "--np", "2", "--launcher", "env", "--image", "/no." + ending, "--", "true")
    assert missing.returncode not in (0, None)
    if program == "pyxis":
        assert "the container on n1 could not be started: [ERROR] No such file or directory: /no.sqsh" in missing.stderr
    on_slurm.ok("delete", "r", "s", "m")
