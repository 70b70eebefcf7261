"""Where the value of an option is from: the command line, the environment, the user's configuration file, in that order."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import call, failing, succeeding

HOSTS = "cluster: {}\nhosts: {{localhost: {{connection: local, slots: 2}}}}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "TACO_LAUNCH_INVENTORY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("typed", "variable", "file"):
        (tmp_path / f"{name}.yaml").write_text(HOSTS.format(name), "utf-8")
    return tmp_path


def configure(home: Path, text: str, mode: int = 0o644) -> Path:
    path = home / ".config" / "taco-launch" / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)
    return path


def cluster(*words: str, **env: str) -> str:
    result = succeeding(*words, "inventory", "--json", env=env)
    return str(json.loads(result.stdout)["cluster"])


def test_the_inventory_is_that_of_the_command_line_else_of_the_environment_else_of_the_file(home: Path) -> None:
    configure(home, "inventory: ~/file.yaml\n")
    assert cluster() == "file"
    assert cluster(TACO_LAUNCH_INVENTORY=str(home / "variable.yaml")) == "variable"
    assert cluster("-i", str(home / "typed.yaml"), TACO_LAUNCH_INVENTORY=str(home / "variable.yaml")) == "typed"
    assert cluster(TACO_LAUNCH_INVENTORY="") == "local"  # this machine, in spite of the file


def test_the_output_is_that_of_the_command_line_else_of_the_environment_else_of_the_file(home: Path) -> None:
    configure(home, "output: json\n")
    assert call("knobs", "NCCL_IB_HCA").stdout.startswith("{")
    assert call("knobs", "NCCL_IB_HCA", env={"TACO_LAUNCH_OUTPUT": "table"}).stdout.startswith("Name:")
    assert call("knobs", "NCCL_IB_HCA", "-o", "table").stdout.startswith("Name:")
    assert call("-o", "table", "knobs", "NCCL_IB_HCA").stdout.startswith("Name:")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "inventry: lab\n",
            "inventry (line 1): 'lab': unknown key (did you mean 'inventory'?)",
        ),
        ("output: jsn\n", "output (line 1): 'jsn': must be one of table, wide, json, yaml (did you mean 'json'?)"),
        ("output: 3\n", "output (line 1): 3: must be a string"),
        (
            "inventory: hosts.yaml\n",
            "must be lab, lab:NAME, slurm:, slurm:USER@LOGIN, or a path that starts with / or ~/",
        ),
        ("- inventory\n", "must be a mapping with the keys inventory, output, slurm"),
        ("inventory: [\n", "invalid YAML"),
        ("slurm: pyxis\n", "must be a mapping with the key containers, which is apptainer or pyxis"),
        ("slurm: {containers: docker}\n", "which is apptainer or pyxis"),
        ("slurm: {containers: [pyxis]}\n", "which is apptainer or pyxis"),
        ("slurm: {container: pyxis}\n", "must be a mapping with the key containers"),
    ],
)
def test_what_is_wrong_with_the_file_is_an_error_with_its_place(home: Path, text: str, fault: str) -> None:
    path = configure(home, text)
    result = call("list")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error: {path}: 1 error\n" in result.stderr
    assert fault in result.stderr
    assert call("--help").exit_code == 0
    broken = call("doctor")
    assert f"error  configuration file: {path}: 1 error" in broken.stdout
    assert broken.exit_code == 1


def test_a_file_that_others_can_write_is_refused(home: Path) -> None:
    path = configure(home, "output: json\n", mode=0o666)
    assert f"error: {path}: 1 error\n  it can be written by others\nhint: chmod go-w {path}" in failing("list")


def test_an_empty_file_sets_nothing(home: Path) -> None:
    configure(home, "# nothing yet\n")
    assert cluster() == "local"


def test_options_can_be_set_by_variables() -> None:
    env = {"TACO_LAUNCH_RUN_NP": "3", "TACO_LAUNCH_RUN_DRY_RUN": "1", "TACO_LAUNCH_RUN_KNOB": "NCCL_DEBUG=INFO"}
    planned = succeeding("run", "-H", "localhost:4", "--", "true", env=env)
    assert "-np 3 " in planned.stdout
    assert "-x NCCL_DEBUG=INFO" in planned.stdout
    typed = call("run", "-H", "localhost:4", "--np", "2", "--", "true", env=env)
    assert "-np 2 " in typed.stdout
    wrong = failing("run", "--", "true", env={"TACO_LAUNCH_RUN_NP": "many"})
    assert "--np" in wrong
    assert "(the value of $TACO_LAUNCH_RUN_NP)" in wrong
    assert "(the value of" not in failing("run", "--np", "many", "--", "true")


def test_variables_do_not_set_what_acts_at_once() -> None:
    env = {"TACO_LAUNCH_VERSION": "1", "TACO_LAUNCH_HELP": "1", "TACO_LAUNCH_RUN_HELP_ALL": "1"}
    assert "Usage:" not in call("run", "--dry-run", "--", "true", env=env).stdout


def test_doctor_shows_where_each_value_is_from(home: Path) -> None:
    path = configure(home, "inventory: ~/file.yaml\noutput: table\n")
    env = {"TACO_LAUNCH_RUN_NP": "2"}
    env["TACO_LAUNCH_SUDO_PASSWORD"] = "hunter2"
    shown = call("doctor", env=env).stdout
    assert f"inventory: {home}/file.yaml (from {path}): cluster file" in shown
    assert f"configuration file: {path}: inventory, output" in shown
    assert "TACO_LAUNCH_RUN_NP: 2 (option --np of run)" in shown
    assert "hunter2" not in shown
    env["TACO_LAUNCH_INVENTORY"] = str(home / "variable.yaml")
    assert (
        f"inventory: {home}/variable.yaml (from TACO_LAUNCH_INVENTORY): cluster variable"
        in call("doctor", env=env).stdout
    )
    typed = call("-i", str(home / "typed.yaml"), "doctor", env=env).stdout
    assert f"inventory: {home}/typed.yaml (from -i): cluster typed" in typed
    unknown = call("doctor", env={**env, "TACO_LAUNCH_RUN_NPP": "2"}).stdout
    assert "note   TACO_LAUNCH_RUN_NPP: 2 (no option of this name)" in unknown


def test_doctor_shows_each_fault_of_the_file_on_its_line(home: Path) -> None:
    configure(home, "outputs: json\nx: 1\n")
    lines = call("doctor").stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "2 errors" in line)
    assert [line.split(" (")[0] for line in lines[at + 1 : at + 3]] == ["       outputs", "       x"]
