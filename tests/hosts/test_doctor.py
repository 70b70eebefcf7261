"""doctor and version: what they find on this machine, and what they say of what is missing or broken."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from taco_launch.hosts import doctor
from taco_launch.hosts.doctor import Check, CheckState
from taco_launch.hosts.inventory import load
from tests.support.command_line import call


def checked(environ: dict[str, str], path: Path | None = None) -> dict[str, Check]:
    named = doctor.Named(str(path), "-i") if path else None
    found = doctor.checks(environ, lambda: load.load(str(path) if path else None, environ), named)
    return {one.name: one for one in found}


def fake(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder of PATH, which is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_what_is_missing_is_a_note_with_what_to_do(programs: Path, tmp_path: Path) -> None:
    fake(programs, "ssh", "echo OpenSSH_9.2p1 >&2")
    found = checked({"TACO_LAUNCH_STATE": str(tmp_path / "state")})
    assert found["ssh"] == Check("ssh", CheckState.OK, f"OpenSSH_9.2p1 at {programs}/ssh")
    assert found["mpirun"].state is CheckState.NOTE
    assert "scripts/quickstart" in found["mpirun"].todo
    assert (found["docker"].state, found["docker"].found) == (CheckState.NOTE, "not found on PATH")
    assert found["state folder"].found.startswith(f"{tmp_path}/state, ")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("built", [True, False])
def test_a_horovod_without_torch_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, built: bool) -> None:
    """As pip leaves one that found no torch, or no compiler."""
    (tmp_path / "horovod" / "torch").mkdir(parents=True)
    (tmp_path / "horovod" / "__init__.py").touch()
    if built:
        (tmp_path / "horovod" / "torch" / "mpi_lib_v2.cpython-311-x86_64-linux-gnu.so").touch()
    (tmp_path / "horovod-0.28.1.dist-info").mkdir()
    (tmp_path / "horovod-0.28.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "horovod", raising=False)
    found = checked({"TACO_LAUNCH_STATE": str(tmp_path / "state")})["horovod"]
    assert found.state is (CheckState.OK if built else CheckState.NOTE)
    assert ("built without PyTorch" in found.found) is not built


def test_what_does_not_run_is_an_error(programs: Path, tmp_path: Path) -> None:
    fake(programs, "mpirun", "echo no libopen-rte.so.40; exit 127")
    fake(programs, "docker", "echo Cannot connect to the Docker daemon; exit 1")
    found = checked({"TACO_LAUNCH_STATE": str(tmp_path)})
    assert found["mpirun"].state is CheckState.ERROR
    assert found["mpirun"].found == f"{programs}/mpirun: exit code 127: no libopen-rte.so.40"
    assert found["docker"].state is CheckState.NOTE  # only the lab needs it


def test_a_program_that_hangs_is_given_up(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_SECONDS", 0.2)
    fake(programs, "mpirun", "exec /bin/sleep 60")
    found = checked({"TACO_LAUNCH_STATE": str(tmp_path)})
    assert found["mpirun"].state is CheckState.ERROR
    assert "timed out" in found["mpirun"].found


def test_an_inventory_that_is_wrong_or_names_a_missing_key_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text("cluster: demo\nhosts: {gpu1: {address: 10.0.0.1, slots: 8}}\n")
    environ = {"TACO_LAUNCH_STATE": str(tmp_path)}
    told = f"{file} (from -i): cluster demo, hosts: 1, slots: 8"
    asks = f"taco-launch -i {file} setup --check"
    assert checked(environ, file)["inventory"].found == f"{told}; no host was contacted; to check the hosts: {asks}"
    file.write_text("cluster: demo\nssh: {identity_file: /no/such/key}\nhosts: {gpu1: {address: 10.0.0.1}}\n")
    found = checked(environ, file)["inventory"]
    assert found.state is CheckState.ERROR
    assert found.found.endswith("identity_file of gpu1 not found: /no/such/key")
    file.write_text("cluster: demo\nhost: {}\n")
    assert checked(environ, file)["inventory"].state is CheckState.ERROR


def test_a_state_folder_that_cannot_be_used(programs: Path, tmp_path: Path) -> None:
    assert programs.is_dir()
    (tmp_path / "file").touch()
    for folder, words in (
        (tmp_path / "file/below", f"{tmp_path}/file is not a folder"),
        (tmp_path / ("a" * 300), "too long"),
    ):
        found = checked({"TACO_LAUNCH_STATE": str(folder)})["state folder"]
        assert (found.state, found.todo) == (CheckState.ERROR, "name another folder: export TACO_LAUNCH_STATE=FOLDER")
        assert words in found.found


@pytest.mark.parametrize(
    ("free", "state", "words"),
    [
        (3 << 20, CheckState.ERROR, ", 3 MiB free"),
        (100 << 20, CheckState.NOTE, ", 0.1 GiB free"),
        (5 << 30, CheckState.OK, ", 5.0 GiB free"),
    ],
)
def test_a_state_folder_with_little_space(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: CheckState, words: str
) -> None:
    assert programs.is_dir()
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=free))
    found = checked({"TACO_LAUNCH_STATE": str(tmp_path)})["state folder"]
    assert (found.state, found.found) == (state, f"{tmp_path}{words}")
    assert ("free 6 MiB there" in found.todo) is (state is CheckState.ERROR)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("TACO_LAUNCH_STATE", "very secret"),
        ("TACO_LAUNCH_SUDO_PASSWORD", "set"),
        ("TACO_LAUNCH_REGISTRY_PASSWORD", "set"),
        ("TACO_LAUNCH_MY_TOKEN", "set"),
    ],
)
def test_secrets_are_not_shown(name: str, shown: str) -> None:
    assert doctor.shown_value(name, "very secret") == shown


def test_the_exit_code_and_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path))
    result = call("doctor")
    assert result.exit_code == 0, result.stdout
    assert "ok     python: 3." in result.stdout
    broken = call("-i", str(tmp_path / "none.yaml"), "doctor", "--json")
    assert broken.exit_code == 1
    (inventory,) = [one for one in json.loads(broken.stdout)["checks"] if one["name"] == "inventory"]
    assert inventory["state"] == "error"
    assert "none.yaml" in inventory["found"]


def test_the_versions_that_a_bug_report_needs() -> None:
    found = json.loads(call("version", "--json").stdout)
    assert found["agent"].startswith("agent-")
    assert {"taco-launch", "python", "system", "click", "paramiko", "fabric"} <= set(found)
    assert "torch" not in found or found["torch"]
    assert f"taco-launch: {found['taco-launch']}" in call("version").stdout
