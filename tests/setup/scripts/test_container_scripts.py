"""create.sh, main.sh and wait.sh as they run in the container and on the host, with programs that change nothing here."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent.host.processes import identify
from taco_launch.setup import scripts
from tests.conftest import eventually
from tests.support.setup_scripts import SHELLS, Fakes


@pytest.fixture(params=SHELLS)
def fakes(tmp_path: Path, request: pytest.FixtureRequest) -> Fakes:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    made = Fakes(tmp_path / "bin", request.param)
    for name in ("mkdir", "usermod"):
        made.make(name)
    made.make("grep", "exit 1")  # of /etc/shadow
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The cluster's folder."""
    made = tmp_path / "clusters" / "hcc"
    (made / "ssh").mkdir(parents=True)
    text = scripts.text("main.sh")
    assert text.count("/run/taco-launch") == 4
    (tmp_path / "run").mkdir()
    (made / "main.sh").write_text(text.replace("/run/taco-launch", f"{tmp_path}/run"))
    return made


Main = Iterator["subprocess.Popen[str]"]


@pytest.fixture
def main(fakes: Fakes, folder: Path) -> Main:
    """The container's main process; sshd lives until it is killed."""
    fakes.make("sshd", "exec /bin/sleep 60")
    fakes.make("sleep", "exec /bin/sleep 0.1")
    env = fakes.env({"LD_LIBRARY_PATH": "/opt/a b'c", "TWO_LINES": "one\ntwo", "folder": "its own"})
    argv = (*fakes.sh, str(folder / "main.sh"))
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        yield process
        process.terminate()  # a KILL would leave its loop for the queue, which an engine would end with the container
        process.wait(10)


def environment(folder: Path) -> Path:
    return folder.parent.parent / "run" / "environment"


def sshds(fakes: Fakes) -> list[str]:
    return [call for call in fakes.calls if call.startswith("sshd ")]


def ready(folder: Path) -> None:
    for name in ("sshd_config", "host_key"):
        (folder / "ssh" / name).write_text("x")


def children(pid: int) -> list[int]:
    """Return the children of a shell that are programs, and no shells of its own."""
    found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in found if b"main.sh" not in Path(f"/proc/{child}/cmdline").read_bytes()]


def ended(pid: int) -> bool:
    found = identify(pid)
    return found is None or found.state == "Z"  # nobody may have asked for it yet


def test_the_environment_is_kept_for_sessions(main: "subprocess.Popen[str]", fakes: Fakes, folder: Path) -> None:
    file = environment(folder)
    eventually(file.exists, 10)
    assert file.stat().st_mode & 0o777 == 0o600
    script = f'unset LD_LIBRARY_PATH TWO_LINES; . {file}; printf "%s|" "$LD_LIBRARY_PATH" "$TWO_LINES" "$folder"'
    said = subprocess.run((*fakes.sh, "-c", script), capture_output=True, text=True, check=True)
    assert said.stdout == "/opt/a b'c|one\ntwo|its own|"
    assert main.poll() is None


@pytest.fixture
def marked(fakes: Fakes, folder: Path) -> Path:
    """The queue's folder of the cluster, in which one job is marked that is gone, and one that is not over."""
    agent = folder.parent.parent / "agent" / "agent-1.pyz"
    agent.parent.mkdir()
    agent.touch()
    jobs = folder.parent.parent / "containers" / "hcc" / "jobs"
    (jobs / "vgg").mkdir(parents=True)
    (jobs / "vgg" / "agent.pyz").symlink_to(agent)
    pending = jobs / ".queue" / "pending"
    pending.mkdir(parents=True)
    (pending / "gone").touch()
    (pending / "vgg").touch()
    fakes.make("python3", f'echo "$folder" >>{fakes.folder}.calls')
    return pending


@pytest.mark.usefixtures("marked")
def test_the_queue_goes_on_after_a_boot(fakes: Fakes, folder: Path) -> None:
    fakes.make("sleep", "exec /bin/sleep 0.1")
    agent = folder.parent.parent / "agent" / "agent-1.pyz"
    env = fakes.env({"folder": "its own"})
    with subprocess.Popen((*fakes.sh, str(folder / "main.sh")), env=env) as process:
        # now and then, in the environment of the container
        eventually(lambda: fakes.calls.count(f"python3 -I -S {agent} schedule") >= 2, 10)
        assert "its own" in fakes.calls
        process.terminate()
        assert process.wait(5) == 0
    count = len(fakes.calls)
    time.sleep(0.5)
    assert len(fakes.calls) <= count + 1


def test_where_no_job_is_left_nothing_is_started(fakes: Fakes, folder: Path, marked: Path) -> None:
    fakes.make("sleep", "exec /bin/sleep 0.1")
    (marked / "vgg").unlink()
    with subprocess.Popen((*fakes.sh, str(folder / "main.sh")), env=fakes.env()) as process:
        eventually(lambda: sum(call.startswith("sleep 60") for call in fakes.calls) >= 2, 10)
        process.terminate()
        assert process.wait(5) == 0
    assert not any(call.startswith("python3") for call in fakes.calls)


@pytest.mark.parametrize("fakes", ["dash"], indirect=True)
def test_sshd_is_started_once_its_files_are_there_and_again_when_it_ends(
    main: "subprocess.Popen[str]", fakes: Fakes, folder: Path
) -> None:
    eventually(environment(folder).exists, 10)
    (folder / "ssh" / "host_key").write_text("")  # on its way
    (folder / "ssh" / "sshd_config").write_text("x")
    with pytest.raises(AssertionError, match="in vain"):
        eventually(lambda: sshds(fakes), 0.5)
    ready(folder)
    eventually(lambda: sshds(fakes), 10)
    assert sshds(fakes) == [f"sshd -D -e -f {folder}/ssh/sshd_config"]
    (sshd,) = children(main.pid)
    os.kill(sshd, signal.SIGKILL)
    eventually(lambda: len(sshds(fakes)) == 2, 10)
    main.terminate()
    assert main.wait(5) == 0
    assert main.stdout is not None
    assert main.stdout.read().splitlines()[-1] == "sshd ended with exit code 137, and is started again"


@pytest.mark.parametrize("fakes", ["dash", "busybox"], indirect=True)
def test_sshd_is_told_to_read_its_settings_anew(main: "subprocess.Popen[str]", fakes: Fakes, folder: Path) -> None:
    fakes.make(
        "sshd",
        f"trap 'echo again >>{fakes.folder}.calls' HUP; echo traps >>{fakes.folder}.calls; while :; do /bin/sleep 0.05; done",
    )
    eventually(environment(folder).exists, 10)
    main.send_signal(signal.SIGHUP)  # too early: there is none
    ready(folder)
    eventually(lambda: "traps" in fakes.calls, 10)
    for times in (1, 2):
        main.send_signal(signal.SIGHUP)
        eventually(lambda times=times: fakes.calls.count("again") == times, 10)  # type: ignore[misc]
    assert len(sshds(fakes)) == 1
    main.terminate()
    assert main.wait(10) == 0


@pytest.mark.parametrize("with_sshd", [True, False])
def test_it_ends_at_once_and_takes_sshd_with_it(
    main: "subprocess.Popen[str]", fakes: Fakes, folder: Path, *, with_sshd: bool
) -> None:
    eventually(lambda: "mkdir -p /run/sshd" in fakes.calls, 10)  # from then on it hears a TERM
    if with_sshd:
        ready(folder)
        eventually(lambda: sshds(fakes), 10)
    child = eventually(lambda: children(main.pid), 10)[0]
    main.terminate()
    assert main.wait(10) == 0
    eventually(lambda: ended(child), 5, "its child to end")


@pytest.mark.parametrize("locked", [True, False])
def test_a_locked_root_is_opened_for_keys(fakes: Fakes, folder: Path, *, locked: bool) -> None:
    fakes.make("grep", f"exit {0 if locked else 1}")
    fakes.make("sleep", "kill -s TERM $PPID")
    subprocess.run((*fakes.sh, str(folder / "main.sh")), env=fakes.env(), timeout=20, check=True)
    assert ("usermod -p * root" in fakes.calls) is locked
    assert "mkdir -p /run/sshd" in fakes.calls


# --- wait.sh


def wait(fakes: Fakes, *args: str) -> "subprocess.CompletedProcess[str]":
    """Run it as the unit does, which does not end it at a command that fails."""
    for name in ("chmod", "mount"):
        if not (fakes.folder / name).exists():
            fakes.make(name)
    run = fakes.folder.parent / "run"
    run.mkdir(exist_ok=True)
    text = (scripts.text("leases.sh") + scripts.text("wait.sh")).replace("/run/taco-launch", str(run))
    argv = (*fakes.sh, "-c", text, "wait.sh", args[0], "/var/state", *args[1:])
    return subprocess.run(argv, env=fakes.env(), capture_output=True, text=True, timeout=30, check=False)


def test_nothing_to_wait_for_takes_no_word(fakes: Fakes, tmp_path: Path) -> None:
    done = wait(fakes, "300", str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    run = tmp_path / "run"
    limits = "mode=1777,size=64m,nr_inodes=65536,nosuid,nodev,noexec"
    made = [f"mkdir {run}/leases", f"mount -t tmpfs -o {limits} taco-launch {run}/leases"]
    first, last = [f"mkdir -p {run}", f"chmod 0711 {run}"], [f"chmod 1777 {run}/leases", "mkdir -p /var/state"]
    assert fakes.calls == [*first, *made, *last]
    (run / "leases").mkdir()
    assert wait(fakes, "300").returncode == 0
    assert fakes.calls == [*first, *made, *last, *first, *last]  # a mount would hide the locks that jobs hold


def test_without_a_file_system_of_their_own_there_are_leases_all_the_same(fakes: Fakes) -> None:
    fakes.make("mount", "exit 32")
    done = wait(fakes, "300")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "the leases share the file system of /run: a user who fills it fills that\n"


def test_a_late_device_is_waited_for_and_named(fakes: Fakes, tmp_path: Path) -> None:
    device = tmp_path / "uverbs0"
    fakes.make("sleep", f"[ $(wc -l <{fakes.folder}.calls) -lt 9 ] || : >{device}")
    done = wait(fakes, "300", str(tmp_path), str(device))
    assert (done.returncode, done.stdout) == (0, f"waiting for {device}\n{device} is there\n")
    assert fakes.calls.count("sleep 1") == 3


def test_what_never_comes_is_named_and_ends_the_wait_for_all(fakes: Fakes, tmp_path: Path) -> None:
    fakes.make("sleep")
    gone, other = tmp_path / "uverbs0", tmp_path / "uverbs1"
    done = wait(fakes, "5", str(gone), str(other))
    assert done.returncode == 0
    assert fakes.calls.count("sleep 1") == 5
    for device in (gone, other):
        assert f"{device} has not come: is its driver loaded? trying without it" in done.stdout


def test_devices_of_gpus_are_asked_for(fakes: Fakes, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    device = tmp_path / "dev/nvidia0"
    fakes.make("nvidia-smi", f": >{device}")
    done = wait(fakes, "300", str(device))
    assert (done.returncode, done.stdout) == (0, "")
    assert "nvidia-smi -L" in fakes.calls


def test_without_a_folder_for_leases_nothing_starts(fakes: Fakes) -> None:
    for name in ("chmod", "mkdir"):
        fakes.make(name, f"echo '{name}: no' >&2; exit 1")
        assert wait(fakes, "300").returncode == 1


# --- create.sh

LOOKS = ("docker container inspect", "docker image inspect", "docker container ls")


CLUSTER = ("taco-launch-hcc", "taco-launch_hcc", "taco-launch-hcc.service", "hcc")


def create(fakes: Fakes, state: Path, look: str, *rest: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run it below a state folder, with the functions of other scripts that it calls; `rest` follows the image."""
    text = f"{look}\n{more.get('text', scripts.text('create.sh'))}".replace("/var/lib/taco-launch", str(state))
    cluster = (*CLUSTER[:3], more.get("container", "hcc"))
    places = (f"{state}/clusters/hcc", f"{state}/containers/hcc", f"{state}/hcc.env")
    return fakes.run_text(text, *cluster, *places, "t:1", "mpirun", *rest)


LOOKED = "look() { echo looked; exit 3; }"


@pytest.mark.parametrize("busy", [False, True])
def test_a_job_that_begins_while_it_is_made_keeps_the_old_one(fakes: Fakes, tmp_path: Path, *, busy: bool) -> None:
    fakes.make("docker", """case "$*" in *taco-launch_hcc | *create*) exit ;; *inspect*) echo hcc ;; esac""")
    fakes.make("systemctl")
    idle = f"idle() {{ {'false' if busy else 'true'}; }}"
    variables = tmp_path / "hcc.env"
    variables.write_text("TOKEN=geheim\n")
    (tmp_path / "clusters/hcc/ssh").mkdir(parents=True)
    done = create(fakes, tmp_path, f"{idle}\nlook() {{ :; }}\nmake_leases() {{ :; }}", "0", "", "--user=0", "t:1")
    assert done.returncode == (1 if busy else 0)
    assert not variables.exists()
    changes = [
        each for each in fakes.calls if each.split()[0] in ("docker", "systemctl") and not each.startswith(LOOKS)
    ]
    made = ["docker create --name taco-launch_hcc --user=0 t:1"]
    replaced = [
        "systemctl stop taco-launch-hcc.service",
        "docker rm --force --volumes taco-launch-hcc",
        "docker rename taco-launch_hcc taco-launch-hcc",
    ]
    assert changes == [*made, *(["docker rm --force --volumes taco-launch_hcc"] if busy else replaced)]


@pytest.mark.parametrize("fakes", ["dash"], indirect=True)
@pytest.mark.parametrize("link", ["containers", "containers/hcc", "agent", "clusters/hcc/ssh"])
def test_nothing_is_shared_by_way_of_a_link(fakes: Fakes, tmp_path: Path, link: str) -> None:
    (tmp_path / "clusters/hcc").mkdir(parents=True)
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to("/etc")
    fakes.make("docker", "exit 1")
    done = create(fakes, tmp_path, "look() { :; }", "0", "", "t:1")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path}/{link} is a symbolic link, and what it leads to would be shared")
    assert not [call for call in fakes.calls if call.startswith("docker create")]


@pytest.mark.parametrize("fakes", ["dash"], indirect=True)
def test_data_that_is_not_there_is_named_before_anything_is_done(fakes: Fakes, tmp_path: Path) -> None:
    fakes.make("docker", f"echo {tmp_path}/docker")
    done = create(fakes, tmp_path, LOOKED, "1", "ro:/no", "ro:/no/data", "--user=0", "t:1")
    error, hint = "error: /no/data, which --data names, is not on this host", "hint: mkdir -p /no/data there"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{error}\n{hint}, or name another folder\n"


@pytest.mark.parametrize(
    ("roots", "data", "hint"),
    [
        (["ro:{}/a"], "ro:{}/a", ""),
        (["ro:{}/b", "ro:{}/a"], "ro:{}/a/in it", ""),
        (["rw:{}/a"], "ro:{}/a", ""),
        (["rw:{}/a"], "rw:{}/a/in it", ""),
        (["ro:{}/a/in it", "rw:{}/a"], "rw:{}/a/in it", ""),
        ([], "ro:{}/a", "[{path: {}/a, mode: ro}]"),
        (["ro:{}/a"], "ro:{}/a2", "[{path: {}/a2, mode: ro}]"),
        (["ro:{}/a/in it"], "ro:{}/a", "[{path: {}/a, mode: ro}]"),
        (["ro:{}/a", "rw:{}/b"], "rw:{}/a/in it", "[{path: {}/a/in it, mode: rw}]"),
        (["rw:{}/*"], "ro:{}/a", "[{path: {}/a, mode: ro}]"),
        (["rw:$(touch {}/ran)", "rw:`touch {}/ran`"], "ro:{}/a", "[{path: {}/a, mode: ro}]"),
    ],
)
def test_data_of_a_job_is_below_the_roots_of_the_inventory(
    fakes: Fakes, tmp_path: Path, roots: list[str], data: str, hint: str
) -> None:
    fakes.make("docker", f"echo {tmp_path}/docker")
    for name in ("a/in it", "a2", "b"):
        (tmp_path / name).mkdir(parents=True)
    lines, given, hint = (text.replace("{}", str(tmp_path)) for text in ("\n".join(roots), data, hint))
    done = create(fakes, tmp_path / "state", LOOKED, "1", lines, given, "--user=0", "t:1", container="hcc@1")
    assert not (tmp_path / "ran").exists()
    assert (done.returncode, done.stdout) == ((1, "") if hint else (3, "looked\n")), done.stderr
    mode, _colon, path = given.partition(":")
    outside = f"error: {path}, which --data names, is outside the folders that jobs may mount ({mode})\n"
    assert done.stderr.startswith(f"{outside}hint: add it to the inventory: data_roots: {hint};" if hint else "")


@pytest.mark.parametrize("link", ["root/link", "root/link/ssh", "root/folder/../link", "other"])
def test_no_link_leads_out_of_a_root(fakes: Fakes, tmp_path: Path, link: str) -> None:
    """Neither one below it, nor one that is it, nor a path that goes up."""
    fakes.make("docker", f"echo {tmp_path}/docker")
    (tmp_path / "root" / "folder").mkdir(parents=True)
    (tmp_path / "away" / "ssh").mkdir(parents=True)
    for name in ("root/link", "other"):
        (tmp_path / name).symlink_to(tmp_path / "away")
    roots = f"rw:{tmp_path}/root\nrw:{tmp_path}/other"
    for data, code, said in (
        (f"{tmp_path}/root/folder", 3, "looked\n"),
        (f"{tmp_path}/{link}", 1, f"is a symbolic link, or behind one: it is {tmp_path}/away"),
    ):
        done = create(fakes, tmp_path / "state", LOOKED, "1", roots, f"ro:{data}", "--user=0", "t:1", container="hcc@1")
        assert done.returncode == code
        assert said in done.stdout + done.stderr
        assert "hint: --data" not in done.stderr, "it would be refused"


@pytest.mark.parametrize(
    ("engine", "data", "is_refused"),
    [
        ("srv/docker", "srv/docker", True),
        ("srv/docker", "srv/docker/volumes", True),
        ("srv/docker", "srv", True),
        ("link", "srv", True),
        ("srv/docker", "srv/docker2", False),
        ("srv/*", "srv/docker", False),
    ],
)
def test_no_job_mounts_the_folder_of_the_engine(
    fakes: Fakes, tmp_path: Path, engine: str, data: str, is_refused: bool
) -> None:
    """Nothing but the engine knows its folder: /etc/docker/daemon.json or an option may name it."""
    for name in ("srv/docker/volumes", "srv/docker2", "srv/*"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "srv" / "docker")
    fakes.make("docker", f"""[ "$*" = "info --format {{{{.DockerRootDir}}}}" ] && echo '{tmp_path}/{engine}'""")
    given = f"ro:{tmp_path}/{data}"
    done = create(fakes, tmp_path / "state", LOOKED, "1", f"ro:{tmp_path}/srv", given, "--user=0", "t:1")
    assert (done.returncode, done.stdout) == ((1, "") if is_refused else (3, "looked\n")), done.stderr
    real = (tmp_path / engine).resolve()
    error = f"error: {tmp_path}/{data}, which --data names, contains the folder of the Docker Engine ({real})"
    assert done.stderr.startswith(error) == is_refused


def test_no_job_mounts_anything_where_the_engine_does_not_answer(fakes: Fakes, tmp_path: Path) -> None:
    fakes.make("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    done = create(fakes, tmp_path / "state", LOOKED, "1", f"ro:{tmp_path}", f"ro:{tmp_path}", "--user=0", "t:1")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Cannot connect to the Docker daemon\n")
