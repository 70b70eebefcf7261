"""A set-up GPU host whose hardware fails later: each fault is told with host, cause and next step, and changes nothing."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from taco_launch.core.model.host import paths
from tests.conftest import eventually
from tests.lab.rig import Done, GpuHost, Image, made

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

DRIVER, GPUS = "470.82.01", 8
# With it systemd keeps the devices of containers, and takes those that it does not know of when it reads its units again.
CGROUPS = '{"exec-opts": ["native.cgroupdriver=systemd"]}'
STAGES = "docker,toolkit,peermem,image,container"


@dataclass(frozen=True)
class ReadyHost(GpuHost):
    """A host of a lab with eight GPUs that set-up has made ready; each test leaves it so."""

    @property
    def before(self) -> Path:
        """Where the facts are of the host as it was."""
        return self.folder / "before.json"

    def setup(self, *words: str) -> Done:
        return self.cluster.setup("--only", STAGES, *words)

    def other_peermem(self, use: str, *words: str) -> str:
        """Set peer memory up as an inventory says that asks for `use`; give all that is said."""
        done = self.by(cluster=self.lab.name, peermem={"use": use}).setup("--only", "peermem", *words)
        return f"exit {done.returncode}\n{done.stdout}{done.stderr}"

    def right(self) -> None:
        self.cluster.converged("--only", STAGES)

    def kept(self) -> str:
        """Return what set-up must not touch: its container, and every file of ours, docker's and of modules."""
        files = (
            "/etc/taco-launch /etc/docker /etc/systemd/system /etc/modules-load.d /etc/modprobe.d /var/lib/taco-launch"
        )
        return self.sh(
            f"docker inspect --format '{{{{.Id}}}} {{{{json .Config.Labels}}}}' {self.box}; find {files} -type f "
            "2>/dev/null | sort | xargs md5sum; command -v nvidia-ctk"
        )

    def refused(self, *told: str) -> None:
        """See that --check and --yes say the same of this host, with exit code 5, and that nothing was changed."""
        before = self.kept()
        for word in ("--check", "--yes"):
            done = self.setup(word)
            read = " ".join(done.stderr.split())
            assert done.returncode == 5, (done.stdout, read)
            for each in told:
                assert each in read
            # first of all, and no stage was planned
            assert read.startswith("error: gpu1: "), read
            assert "gpu1: + " not in done.stdout
        assert self.kept() == before

    def restart(self) -> None:
        """Reboot; the engine beside waits twice as long with each boot that comes within ten seconds, so they are few."""
        self.reboot("docker systemd-modules-load simulated-hardware")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadyHost]:
    words = ("--hosts", "1", "--gpus", "a100x8")
    with made("ready", tmp_path_factory.mktemp("state"), *words, image=Image.SMALL) as lab:
        yield ReadyHost(lab.cluster, tmp_path_factory.mktemp("faults"))


def test_set_up_itself_takes_no_gpus_from_the_container(host: ReadyHost) -> None:
    host.sh(f"mkdir -p /etc/docker; echo '{CGROUPS}' >/etc/docker/daemon.json")
    host.set(reload_loses_gpus="yes")
    done = host.setup("--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.sh("docker info --format '{{.CgroupDriver}}'") == "systemd"
    assert host.has_gpus()
    host.sh(f"echo '# by hand' >>/etc/systemd/system/{host.box}.service")
    done = host.setup("--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the container restarts, as it would lose its GPUs when systemd reads the unit" in done.stdout
    assert host.has_gpus()
    host.right()


@pytest.mark.nightly
def test_a_changed_unit_is_read_once_that_harms_nobody(host: ReadyHost) -> None:
    unit, jobs = f"/etc/systemd/system/{host.box}.service", f"/var/lib/taco-launch/containers/{host.lab.name}/jobs"
    other = "docker exec by-hook nvidia-smi -L"
    image = host.sh(f"docker inspect --format '{{{{.Image}}}}' {host.box}")
    by_hook = "--runtime=nvidia --env=NVIDIA_VISIBLE_DEVICES=all"
    host.sh(f"docker run --detach --rm --name by-hook {by_hook} --entrypoint sleep {image} 600")
    host.sh(f"echo '# mine' >>{unit}; mkdir -p {jobs}/train")
    host.sh(f"flock -o {jobs}/train/lock sleep 60 >/dev/null 2>&1 </dev/null & echo $! >/run/train.pid")
    for said in (
        f"job train runs in {host.box}\n",  # before the first change
        f"the change of {host.box}.service has systemd read its units again, which takes the GPUs from by-hook",
    ):
        done = host.setup("--yes")
        assert (done.returncode, said in done.stderr) == (5, True), done.stderr
        assert host.has_gpus()
        assert host.sh(other).count("UUID") == GPUS
        assert host.sh(f"tail -n 1 {unit}") == "# mine", "it is still to be done"
        host.sh(f"[ ! -e /run/train.pid ] || kill $(cat /run/train.pid); rm -rf /run/train.pid {jobs}/train")
    host.sh("docker kill by-hook")
    done = host.setup("--yes")
    assert done.returncode == 0, done.stderr
    assert host.has_gpus()
    host.right()


@pytest.mark.nightly
def test_what_starts_at_boot_is_read_from_files(host: ReadyHost) -> None:
    """Systemd, which has not read its units again, says what was so before."""
    host.sh(f"SYSTEMCTL_SKIP_SYSV=1 systemctl disable --no-reload {host.box} docker")
    assert host.setup("--check").returncode == 3
    done = host.setup("--yes")
    assert done.returncode == 0, done.stderr
    assert host.sh(f"systemctl is-enabled {host.box} docker") == "enabled\nenabled"
    assert host.has_gpus()
    host.right()


def test_gpus_that_a_reload_took_are_told_and_come_back_by_what_is_said(host: ReadyHost) -> None:
    host.sh("systemctl daemon-reload")
    done = host.setup("--check")
    assert done.returncode == 5
    assert "error: gpu1 gives its container no GPUs: Failed to initialize NVML: Unknown Error" in done.stderr
    assert "as happens when systemd is reloaded on the host (daemon-reload)" in done.stderr
    hint = next(line for line in done.stderr.splitlines() if line.startswith("hint: "))
    before, _, after = hint.partition("when no job runs: ")
    typed, _, rest = after.partition("; ")
    assert before == "hint: on gpu1, "
    assert rest.startswith(
        "then run this command again. To keep the GPUs, which each reload removes again, set in the inventory docker: "
    )
    assert rest.endswith(f"; then run taco-launch -i lab:{host.lab.name} setup --disrupt docker")
    host.sh(typed)
    eventually(host.has_gpus, 30, "the container's GPUs")
    host.right()


@pytest.mark.nightly
def test_one_peer_memory_module_in_the_place_of_the_other_and_back(host: ReadyHost) -> None:
    modules = "lsmod | awk '/^(nvidia_peermem|nv_peer_mem) / { print $1 }'; "
    state = f"{modules} systemctl is-enabled nv_peer_mem.service 2>/dev/null || :"
    assert host.sh(state) == "nvidia_peermem"
    said = host.other_peermem("nv_peer_mem", "--yes")
    assert said.startswith("exit 5")
    assert f"set-up does not unload it while jobs may be running: container {host.box} runs" in said
    said = host.other_peermem("nv_peer_mem", "--yes", "--disrupt", "host")
    assert f"has systemd read its units again, which takes the GPUs from {host.box}" in said
    assert f"hint: when no job runs there: systemctl stop {host.box}; then run this again" in " ".join(said.split())
    assert host.sh(state) == "nvidia_peermem", "what was there before stays"
    host.sh(f"systemctl stop {host.box}")
    said = host.other_peermem("nv_peer_mem", "--yes")
    assert said.startswith("exit 0"), said
    assert host.sh(state) == "nv_peer_mem\nenabled"
    host.restart()
    assert host.sh(state) == "nv_peer_mem\nenabled"
    for use in ("nv_peer_mem", "auto"):  # what is loaded and works stays
        assert "nothing to do" in host.other_peermem(use, "--check")
    host.sh(f"systemctl stop {host.box}")
    said = host.other_peermem("nvidia_peermem", "--yes")
    assert said.startswith("exit 0"), said
    assert host.sh(state) == "nvidia_peermem\ndisabled"
    host.restart()
    assert host.sh(state) == "nvidia_peermem\ndisabled"
    eventually(host.has_gpus, 30, "the container's GPUs")
    host.right()


def test_a_gpu_that_is_gone_is_told_and_its_container_gets_no_smaller(host: ReadyHost) -> None:
    host.before.write_text(host.cluster("facts", "--json").stdout)
    before = host.kept()
    host.sh("simulated-hardware set gpu/3/state gone")
    host.restart()
    assert host.sh("nvidia-smi -L | wc -l") == str(GPUS - 1)
    gone = f"{host.box}: GPU 0000:34:00.0 is gone since the last setup (the container was created with 8, and 7 are present now)"
    host.refused(f"error: gpu1: container: {gone} hint: on the host: dmesg -T | grep ")
    done = host.cluster("facts", "--compare", str(host.before), "--only", "gpu,topology")
    assert [line.partition(":")[2].partition(": {")[0] for line in done.stdout.splitlines()] == [
        " gpu.gpus[0000:34:00.0]", " gpu.board.gpus: - 0000:34:00.0", " topology.gpus: - GPU7",
    ]  # fmt: skip
    host.sh("simulated-hardware set gpu/3/state lost")
    host.refused("error: gpu1: hardware: Unable to determine the device handle for GPU 0000:34:00.0: GPU is lost.")
    host.sh("simulated-hardware set gpu/3/state present")
    eventually(host.has_gpus, 30, "the container's GPUs")
    host.right()
    assert host.kept() == before


def test_a_driver_that_a_reboot_does_not_bring_back(host: ReadyHost) -> None:
    host.set(driver="none")
    host.restart()
    host.refused(
        "error: gpu1: hardware: 8 NVIDIA GPUs are on PCI, and no driver is installed hint: install the NVIDIA driver"
    )
    host.set(driver=DRIVER, secure_boot="on", driver_signed="no")
    host.restart()
    host.refused(
        f"error: gpu1: hardware: the NVIDIA driver {DRIVER} is installed but not loaded, and Secure Boot is on: it ",
        "hint: on the host: modprobe nvidia; dmesg | grep ",
        "mokutil --import",
    )
    host.set(secure_boot="off", driver_signed="yes")
    host.restart()
    eventually(host.has_gpus, 30, "the container's GPUs")
    host.right()
    done = host.cluster("facts", "--compare", str(host.before))
    assert (done.returncode, done.stdout) == (0, ""), "reboots have changed nothing"


@pytest.mark.nightly
def test_a_driver_that_is_not_the_one_that_runs(host: ReadyHost) -> None:
    host.set(driver="535.86.10", fabricmanager="535.86.10")
    mismatch = f"Driver/library version mismatch: the kernel runs NVIDIA driver {DRIVER}, and 535.86.10 is installed"
    host.refused(f"error: gpu1: hardware: {mismatch} hint: reboot the host when no job runs there")
    host.restart()
    eventually(host.has_gpus, 30, "the container's GPUs")
    host.right()


def test_teardown_leaves_nothing_that_loads_a_module_at_boot(host: ReadyHost) -> None:
    # as a host that had the other module once is left by set-up
    unit = "/etc/systemd/system/nv_peer_mem.service"
    lines = "[Service]\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target\\n"
    host.sh(f"systemctl is-enabled nv_peer_mem.service >/dev/null 2>&1 || printf '{lines}' >{unit}")
    host.sh(f"systemctl enable --no-reload nv_peer_mem.service 2>/dev/null; : >{paths.NV_PEER_MEM}")
    done = host.cluster("teardown", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "keep nv_peer_mem.service from loading a module at boot" in done.stdout
    assert host.sh("systemctl is-enabled nv_peer_mem.service 2>/dev/null || :") == "disabled"
    assert host.sh(f"ls {paths.PEERMEM} {paths.NV_PEER_MEM} 2>/dev/null || :") == ""
    assert host.sh("lsmod | grep -c '^nvidia_peermem '") == "1", "a loaded module stays loaded until a reboot"
    assert json.loads(host.sh("cat /etc/docker/daemon.json")) == json.loads(CGROUPS), "what was there before set-up"
