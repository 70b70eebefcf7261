"""Set-up as an ops engineer meets it: from bare hosts to ready ones, cut off in the middle, with a bad host, and back."""

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.lab.rig import Done, Image, Lab, made
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of these tests' own: set-up leaves nothing bare."""
    with made("setup", tmp_path_factory.mktemp("state"), "--hosts", "2", "--slots", "2", image=Image.SMALL) as lab:
        yield lab


def setup(lab: Lab, *words: str) -> Done:
    return lab.cluster.setup(*words)


def ready(lab: Lab, *words: str) -> None:
    lab.cluster.ok("setup", "--yes", *words)
    lab.cluster.converged()


def states(done: Done) -> dict[str, list[str]]:
    rows = [line.split() for line in done.stdout.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) == 3 and row[0].startswith("gpu")}


def take_back(lab: Lab, *words: str) -> None:
    lab.cluster.ok("teardown", "--yes", *words)


def refused(lab: Lab, folder: Path, env: dict[str, str], **ssh: str) -> str:
    """Have gpu1 set up by another inventory, which fails before anything is done; give what is said."""
    other = lab.inventory(folder / "other.yaml", "gpu1", ssh=ssh, container={"image": "none:1"})
    done = other.setup("--yes", env=env)
    assert (done.returncode, done.stdout) == (5, ""), done.stderr
    assert done.stderr.count("error: gpu1: ") == 1
    return done.stderr


def test_nobody_is_let_in_by_the_wrong_key_host_key_or_password(bare: Lab, tmp_path: Path) -> None:
    key, known = tmp_path / "key", tmp_path / "known"
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)), check=True)
    said = refused(bare, tmp_path, {}, identity_file=str(key))
    assert f"it does not accept a key of root\n  offered: {key}\n" in said
    assert f"correct, put a public key there: ssh-copy-id -i {key} root@" in said

    lines = [line.split(" ", 1) for line in bare.known_hosts.read_text().splitlines()]
    of = {names.partition(",")[0]: names for names, _ in lines}
    known.write_text("".join(f"{of['gpu1']} {each}\n" for names, each in lines if names == of["gpu2"]))
    said = refused(bare, tmp_path, {}, known_hosts=str(known))
    assert "has CHANGED: it is now " in said
    assert f"hint: if the host was reinstalled: taco-launch -i {tmp_path}/other.yaml trust --replace gpu1\n" in said

    ops = "useradd -m ops && echo ops:right | chpasswd && cp -r ~/.ssh /home/ops/ && chown -R ops /home/ops/.ssh"
    assert bare.inside("gpu1", "sh", "-c", f"{ops} && usermod -aG sudo ops").returncode == 0
    said = refused(bare, tmp_path, {"TACO_LAUNCH_SUDO_PASSWORD": "wrong"}, user="ops")
    assert "sudo rejected the password\nhint: try it there: ssh -t " in said


@contextmanager
def apt_at_work(lab: Lab, host: str) -> Iterator[None]:
    """Have apt hold its lock, as unattended upgrades do, until set-up's own apt-get has met it (`locked` in dpkg.sh)."""
    hold = "until [ -e /run/go-on ]; do sleep 0.21; done"
    script = f"apt-get -qq update && exec apt-get -qq -y -o DPkg::Pre-Invoke::='{hold}' install file"

    def go_on() -> None:
        try:
            eventually(
                lambda: lab.inside(host, "pgrep", "-fx", "sleep 5").returncode == 0, 60, "set-up to wait for apt"
            )
        finally:
            lab.sh(host, "touch /run/go-on")

    with (
        subprocess.Popen(lab.exec_argv(host, "sh", "-c", script), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL),
        ThreadPoolExecutor(1) as pool,
    ):
        eventually(lambda: lab.inside(host, "pgrep", "-fx", "sleep 0.21").returncode == 0, 30, "apt to hold its lock")
        goes_on = pool.submit(go_on)
        yield
        goes_on.result()


def test_from_bare_to_ready(bare: Lab) -> None:
    nobody = setup(bare)
    assert nobody.returncode == 2
    assert "stdin is not a terminal" in nobody.stderr
    assert setup(bare, "--dry-run").returncode == 0
    assert setup(bare, "--check").returncode == 3
    assert bare.inside("gpu1", "sh", "-c", "command -v docker").stdout == "", "looking has installed something"

    with apt_at_work(bare, "gpu1"):
        done = setup(bare, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("gpu[1-2]: + docker: install docker.io")
    assert {name: state for name, (state, _) in states(done).items()} == {"gpu1": "ready", "gpu2": "ready"}
    logs = sorted((bare.state / "setup" / bare.name).glob("*/*.log"))
    assert [log.name for log in logs] == ["gpu1.log", "gpu2.log"]
    assert logs[0].stat().st_mode & 0o777 == 0o600
    assert ["Could not get lock" in log.read_text() for log in logs] == [True, False]
    told = done.stdout + done.stderr + "".join(log.read_text() for log in logs)
    assert bare.password not in told
    assert "PRIVATE KEY" not in told

    check = setup(bare, "--check")
    assert (check.returncode, check.stdout) == (0, ""), check.stderr
    again = setup(bare)
    assert (again.returncode, states(again)) == (0, {"gpu1": ["ready", "0"], "gpu2": ["ready", "0"]}), again.stderr


def test_drift_is_seen_shown_and_mended(bare: Lab) -> None:
    folder = f"/var/lib/taco-launch/clusters/{bare.name}"
    bare.inside("gpu2", "sh", "-c", f"echo drifted >>{folder}/ssh/known_hosts; systemctl stop taco-launch-{bare.name}")
    check = setup(bare, "--check", "--diff")
    assert check.returncode == 3
    assert "gpu2: + ssh_mesh: " in check.stdout
    assert f"gpu2: + container: start taco-launch-{bare.name}.service" in check.stdout
    assert "\n-drifted\n" in check.stdout
    ready(bare)


def test_one_host_of_two_is_broken(bare: Lab) -> None:
    bare.inside("gpu1", "rm", f"/var/lib/taco-launch/clusters/{bare.name}/session.sh")
    bare.inside("gpu2", "rm", f"/var/lib/taco-launch/clusters/{bare.name}/session.sh")
    bare.fault("gpu2", "disk-full")
    done = setup(bare, "--yes")
    bare.fault("gpu2", "disk-free")
    assert done.returncode == 5
    assert {name: state for name, (state, _) in states(done).items()} == {"gpu1": "ready", "gpu2": "failed"}
    full = "the disk of /var/lib/taco-launch is full: /var/lib/taco-launch has 0 MiB free"
    assert f"error: gpu2: hardware: {full}\nhint: free some space" in done.stderr
    assert "1 of 2 hosts ready" in done.stderr
    assert "(see the errors above) and rerun the command: completed steps are skipped" in done.stderr
    ready(bare)


def test_a_host_that_is_off_keeps_no_other_from_being_set_up(bare: Lab) -> None:
    bare.inside("gpu1", "rm", f"/var/lib/taco-launch/clusters/{bare.name}/session.sh")
    bare.fault("gpu2", "stop-sshd")
    check = setup(bare, "--check")
    done = setup(bare, "--yes")
    bare.fault("gpu2", "start-sshd")
    assert (check.returncode, done.returncode) == (5, 5)
    assert {name: state for name, (state, _) in states(done).items()} == {"gpu1": "ready", "gpu2": "failed"}
    assert "error: gpu2: no TCP connection" in done.stderr
    ready(bare)


def test_a_head_that_is_off_is_still_known_to_the_others(bare: Lab) -> None:
    bare.fault("gpu1", "stop-sshd")
    check, done = setup(bare, "--check"), setup(bare, "--yes")
    bare.fault("gpu1", "start-sshd")
    assert (check.returncode, check.stdout) == (5, ""), check.stderr
    assert states(done) == {"gpu1": ["failed", "0"], "gpu2": ["ready", "0"]}
    ready(bare)


def pulling(lab: Lab) -> bool:
    return lab.inside("gpu1", "sh", "-c", "ps -eo args | grep -q '^docker pull'").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_cut_off_in_the_middle(bare: Lab, number: int) -> None:
    take_back(bare, "--images", "--host", "gpu1")
    with bare.cluster.start("setup", "--yes") as running:
        eventually(lambda: pulling(bare), 60, "the image to be pulled")
        running.send_signal(number)
        _, said = running.communicate(timeout=patience(20))
    assert running.returncode == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert (
            "interrupted: each host still finishes the step that it has started; to continue: taco-launch -i lab:"
            in said
        )
    ready(bare)


@pytest.mark.nightly
def test_a_host_reboots_in_the_middle(bare: Lab) -> None:
    take_back(bare, "--images", "--host", "gpu1")
    with bare.cluster.start("setup", "--yes") as running:
        eventually(lambda: pulling(bare), 60, "the image to be pulled")
        bare.fault("gpu1", "power-off")
        _, said = running.communicate(timeout=patience(110))
    assert running.returncode == 5
    assert "error: gpu1: " in said
    bare.fault("gpu1", "power-on")
    eventually(lambda: bare.answers("gpu1"), 30, "gpu1 to answer")
    ready(bare)


def test_what_setup_made_is_taken_back_and_nothing_else(bare: Lab) -> None:
    image = bare.training()["image"]
    bare.sh("gpu1", f"docker create --name foreign {image} true")
    listed = bare.cluster("teardown", "--dry-run")
    assert (listed.returncode, listed.stdout.count(": - ")) == (0, 2), listed.stderr
    nobody = bare.cluster("teardown")
    assert nobody.returncode == 2

    lease = "/run/taco-launch/leases/slot-0"
    record = f'printf \'{{"job": "night"}}\' >{lease}.0; echo held; sleep 60'
    # as a job does, who takes it lives: in a lab, whose hosts have PID namespaces, /proc/locks shows no other lock
    argv = bare.exec_argv("gpu1", "flock", "--close", lease, "sh", "-c", record)
    holder = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    busy = bare.cluster("teardown", "--yes", "-H", "gpu1")
    assert busy.returncode == 5
    assert f"job night runs in taco-launch-{bare.name}, it holds slot-0" in busy.stderr
    assert bare.sh("gpu1", f"docker container inspect -f '{{{{.State.Running}}}}' taco-launch-{bare.name}") == "true"
    bare.inside("gpu1", "pkill", "-x", "sleep")
    holder.wait(20)

    take_back(bare)
    for host in ("gpu1", "gpu2"):
        left = bare.inside(
            host,
            "sh",
            "-c",
            "ls -d /etc/taco-launch /etc/systemd/system/taco* /var/lib/taco-launch/[!c]* /var/lib/taco-launch/clusters "
            "/run/taco-launch/leases*",
        )
        assert left.stdout == ""
        assert image in bare.sh(host, "docker images --format '{{.Repository}}:{{.Tag}}'")
    assert bare.sh("gpu1", "docker ps -a --format '{{.Names}}'") == "foreign"
    again = bare.cluster("teardown", "--yes")
    assert (again.returncode, again.stdout) == (0, "")
    assert setup(bare, "--check").returncode == 3


@pytest.mark.nightly
def test_one_host_of_four_is_broken(tmp_path: Path) -> None:
    source = "echo 'deb http://127.0.0.1:9/debian stable main' >/etc/apt/sources.list"
    with made("broken", tmp_path, "--hosts", "4", "--slots", "2", image=Image.SMALL) as four:
        broken = four.inside("gpu3", "sh", "-c", f"rm -rf /etc/apt/sources.list* /var/lib/apt/lists; {source}")
        assert broken.returncode == 0
        one = setup(four, "--yes", "-H", "gpu1")
        assert (
            "gpu[2-4]: not changed; jobs that also use these hosts need the same image and settings there: "
            in one.stderr
        )
        done = setup(four, "--yes")
        expected = {"gpu1": "ready", "gpu2": "ready", "gpu3": "failed", "gpu4": "ready"}
        assert (done.returncode, {name: state for name, (state, _) in states(done).items()}) == (5, expected), (
            done.stderr
        )
        assert "error: gpu3: install docker.io (distribution): apt-get install: " in done.stderr
        assert "; package source: Failed to fetch http://127.0.0.1:9/debian" in done.stderr
        assert "3 of 4 hosts ready after " in done.stderr
        ran = four.cluster("run", "-H", "gpu1:1,gpu2:1,gpu4:1", "--np", "3", "--", "hostname")
        assert ran.returncode == 0, ran.stderr
        assert {name for name in expected if name in ran.stdout} == {"gpu1", "gpu2", "gpu4"}
