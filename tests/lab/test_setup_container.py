"""The image and container stages on a host with an engine: what they make, and what becomes of it when hosts change."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.lab.rig import Done, Lab, made

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

NAME = "taco-launch-c"
LOCK = "/var/lib/taco-launch/containers/c/jobs/train-1/lock"
# Some megabytes with what main.sh calls, and programs that only have the right names.
IMAGES = """
rm -rf /srv/image
mkdir -p /srv/image/tmp /srv/image/bin /srv/image/etc
cd /srv/image
for program in sh sleep mkdir mv grep ls cat env setpriv; do
  path=$(command -v $program)
  cp -L $path bin/
  for file in $(ldd $path | grep -o '/[^ ]*'); do cp -L --parents $file .; done
done
tar -c --sort=name --mtime=@0 . | docker import - bare:1
printf '#!/bin/sh\\nexec sleep 1000\\n' >bin/sshd
printf '#!/bin/sh\\nexit 0\\n' >bin/python3
chmod 755 bin/*
cp bin/python3 bin/mpirun
cp bin/python3 bin/ssh
tar -c --sort=name --mtime=@0 . | docker import --change 'ENV LD_LIBRARY_PATH=/opt/lib' - tiny:1
"""


@dataclass(frozen=True)
class Engine:
    """A lab of one host with an engine and small images; set up by the command line."""

    lab: Lab
    folder: Path

    def sh(self, script: str, host: str = "gpu1", **more: Any) -> str:
        return self.lab.sh(host, f"set -eu\n{script}", **more)

    def setup(self, *args: str, cluster: str = "c", only: str = "image,container", **container: Any) -> Done:
        wanted = {"image": "tiny:1", "shm_size": "64m", **container}
        written = self.lab.inventory(self.folder / "cluster.yaml", "gpu1", cluster=cluster, container=wanted)
        return written.setup("--only", only, *args)

    def ready(self, **container: Any) -> str:
        """Set up; give the container's id."""
        done = self.setup("--yes", **container)
        assert done.returncode == 0, done.stderr
        return self.id()

    def id(self) -> str:
        return self.sh(f"docker container inspect --format '{{{{.Id}}}}' {NAME}")

    def runs(self) -> bool:
        done = self.lab.inside("gpu1", "docker", "container", "inspect", "--format", "{{.State.Running}}", NAME)
        return done.stdout.strip() == "true"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with made("container", tmp_path_factory.mktemp("state"), "--hosts", "1", "--docker") as lab:
        host = Engine(lab, tmp_path_factory.mktemp("inventory"))
        host.sh(IMAGES)
        yield host


def test_it_is_made_once_and_runs(engine: Engine) -> None:
    first = engine.ready()
    assert engine.runs()
    assert engine.setup("--check").returncode == 0
    assert engine.ready() == first
    environment = engine.sh(f"docker exec {NAME} cat /run/taco-launch/environment")
    assert "export LD_LIBRARY_PATH='/opt/lib'" in environment
    assert "export TACO_LAUNCH_CLUSTER='c'" in environment
    folders = engine.sh("stat -c %a /run/taco-launch /run/taco-launch/* /var/lib/taco-launch/clusters/c/ssh")
    assert folders.split() == ["711", "1777", "600", "600", "700"]
    told = json.loads(engine.sh(f"docker container inspect {NAME}"))[0]["HostConfig"]
    assert (told["NetworkMode"], told["PidMode"], told["ShmSize"], told["Privileged"]) == (
        "host",
        "",
        64 << 20,
        False,
    )
    assert "SYS_PTRACE" not in {name.removeprefix("CAP_") for name in told["CapAdd"]}


def test_a_rank_does_not_become_the_hosts_root(engine: Engine) -> None:
    """No AppArmor confines a container here: what it cannot do the kernel alone keeps it from."""
    own = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    pid = engine.sh(f"setsid {' '.join(own)} sleep 9876 >/dev/null 2>&1 </dev/null & echo $!")
    # As a user of the host, who may look at a process of its own: that one's root is the host's.
    look = ("docker", "exec", NAME, *own, "ls", f"/proc/{pid}/root/etc/taco-launch")
    engine.ready(sys_ptrace=True)
    assert engine.lab.inside("gpu1", *look).returncode != 0
    assert "systemd" not in engine.sh(f"docker exec {NAME} cat /proc/1/comm")
    said = engine.setup("--yes", pid="host")
    assert "anyone who runs a rank can become root on this host" in said.stdout + said.stderr
    assert "c" in engine.lab.inside("gpu1", *look).stdout.split(), "that is what is said"
    engine.sh(f"kill {pid}")
    engine.ready()


def test_the_container_writes_to_jobs_and_leases_alone(engine: Engine) -> None:
    engine.ready(env={"TOKEN": "ge heim#1"})
    state = "/var/lib/taco-launch"
    script = f"for folder in {state}/containers/c /run/taco-launch/leases {state}/agent {state}/clusters/c; do (: >$folder/probe); done"
    said = engine.lab.inside("gpu1", "docker", "exec", NAME, "sh", "-c", f"{script}; ls {state}; ls /etc/taco-launch")
    assert said.stdout.split() == ["agent", "clusters", "containers"]
    engine.sh(f"mkdir -p {state}/jobs/of-the-host {state}/containers/other")
    assert engine.sh(f"docker exec {NAME} ls {state} {state}/containers").split() == [
        *(f"{state}:", "agent", "clusters", "containers"),
        *(f"{state}/containers:", "c"),
    ]
    engine.sh(f"rm -r {state}/jobs {state}/containers/other {state}/containers/c/probe /run/taco-launch/leases/probe")
    # who fills it does not fill the host's /run
    assert engine.sh("findmnt -n -o FSTYPE,SOURCE /run/taco-launch/leases").split() == ["tmpfs", "taco-launch"]
    assert engine.sh(f"find {state} /run/taco-launch -name probe") == ""
    unit = engine.sh(f"cat /etc/systemd/system/{NAME}.service; ls /etc/taco-launch/c")
    assert "/bin/sh /etc/taco-launch/c/wait.sh" in unit
    assert state not in unit.replace(f" {state}/containers/c\n", "")
    # what a variable holds is told by the engine alone, to whom may ask it
    told = json.loads(engine.sh(f"docker container inspect {NAME}"))[0]["Config"]
    assert "TOKEN=ge heim#1" in told["Env"]
    assert "ge heim" not in json.dumps(told["Labels"])
    assert engine.sh("ls /run/taco-launch") == "leases\nleases.lock\nsetup.lock"
    engine.ready()


def test_what_the_engine_or_its_client_loses_comes_back(engine: Engine) -> None:
    identity = engine.ready()
    started = engine.sh(f"docker container inspect --format '{{{{.State.StartedAt}}}}' {NAME}")
    again = f"systemctl is-active {NAME} && systemctl show --property NRestarts --value {NAME} || :"
    before = engine.sh(again)
    engine.sh(f"systemctl kill --signal KILL {NAME}")  # the client that waits, not the container
    eventually(lambda: engine.sh(again).startswith("active") and engine.sh(again) != before, 20, "another client")
    assert engine.sh(f"docker container inspect --format '{{{{.State.StartedAt}}}}' {NAME}") == started
    engine.sh("systemctl restart docker")
    eventually(engine.runs, 20, "the container to run again")
    assert engine.id() == identity
    engine.sh(f"systemctl stop {NAME}")
    # it ends by the signal: otherwise systemd kills it after its time to stop, and says so
    assert engine.sh(f"systemctl show --property Result --value {NAME}") != "timeout"
    assert not engine.runs()
    assert engine.setup("--check").returncode == 3
    assert engine.ready() == identity


def test_after_a_reboot_it_waits_for_devices_and_runs(engine: Engine) -> None:
    """The file of a driver that comes late; it is /dev/null's, since there is no driver here."""
    engine.ready()
    device = "/dev/infiniband/uverbs0"
    make = f"mkdir -p /dev/infiniband && mknod {device} c 1 3"
    late = (
        f"[Unit]\\nBefore=shutdown.target\\n[Service]\\nExecStart=/bin/sh -c 'until [ -e /root/comes ]; do sleep 0.2; done; {make}'\\n"
        "[Install]\\nWantedBy=multi-user.target\\n"
    )
    engine.sh(f'{make}; printf "{late}" >/etc/systemd/system/late.service; systemctl enable late')
    try:
        done = engine.setup("--dry-run")
        assert f"from now on with --device={device}" in done.stdout
        identity = engine.ready()
        engine.lab.reboot("gpu1")
        assert engine.sh(f"ls {device} || true") == ""
        assert not engine.runs()
        engine.sh("touch /root/comes")
        eventually(engine.runs, 40, "the container to run again")
        assert engine.id() == identity
        assert device in engine.sh(f"docker exec {NAME} ls {device}")
        said = engine.sh(f"journalctl --boot --no-pager --output cat --unit {NAME}")
        assert f"waiting for {device}" in said
        assert f"{device} is there" in said
        assert engine.setup("--check").returncode == 0
    finally:
        engine.sh("systemctl disable late; rm /etc/systemd/system/late.service /dev/infiniband /root/comes -rf")
    done = engine.setup("--yes")  # a device that is gone is not a reason to continue without it
    assert done.returncode == 5
    assert f"{NAME} was made with {device}, which this host does not show now" in done.stderr
    assert engine.id() == identity
    engine.sh(f"docker rm --force {NAME}")
    assert engine.ready() != identity


@pytest.mark.parametrize(
    ("lock", "says"),
    [
        (LOCK, "job train-1 runs in taco-launch-c\nhint: wait for it (--wait-for-jobs 2h), or: taco-launch -i "),
        pytest.param("/run/taco-launch/leases/slot-1", "train-1", marks=pytest.mark.nightly),
    ],
)
def test_another_definition_waits_for_the_job(engine: Engine, lock: str, says: str) -> None:
    def free() -> bool:
        return engine.lab.inside("gpu1", "flock", "-n", lock, "true").returncode == 0

    first = engine.ready()
    folder = lock.rpartition("/")[0]
    engine.sh(f'mkdir -p {folder}; echo \'{{"job": "train-1"}}\' >{lock}.0')  # a lease's record
    # as a job does, who takes it lives: in a lab, whose hosts have PID namespaces, /proc/locks shows no other lock
    holder = engine.sh(f"setsid flock --close {lock} sleep 100 >/dev/null 2>&1 </dev/null & echo $!")
    eventually(lambda: not free(), 10, "the lock to be held")
    try:
        assert engine.setup("--check").returncode == 0  # nothing has changed: nobody is in the way
        done = engine.setup("--yes", shm_size="32m")
        assert done.returncode == 5
        assert says in done.stdout + done.stderr
        assert engine.id() == first
        assert engine.runs()
    finally:
        engine.sh(f"kill {holder}")
    eventually(free, 10, "the lock to be free")
    assert engine.ready(shm_size="32m") != first
    engine.sh(f"rm {lock}")


@pytest.mark.nightly
def test_a_mount_that_is_not_there_leaves_the_old_one_running(engine: Engine) -> None:
    first = engine.ready()
    done = engine.setup("--yes", mounts=["/nowhere:/data"])
    assert done.returncode == 5
    assert "/nowhere, which container.mounts lists, is not on this host" in done.stderr
    assert "hint: mkdir -p /nowhere there" in done.stderr
    assert engine.id() == first
    assert engine.runs()


@pytest.mark.nightly
def test_what_a_cut_run_left_is_in_nobodys_way_and_what_is_not_ours_stays(engine: Engine) -> None:
    first = engine.ready()
    left = "docker create --name taco-launch_c"
    engine.sh(f"{left} --label taco-launch.cluster=c tiny:1 sh")
    second = engine.ready(shm_size="32m")
    assert second != first
    assert engine.sh("docker ps --all --format '{{.Names}}'") == NAME
    engine.sh(f"{left} bare:1 sleep 1")
    try:
        done = engine.setup("--yes")
        assert done.returncode == 5
        assert 'The container name "/taco-launch_c" is already in use' in done.stdout + done.stderr
        assert engine.id() == second
        assert engine.runs()
        assert sorted(engine.sh("docker ps --all --format '{{.Names}}'").split()) == [NAME, "taco-launch_c"]
    finally:
        engine.sh("docker rm taco-launch_c")


def test_a_container_of_somebody_else_stays(engine: Engine) -> None:
    engine.sh("docker create --name taco-launch-d bare:1 sleep 1")
    try:
        done = engine.setup("--yes", cluster="d")
        assert done.returncode == 5
        assert "a container taco-launch-d is there that taco-launch did not make (image bare:1, created)" in (
            done.stdout + done.stderr
        )
        assert "docker rename taco-launch-d NEW" in done.stdout + done.stderr
        assert engine.sh("docker container inspect --format '{{.Config.Image}}' taco-launch-d") == "bare:1"
    finally:
        engine.sh("docker rm taco-launch-d")


def test_an_image_without_what_training_takes_is_refused_with_the_recipe(engine: Engine) -> None:
    done = engine.setup("--yes", cluster="d", image="bare:1")
    assert done.returncode == 5
    assert (
        "bare:1 lacks sshd, ssh, mpirun, python3; make an image that has all: "
        "docker build -t NAME docker/train-from --build-arg BASE=bare:1"
    ) in done.stdout + done.stderr
    assert "taco-launch-d" not in engine.sh("docker ps --all --format '{{.Names}}'")


def test_an_image_is_pulled_with_the_registrys_password(engine: Engine) -> None:
    """By the lab's registry, whose images all labs of this machine share: the name is this test's own."""
    repository = f"test-setup-{secrets.token_hex(4)}"
    image = f"registry:5000/{repository}:1"
    password = engine.lab.password
    push = f"""
        export DOCKER_CONFIG=$(mktemp -d)
        docker login --username lab --password-stdin registry:5000
        docker tag tiny:1 {image}
        docker push --quiet {image}
        docker image rm {image}
        rm -rf "$DOCKER_CONFIG"
    """
    engine.sh(push, input=password)
    file = engine.folder / "password"
    login = {"user": "lab", "password_file": str(file)}
    try:
        for written, name, says in (
            ("wrong", image, "docker login registry:5000 as lab: login attempt to https://registry:5000/v2/ failed with status: 401"),
            (password, f"{image}-not", "manifest unknown"),
        ):  # fmt: skip
            file.write_text(f"{written}\n")
            done = engine.setup("--yes", only="image", image=name, registry=login)
            assert done.returncode == 5
            assert says in done.stdout + done.stderr
        done = engine.setup("--yes", only="image", image=image, registry=login)
        assert done.returncode == 0, done.stderr
        assert password not in done.stdout + done.stderr
        assert engine.setup("--check", only="image", image=image, registry=login).returncode == 0
        assert repository in engine.sh("docker image ls --format '{{.Repository}}'")
        left = engine.sh(
            f"ls /run/taco-launch; ls -a /root; grep -rlF {password} /run /tmp /root /var/lib/taco-launch || :"
        )
        assert "registry-password" not in left
        assert ".docker" not in left
        assert not [line for line in left.splitlines() if line.startswith("/")]
        logs = [log.read_text() for log in (engine.lab.state / "setup").rglob("*.log")]
        assert logs
        assert not [log for log in logs if password in log]
    finally:
        engine.sh(f"docker image rm --force {image} >/dev/null 2>&1 || :")
        engine.sh(f"rm -r /var/lib/docker-registry/docker/registry/v2/repositories/{repository}", host="registry")
