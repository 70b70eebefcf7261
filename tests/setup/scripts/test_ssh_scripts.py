"""The scripts of SSH between containers, in the shells that images and hosts have: sessions, and key pairs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from taco_launch.setup import scripts
from tests.support.setup_scripts import SHELLS as FAKED
from tests.support.setup_scripts import Fakes

SHELLS = [("dash",), ("bash", "--posix"), ("busybox", "sh")]
ODD = 'it\'s "odd" $HOME `id`\nand \\ more'
# What sshd gives a session.
SESSION = {"HOME": "/tmp", "USER": "me", "LOGNAME": "me", "PATH": "/usr/bin:/bin", "SSH_CLIENT": "10.0.0.9 5 6"}


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def shell(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    if shutil.which(found[0]) is None:
        pytest.skip(f"{found[0]} is not installed")
    return found


@pytest.fixture
def folder(tmp_path: Path, shell: tuple[str, ...]) -> Path:
    """A cluster's folder, the environment in it written as the container's main process does it."""
    text = scripts.text("session.sh")
    assert text.count("/run/taco-launch") == 2
    (tmp_path / "session.sh").write_text(text.replace("/run/taco-launch", str(tmp_path)))
    image = {
        "PATH": "/opt/image:/usr/bin:/bin",
        "LD_LIBRARY_PATH": "/opt/lib",
        "ODD": ODD,
        "HOME": "/root",
        "SHLVL": "0",
        "command": "its own",
    }
    argv = (*shell, "-c", 'export -p >"$0"', str(tmp_path / "environment"))
    subprocess.run(argv, env=image, check=True)
    return tmp_path


def session(
    shell: tuple[str, ...], folder: Path, command: str | None, stdin: str = "", **env: str
) -> "subprocess.CompletedProcess[str]":
    asked = {} if command is None else {"SSH_ORIGINAL_COMMAND": command}
    argv = (*shell, str(folder / "session.sh"))
    given = {**SESSION, "SHELL": "/bin/sh", **asked, **env}
    return subprocess.run(argv, env=given, input=stdin, capture_output=True, text=True, check=False)


def test_a_session_has_the_environment_of_the_image(shell: tuple[str, ...], folder: Path) -> None:
    done = session(shell, folder, "env -0")
    told = dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
    assert (told["PATH"], told["LD_LIBRARY_PATH"], told["ODD"]) == ("/opt/image:/usr/bin:/bin", "/opt/lib", ODD)
    assert (told["HOME"], told["USER"], told["SSH_CLIENT"]) == ("/tmp", "me", "10.0.0.9 5 6")
    assert "SSH_ORIGINAL_COMMAND" not in told
    assert "TERM" not in told
    assert told["command"] == "its own"


def test_a_command_goes_to_the_login_shell_as_it_is(shell: tuple[str, ...], folder: Path) -> None:
    done = session(shell, folder, "printf '%s|' \"it's\" 'a\nb' $((1 + 1)); exit 7")
    assert (done.stdout, done.stderr, done.returncode) == ("it's|a\nb|2|", "", 7)
    assert session(shell, folder, "cat", stdin="bytes").stdout == "bytes"


def test_without_a_command_there_is_a_shell(shell: tuple[str, ...], folder: Path) -> None:
    assert session(shell, folder, None, stdin="echo $LD_LIBRARY_PATH; exit 3").stdout == "/opt/lib\n"
    assert session(shell, folder, None, stdin="exit 3").returncode == 3


def test_bash_reads_no_file_that_could_change_it(shell: tuple[str, ...], folder: Path) -> None:
    (folder / ".bashrc").write_text("PATH=/changed\necho noise\n")
    done = session(shell, folder, "echo $PATH", SHELL="/bin/bash", HOME=str(folder))
    assert done.stdout == "/opt/image:/usr/bin:/bin\n"


def test_before_the_environment_is_written(shell: tuple[str, ...], folder: Path) -> None:
    (folder / "environment").unlink()
    assert session(shell, folder, "echo $PATH $HOME").stdout == "/usr/bin:/bin /tmp\n"


def test_sftp(shell: tuple[str, ...], folder: Path) -> None:
    done = session(shell, folder, "sftp-server")
    if not os.path.exists("/usr/lib/openssh/sftp-server"):  # noqa: PTH110
        assert (done.returncode, done.stderr) == (127, "there is no sftp-server in this image\n")
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- keys


def keygen(path: Path, comment: str, shell: tuple[str, ...] = ("sh",)) -> None:
    subprocess.run((*shell, "-c", scripts.text("keygen.sh"), "keygen.sh", str(path), comment), check=True)


def test_a_pair_is_made_and_made_anew(tmp_path: Path, shell: tuple[str, ...]) -> None:
    key = tmp_path / "ssh" / "key"
    keygen(key, "gpu1 of hcc", shell)
    first = key.with_suffix(".pub").read_text()
    assert first.startswith("ssh-ed25519 ")
    assert first.endswith(" gpu1 of hcc\n")
    assert key.stat().st_mode & 0o777 == 0o600
    whose = subprocess.run(("ssh-keygen", "-y", "-f", str(key)), capture_output=True, text=True, check=True).stdout
    assert whose.split()[:2] == first.split()[:2]
    keygen(key, "gpu1 of hcc", shell)
    assert key.with_suffix(".pub").read_text() != first
    assert sorted(path.name for path in key.parent.iterdir()) == ["key", "key.pub"]


def test_a_key_that_is_cut_off_leaves_nothing(tmp_path: Path, shell: tuple[str, ...]) -> None:
    fakes = Fakes(tmp_path / "bin")
    fakes.make("ssh-keygen", "kill -TERM $PPID")
    argv = (*shell, "-euc", scripts.text("keygen.sh"), "keygen.sh", str(tmp_path / "ssh/key"), "x")
    assert subprocess.run(argv, env=fakes.env(), check=False).returncode == 143
    assert os.listdir(tmp_path / "ssh") == []


# --- the firewall


def test_the_firewall_is_closed_by_its_list_and_nothing_else_in_it(tmp_path: Path) -> None:
    fakes, units = Fakes(tmp_path / "bin"), tmp_path / "units"
    for name in ("nft", "iptables"):
        fakes.make(name)
    fakes.make("systemctl", "echo active")
    fakes.make("firewall-cmd", "case $1 in --get-active-zones | --get-default-zone) echo public ;; esac")
    units.mkdir()
    (tmp_path / "c").mkdir()
    (units / "c.service").touch()
    (units / "other.service").touch()
    (tmp_path / "c/firewall.sh").write_text("touch made\n")
    (tmp_path / "c/firewall").write_text("port 12222\nhost 10.0.0.2\nhost 10.0.0.3 --panic-on\nhost $(touch made)\n")
    text = (scripts.text("reload.sh") + scripts.text("firewall.sh")).replace("/etc/systemd/system", str(units))
    argv = ("sh", "-euc", text, "setup", "remove", str(tmp_path / "c"), "c.service")
    subprocess.run(argv, env=fakes.env(), cwd=tmp_path, timeout=20, check=True)
    asked = [call for call in fakes.calls if call.startswith("firewall-cmd --quiet")]
    rule = "--remove-rich-rule=rule family=ipv4 source address=10.0.0.2 port port=12222 protocol=tcp accept"
    assert asked == [f"firewall-cmd --quiet {more}--zone=public {rule}" for more in ("", "--permanent ")]
    assert not (tmp_path / "made").exists()
    assert [path.name for path in units.iterdir()] == ["other.service"]
    assert list((tmp_path / "c").iterdir()) == []


# --- the container's sshd


@pytest.mark.parametrize(("check", "wait"), [(0, 0), (3, 0), (0, 3)])
@pytest.mark.parametrize("sh", FAKED)
def test_whatever_a_container_says_is_cut_and_its_exit_code_counts(
    tmp_path: Path, sh: str, check: int, wait: int
) -> None:
    fakes = Fakes(tmp_path / "bin", sh)
    much = "head -c 3000000 /dev/zero | tr '\\0' x"
    fakes.make(
        "docker",
        f"""case "$*" in
          *State.Running*) echo true ;;
          *" check "*) {much}; exit {check} ;;
          *" wait "*) {much}; exit {wait} ;;
          logs*) {much} ;;
        esac""",
    )
    done = fakes.run("sshd.sh", "box", "/settings", "/pid")
    assert done.returncode == (1 if check or wait else 0)
    assert len(done.stdout) + len(done.stderr) < 2 * 65536
    what = "refuses its settings: x" if check else "does not listen: x"
    assert (f"sshd of container box {what}" in done.stderr) == bool(check or wait)
    assert any(call.startswith("docker kill --signal HUP") for call in fakes.calls) == (not check)
