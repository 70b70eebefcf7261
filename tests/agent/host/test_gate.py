"""What a host looks at before it gives slots, where a policy requests it: disks, lost GPUs, and memory errors of GPUs."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from taco_launch.agent.host import drain
from taco_launch.agent.host.occupancy import Slots
from taco_launch.core.model.host.hosts import Host
from tests.support.slots_here import slots_here
from tests.support.smi import GPUS, Smi

GATED = Host("h", "h", gate=True).slot_words
GIB = 1 << 30


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Simulate disks: by path how much is free of 100 GiB, and flags; others are half free."""
    monkeypatch.setenv("TACO_LAUNCH_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    monkeypatch.setattr("taco_launch.agent.host.drain.DRAIN", str(tmp_path / "drain.json"))
    found: dict[str, tuple[int, int]] = {}

    def statvfs(path: str) -> object:
        free, flags = found.get(Path(path).name, (50 * GIB, 0))
        return SimpleNamespace(f_flag=flags, f_frsize=4096, f_blocks=100 * GIB // 4096, f_bavail=free // 4096)

    monkeypatch.setattr(os, "statvfs", statvfs)
    return found


@pytest.mark.parametrize(
    ("path", "free", "flags", "why"),
    [
        ("state", 2 * GIB, 0, ""),
        ("state", 0, 0, "disk space: {state} has 0 B free of 100.0 GiB (taco-launch check shows what to do)"),
        ("shm", 0, 0, "disk space: /dev/shm has 0 B free of 100.0 GiB (taco-launch check shows what to do)"),
        (
            "tmp",
            50 * GIB,
            os.ST_RDONLY,
            "file systems: read-only: /tmp (there, findmnt -T /tmp shows its mount and dmesg -T why; then: mount -o remount,rw MOUNT)",
        ),
    ],
)
def test_disks(disks: dict[str, tuple[int, int]], tmp_path: Path, path: str, free: int, flags: int, why: str) -> None:
    disks[path] = (free, flags)
    seen = slots_here(2, GATED)
    words = why.format(state=tmp_path / "state")
    full = f"kept back by a check: {words}" if words else ""
    assert {slot.foreign for slot in seen.slots} == {full}
    assert seen.free == (0 if why else 2)
    assert slots_here(2).free == 2, "without a policy nothing is looked at"
    disks.clear()
    assert slots_here(2, GATED).free == 2, "it ends by itself"


def test_a_drain_comes_first(disks: dict[str, tuple[int, int]], tmp_path: Path) -> None:
    disks["state"] = (0, 0)
    (tmp_path / "drain.json").write_text('{"by": "ann@desk", "since": 1.0, "reason": "new cable"}')
    assert {slot.foreign[:19] for slot in slots_here(2, GATED).slots} == {"drained by ann@desk"}


def test_real_disks_of_this_machine_and_a_folder_that_is_missing(tmp_path: Path) -> None:
    assert "read-only" not in drain.kept_back(tmp_path / "missing", "")


@pytest.mark.usefixtures("disks")
def test_a_gpu_with_memory_errors_is_given_to_no_job(smi: Smi) -> None:
    (smi.folder / "errors").write_text(
        "".join(f"{uuid}, {n}\n" for uuid, n in zip(GPUS, (0, 3, "[N/A]", 0), strict=True))
    )
    first, second, *others = slots_here(4, GATED).slots
    assert second.foreign == "kept back by a check: ECC: 3 uncorrectable errors (taco-launch check shows what to do)"
    assert all(slot.is_free for slot in (first, *others))
    assert slots_here(4).free == 4
    assert len([call for call in smi.calls if "ecc" in call]) == 1


@pytest.mark.usefixtures("disks")
def test_a_host_with_a_lost_gpu_gives_none_of_the_others(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = smi.folder / "dev"
    devices.mkdir()
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(4))):
        (devices / name).touch()
    monkeypatch.setattr("taco_launch.agent.host.gpus._DEVICES", devices)
    (smi.folder / "errors").touch()
    assert slots_here(4, GATED).free == 4
    smi.gpus(GPUS[:3])
    host = Slots(smi.folder / "leases", smi.folder / "jobs", "auto", GATED)
    words = f"lost GPUs: nvidia-smi lists 3 of the 4 GPUs that have a device file ({devices}/nvidiaN)"
    told = {slot.foreign for slot in host.read_thoroughly().slots}
    assert told == {f"kept back by a check: {words} (taco-launch check shows what to do)"}
    assert slots_here(3).free == 3, "without a policy nothing is looked at"
    (smi.folder / "nvidia-smi").rename(smi.folder / "smi")
    assert slots_here(3, GATED).free == 3, "an image without nvidia-smi has its GPUs all the same"
    (smi.folder / "smi").rename(smi.folder / "nvidia-smi")
    smi.gpus(GPUS)
    assert [slot.name for slot in host.read_thoroughly().slots if slot.is_free] == list(GPUS), "it ends by itself"
    smi.gpus(GPUS[:3])
    assert slots_here(3, Host("h", "h", gpus="none", gate=True).slot_words).free == 3
