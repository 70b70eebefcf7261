"""The peermem stage on a simulated GPU host: loaded now and after a reboot, and every failure that is known, provoked."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from taco_launch.core.model.host import paths
from tests.conftest import eventually
from tests.lab.rig import Done, GpuHost, made

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

OFED = "MLNX_OFED_LINUX-5.4-1.0.3.0"
_BARE = f"""
rmmod nvidia_peermem nv_peer_mem 2>/dev/null
rm -f {paths.PEERMEM} {paths.NV_PEER_MEM} /etc/modules-load.d/mine.conf /etc/rc.local
set -e
simulated-hardware set nv-peer-mem none
for fact in 'driver-ofed {OFED}' 'ofed {OFED}' 'secure-boot off' 'driver-signed yes' 'peermem-users 0'; do
  simulated-hardware set $fact
done
"""


@dataclass(frozen=True)
class RdmaHost(GpuHost):
    """A host of a lab with GPUs, an RDMA bond, and an inventory that has a container."""

    def setup(self, *words: str, use: str = "auto", **peermem: str) -> Done:
        return self.by(peermem={"use": use, **peermem}).setup("--only", "peermem", *(words or ("--yes",)))

    def refused(self, *words: str, use: str = "auto") -> str:
        """Set up what cannot be; give what people read, on one line."""
        done = self.setup(*words, use=use)
        assert done.returncode != 0, done.stdout
        assert "Traceback" not in done.stderr
        return " ".join(done.stderr.split())

    def right(self, use: str = "auto") -> bool:
        check = self.setup("--check", use=use)
        print(check.stdout, check.stderr)  # shown where a test fails
        return check.returncode == 0

    @property
    def loaded(self) -> list[str]:
        return self.sh("lsmod | awk '/^(nvidia_peermem|nv_peer_mem) / { print $1 }'").split()

    def restart(self) -> None:
        """Reboot, and wait until all units of the boot are done."""
        self.lab.reboot("gpu1")
        over = "systemctl is-system-running --wait >/dev/null; systemctl list-jobs --no-legend"
        eventually(lambda: "running" not in self.sh(over), 30, "the units of the boot")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RdmaHost]:
    with made("peermem", tmp_path_factory.mktemp("state"), "--hosts", "1", "--gpus", "a100x8") as lab:
        yield RdmaHost(lab.cluster, tmp_path_factory.mktemp("peermem"))


@pytest.fixture
def gpu(machine: RdmaHost) -> RdmaHost:
    machine.sh(_BARE)
    return machine


def test_it_is_loaded_now_and_after_a_reboot_and_taken_back(gpu: RdmaHost) -> None:
    dry = gpu.setup("--dry-run", "--diff")
    assert "load nvidia_peermem (included in NVIDIA driver 470.82.01; " in dry.stdout
    assert f"+++ {paths.PEERMEM}\n" in dry.stdout
    assert (gpu.loaded, gpu.setup("--check").returncode) == ([], 3)
    assert gpu.setup().returncode == 0
    assert gpu.loaded == ["nvidia_peermem"]
    assert gpu.right()
    gpu.restart()
    assert gpu.loaded == ["nvidia_peermem"]
    assert gpu.right()
    gpu.sh("rmmod nvidia_peermem")
    assert gpu.setup("--check").returncode == 3, "what returns at a boot, and does not exist now, is not right"
    assert gpu.by()("teardown", "--yes").returncode == 0
    gpu.sh(f"[ ! -e {paths.PEERMEM} ]")


@pytest.mark.parametrize(
    ("facts", "words", "told"),
    [
        (
            "driver-ofed none",
            "Invalid argument",
            "the NVIDIA driver was built without the RDMA driver's symbols, or the RDMA driver",
        ),
        (
            "driver-ofed MLNX_OFED_LINUX-5.8-2.0.3.0",
            "Unknown symbol in module, or unknown parameter (see dmesg) (the kernel: ",
            "was built against another RDMA driver than the one that is loaded. hint: Build it again: dkms status names it",
        ),
        (
            "secure-boot on; simulated-hardware set driver-signed no",
            "Required key not available",
            "Secure Boot of gpu1 refuses the kernel module nvidia_peermem: the module is not signed",
        ),
    ],
)
def test_why_it_cannot_be_loaded(gpu: RdmaHost, facts: str, words: str, told: str) -> None:
    gpu.sh(f"simulated-hardware set {facts}")
    read = gpu.refused()
    assert f"error: gpu1: load nvidia_peermem: modprobe: ERROR: could not insert 'nvidia_peermem': {words}" in read
    assert told in read
    assert gpu.loaded == []
    gpu.sh(f"[ ! -e {paths.PEERMEM} ]")  # nor is it tried at every boot


def test_what_people_did_by_hand_is_left_as_it_is(gpu: RdmaHost) -> None:
    gpu.sh("modprobe nvidia-peermem; echo nvidia-peermem >/etc/modules-load.d/mine.conf")
    assert gpu.right()
    gpu.sh(f"simulated-hardware set nv-peer-mem-ofed {OFED}; simulated-hardware set nv-peer-mem 1.0-9")
    gpu.sh("rmmod nvidia_peermem; rm /etc/modules-load.d/mine.conf; modprobe nv_peer_mem")
    gpu.sh("printf '#!/bin/sh\\ninsmod /root/nv_peer_memory/nv_peer_mem.ko\\n' >/etc/rc.local; chmod 755 /etc/rc.local")
    assert gpu.right(), "the old guide's way works, and stays"
    gpu.sh("chmod 644 /etc/rc.local")  # so that nothing runs it any more
    assert gpu.setup("--check").returncode == 3


def test_one_takes_the_place_of_the_other_but_not_while_it_is_in_use(gpu: RdmaHost) -> None:
    gpu.sh(f"simulated-hardware set nv-peer-mem-ofed {OFED}; simulated-hardware set nv-peer-mem 1.3-0")
    gpu.sh("modprobe nv_peer_mem; simulated-hardware set peermem-users 2")
    read = gpu.refused(use="nvidia_peermem")
    assert (
        "error: gpu1: load nvidia_peermem in place of nv_peer_mem: rmmod: ERROR: Module nv_peer_mem is in use: " in read
    )
    assert "cannot be unloaded on gpu1: GPU memory is registered with it" in read
    assert "or reboot gpu1, then run this command again, because only that changes what is loaded at boot" in read
    assert gpu.loaded == ["nv_peer_mem"]
    gpu.sh("simulated-hardware set peermem-users 0; simulated-hardware set driver-ofed none")
    assert "Invalid argument" in gpu.refused(use="nvidia_peermem")
    assert gpu.loaded == ["nv_peer_mem"], "what was there before is put back"
    gpu.sh(f"simulated-hardware set driver-ofed {OFED}; mkdir -p /var/lib/taco-launch/jobs/train")
    gpu.sh(
        "flock -o /var/lib/taco-launch/jobs/train/lock sleep 60 >/dev/null 2>&1 </dev/null & echo $! >/run/train.pid"
    )
    assert "job train runs in a container of this host" in gpu.refused(
        "--yes", "--disrupt", "host", use="nvidia_peermem"
    )
    gpu.sh("kill $(cat /run/train.pid); rm -r /var/lib/taco-launch/jobs")
    assert gpu.setup(use="nvidia_peermem").returncode == 0
    assert (gpu.loaded, gpu.right("nvidia_peermem")) == (["nvidia_peermem"], True)


@pytest.mark.nightly
def test_an_old_driver_gets_a_module_that_is_built_for_it(gpu: RdmaHost) -> None:
    hide, show = (
        "mv /etc/apt/sources.list.d/lab-kernel.list /root/",
        "mv /root/lab-kernel.list /etc/apt/sources.list.d/",
    )
    gpu.sh(f"{hide}; simulated-hardware set driver 450.80.02; simulated-hardware set ofed MLNX_OFED_LINUX-4.9-2.2.4.0")
    gpu.sh("simulated-hardware set fabricmanager 450.80.02")  # of another version it would be a fault of its own
    gpu.sh("simulated-hardware boot")
    read = gpu.refused()
    assert "Unable to locate package linux-headers-" in read
    assert "which runs on gpu1, are missing: dkms builds no module without them. hint: Install linux-headers-" in read
    gpu.sh(show)
    assert gpu.setup().returncode == 0
    assert gpu.loaded == ["nv_peer_mem"]
    assert gpu.sh("dpkg-query -W -f '${Version}' nvidia-peer-memory-dkms") == "1.1-0", "the last for OFED 4.9"
    gpu.sh(f"[ ! -e {paths.PEERMEM} ]")  # the package's own service loads it
    assert gpu.right()
    gpu.restart()
    assert gpu.loaded == ["nv_peer_mem"]
    assert gpu.right()


def test_packages_of_the_controller_on_a_host_that_reaches_no_source(gpu: RdmaHost, tmp_path: Path) -> None:
    purge = "dpkg --purge nvidia-peer-memory-dkms nvidia-peer-memory linux-headers-$(uname -r) >/dev/null 2>&1"
    old = "simulated-hardware set driver 450.80.02; simulated-hardware set fabricmanager 450.80.02; simulated-hardware boot"
    gpu.sh(f"{old}; {purge}; apt-get -q update >/dev/null 2>&1; :")
    gpu.sh(
        "mkdir -p /root/debs; cd /root/debs; apt-get -q download nvidia-peer-memory nvidia-peer-memory-dkms >/dev/null"
    )
    gpu.sh("cd /root/debs; apt-get -q download linux-headers-$(uname -r) >/dev/null")
    for name in gpu.sh("ls /root/debs").split():
        (tmp_path / name).write_bytes(base64.b64decode(gpu.sh(f"base64 /root/debs/{name}")))
    gpu.sh("rm -rf /root/debs /etc/apt/sources.list.d/lab-*.list /var/lib/apt/lists/* /var/cache/apt/archives/*.deb")
    done = gpu.setup(packages=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "install 3 package files from the controller, to build nv_peer_mem" in done.stdout
    assert (gpu.loaded, gpu.sh("dpkg-query -W -f '${Version}' nvidia-peer-memory")) == (["nv_peer_mem"], "1.3-0")
