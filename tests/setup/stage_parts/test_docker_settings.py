"""docker_settings.sh and docker_start.sh among simulated tools: what they do where dockerd does not start or refuses."""

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import docker_machine
from tests.support.docker_machine import Machine

machine = docker_machine.machine  # a fixture is found by its name here

OLD, NEW = '{"debug": false}\n', '{"debug": true}\n'


@dataclass(frozen=True)
class Settings:
    """A machine with an engine, and a change of its daemon.json that waits to be made."""

    machine: Machine

    @property
    def folder(self) -> Path:
        return self.machine.root / "marks"

    @property
    def config(self) -> Path:
        return self.machine.root / "etc/docker/daemon.json"

    @property
    def part(self) -> Path:
        return self.machine.root / "etc/systemd/system/docker.service.d/taco-launch.conf"

    def run(
        self,
        how: str = "restart",
        allowed: str = "no",
        old: str | None = OLD,
        wanted: str = "yes",
        files: tuple[str, ...] | None = None,
    ) -> tuple[int, str]:
        files = ("daemon.json", "adding", "proxy.conf", "proxy.new") if files is None else files
        looked_at = hashlib.sha256(old.encode()).hexdigest() if old is not None else "absent"
        paths = (str(self.folder), str(self.config))
        return self.machine.run("docker_settings.sh", how, allowed, *paths, looked_at, str(self.part), wanted, *files)

    @property
    def left(self) -> list[str]:
        return sorted(os.listdir(self.folder))


@pytest.fixture
def settings(machine: Machine) -> Settings:
    found = Settings(machine)
    found.folder.mkdir()
    found.config.parent.mkdir()
    found.config.write_text(OLD)
    found.config.chmod(0o640)
    (found.folder / "daemon.json").write_text(NEW)
    (found.folder / "adding").write_text("{}\n")
    machine.tool("systemctl", '[ "$1" != is-failed ]')
    machine.tool("docker", "")
    machine.tool("dockerd", "")
    machine.tool("journalctl", "echo 'level=info msg=x'; echo 'failed to start daemon: bip is taken'")
    return found


def test_settings_take_the_place_of_the_old_ones(settings: Settings) -> None:
    assert settings.run() == (0, "")
    assert (settings.config.read_text(), settings.config.stat().st_mode & 0o777) == (NEW, 0o640)
    assert settings.left == ["added"]
    assert "systemctl restart docker" in settings.machine.calls
    assert os.listdir(settings.config.parent) == ["daemon.json"]


def test_settings_that_are_reloaded(settings: Settings) -> None:
    assert settings.run("reload") == (0, "")
    assert (settings.config.read_text(), settings.left) == (NEW, ["added"])
    assert "systemctl reload docker" in settings.machine.calls
    assert "systemctl restart docker" not in settings.machine.calls


def test_the_first_daemon_json(settings: Settings) -> None:
    settings.config.unlink()
    settings.config.parent.rmdir()
    assert settings.run(old=None) == (0, "")
    assert (settings.config.read_text(), settings.config.stat().st_mode & 0o777) == (NEW, 0o644)


def test_a_link_stays_a_link(settings: Settings) -> None:
    real = settings.machine.root / "real.json"
    settings.config.rename(real)
    settings.config.symlink_to(real)
    assert settings.run() == (0, "")
    assert (settings.config.is_symlink(), real.read_text()) == (True, NEW)


@pytest.mark.parametrize("now", ['{"debug": false, "bip": "x"}\n', OLD.replace("\n", "\r\n")])
def test_what_changed_meanwhile_is_left_alone(settings: Settings, now: str) -> None:
    settings.config.write_bytes(now.encode())
    code, last = settings.run()
    assert (code, settings.config.read_bytes()) == (1, now.encode())
    assert last.startswith(f"error: {settings.config} is not as it was looked at, and stays as it is")
    assert settings.left == []
    assert not settings.machine.called("systemctl")


def test_an_engine_that_can_check_is_asked_before(settings: Settings) -> None:
    settings.machine.tool("dockerd", """case $1 in
    --help) echo '      --validate    Validate daemon configuration and exit' ;;
    --validate) cat "$3"; echo 'unable to configure: bogus'; exit 1 ;;
    esac""")  # fmt: skip
    code, last = settings.run()
    assert (code, settings.config.read_text(), settings.left) == (1, OLD, [])
    assert last.startswith("error: dockerd would not start with the new daemon.json, and the old one stays: {")
    assert last.endswith("true} unable to configure: bogus")
    assert f"dockerd --validate --config-file {settings.config}.taco-launch" in settings.machine.calls
    assert os.listdir(settings.config.parent) == ["daemon.json"]


def test_an_engine_that_does_not_start_gets_the_old_settings_back(settings: Settings) -> None:
    settings.machine.tool(
        "systemctl", f'[ "$1" != is-failed ] && {{ [ "$1" != restart ] || grep -q false {settings.config}; }}'
    )
    code, last = settings.run()
    assert code == 1
    assert last == (
        "error: the engine does not start with the new daemon.json, and runs with the old one again: "
        "failed to start daemon: bip is taken"
    )
    assert (settings.config.read_text(), settings.config.stat().st_mode & 0o777) == (OLD, 0o640)
    assert settings.left == ["added"]
    assert (settings.folder / "added").read_text() == ""


def test_an_engine_that_never_starts(settings: Settings) -> None:
    settings.config.unlink()
    settings.machine.tool("systemctl", '[ "$1" = daemon-reload ]')
    code, last = settings.run(old=None)
    assert (code, settings.config.exists()) == (1, False)
    assert last.startswith("error: the engine starts neither with the new daemon.json nor with the old one")
    assert "restart" in settings.left  # the next set-up continues


def test_a_container_that_was_started_meanwhile_is_not_stopped(settings: Settings) -> None:
    settings.machine.tool("docker", '[ "$1" != ps ] || echo busy')
    code, last = settings.run()
    assert (code, "systemctl restart docker" in settings.machine.calls) == (1, False)
    assert last.startswith("error: docker would have to be restarted, and containers have been started meanwhile (busy")
    assert (settings.config.read_text(), settings.left) == (OLD, [])


def test_what_an_earlier_set_up_left_to_be_taken_stays_to_be_taken(settings: Settings) -> None:
    (settings.folder / "restart").touch()
    settings.machine.tool("docker", '[ "$1" != ps ] || echo busy')
    assert settings.run()[0] == 1
    assert settings.left == ["restart"]


def test_what_an_earlier_set_up_put_there_is_not_taken(settings: Settings) -> None:
    (settings.folder / "proxy.conf").touch()
    assert settings.run(files=()) == (0, "")
    assert (settings.config.read_text(), settings.part.exists(), settings.left) == (OLD, False, [])


def test_what_is_being_changed_is_marked(settings: Settings) -> None:
    mark = settings.folder / "restart"
    shutil.rmtree(settings.folder)
    seen = settings.machine.root / "seen"
    settings.machine.tool("systemctl", f'[ "$1" != restart ] || ls {mark} >{seen}; [ "$1" != is-failed ]')
    assert settings.run(files=())[0] == 0
    assert seen.read_text() == f"{mark}\n"
    assert settings.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("allowed", ["yes", "no"])
def test_an_engine_that_does_not_answer_is_restarted_only_where_that_is_allowed(
    settings: Settings, allowed: str
) -> None:
    settings.machine.tool("docker", f"grep -q false {settings.config}")
    code, last = settings.run("reload", allowed)
    assert (code, settings.config.read_text()) == (1, OLD)
    assert last.startswith("error: the engine does not start with the new daemon.json, and runs with the old one again")
    assert ("systemctl restart docker" in settings.machine.calls) is (allowed == "yes")
    assert settings.machine.calls.count("systemctl reload docker") == (1 if allowed == "yes" else 2)


def test_a_container_that_runs_is_stopped_where_that_is_allowed(settings: Settings) -> None:
    settings.machine.tool("docker", '[ "$1" != ps ] || echo busy')
    assert settings.run(allowed="yes") == (0, "")
    assert "systemctl restart docker" in settings.machine.calls


def test_the_proxy_is_there_before_the_restart(settings: Settings) -> None:
    (settings.folder / "daemon.json").unlink()
    (settings.folder / "proxy.conf").write_text("[Service]\n")
    (settings.folder / "proxy.new").write_text('HTTP_PROXY="http://u:p@x"\n')
    (settings.folder / "proxy.new").chmod(0o600)
    values = settings.folder / "proxy.env"
    settings.machine.tool(
        "systemctl",
        f'[ "$1" != is-failed ] && {{ [ "$1" != daemon-reload ] || [ -e {settings.part} -a -e {values} ]; }}',
    )
    assert settings.run() == (0, "")
    assert (settings.part.read_text(), os.listdir(settings.part.parent)) == ("[Service]\n", ["taco-launch.conf"])
    assert (values.read_text(), values.stat().st_mode & 0o777) == ('HTTP_PROXY="http://u:p@x"\n', 0o600)
    assert (settings.config.read_text(), settings.left) == (OLD, ["adding", "proxy.env"])


def test_a_proxy_that_is_not_wanted_goes_before_the_restart(settings: Settings) -> None:
    settings.part.parent.mkdir(parents=True)
    settings.part.touch()
    (settings.folder / "proxy.env").touch()
    settings.machine.tool(
        "systemctl", f'[ "$1" != is-failed ] && {{ [ "$1" != restart ] || [ ! -e {settings.part} ]; }}'
    )
    assert settings.run(wanted="no") == (0, "")
    assert not settings.part.exists()
    assert "proxy.env" not in settings.left


# --- start ------------------------------------------------------------------------------------------------------------


def test_an_engine_is_started_and_waited_for(machine: Machine) -> None:
    machine.tool("systemctl", '[ "$1" != is-failed ] && { [ "$1" != enable ] || [ "$SYSTEMCTL_SKIP_SYSV" = 1 ]; }')
    machine.tool("docker", f'[ "$(grep -c ^docker {machine.root}/calls)" -gt 3 ]')
    assert machine.run("docker_start.sh")[0] == 0
    assert machine.calls.index("systemctl enable --no-reload docker") < machine.calls.index("systemctl start docker")
    assert machine.called("sleep") == ["sleep 1"] * 3


def test_what_dpkg_was_cut_off_in_is_finished_before_the_start(machine: Machine) -> None:
    machine.tool("systemctl", "")
    machine.tool("docker", "")
    held = "dpkg: error: dpkg frontend lock was locked by another process with pid 4711"
    machine.tool("dpkg", f"""[ "$1" != --audit ] || {{ echo a mess; exit; }}
    [ "$(grep -c configure {machine.root}/calls)" -gt 2 ] || {{ echo '{held}' >&2; exit 2; }}""")  # fmt: skip
    assert machine.run("docker_start.sh")[0] == 0
    assert machine.called("sleep") == ["sleep 5"] * 2
    machine.tool("dpkg", '[ "$1" = --audit ] && echo a mess || { echo x; echo broken >&2; exit 1; }')
    assert machine.run("docker_start.sh") == (1, "error: dpkg --configure -a: broken")


def test_why_an_engine_does_not_start(machine: Machine) -> None:
    machine.tool("systemctl", '[ "$1" != start ]')
    machine.tool("docker", "exit 1")
    machine.tool("journalctl", "echo 'failed to start daemon: no space left on device'")
    assert machine.run("docker_start.sh") == (
        1,
        "error: docker does not start: failed to start daemon: no space left on device",
    )
    machine.tool("journalctl", "exit 1")
    assert machine.run("docker_start.sh")[1] == "error: docker does not start: see journalctl -u docker on the host"
