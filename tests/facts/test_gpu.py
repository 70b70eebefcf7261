"""GPUs from the probe's answer, and what is left of nvidia-smi's text when it is cut."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.facts.gpu import Listed, Queried, parse_gpu, pci_address, read_list, read_processes, read_query
from taco_launch.facts.sections import read as sections
from taco_launch.facts.smi_xml import read_xml
from taco_launch.model.found import Absent, Unknown
from taco_launch.model.hardware import Gpus
from tests.facts.answers import answer

CASES = Path(__file__).parent / "cases" / "captured"
NOT_THERE = ("", 127, "nvidia-smi: not found")
NO_MODULE = ("", 1, "modinfo: ERROR: Module nvidia not found.")
NO_DRIVER = ("", 1, "cat: /proc/driver/nvidia/version: No such file or directory")
FAILED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n"


def case(name: str) -> str:
    return (CASES / f"{name}.txt").read_text("utf-8")


def whole(**other: Any) -> Gpus:
    told: dict[str, Any] = {
        "gpu_driver_loaded": case("driver"),
        "gpu_driver_installed": "545.23.08\n",
        "gpu_license": "Dual MIT/GPL\n",
        "gpu_fabric_manager": "LoadState=loaded\nActiveState=active\n",
        "gpu_list": LIST,
        "gpu_query": case("query_two_gpus"),
        "gpu_processes": case("apps"),
        "gpu_smi": case("smi_table"),
        **other,
    }
    found = parse_gpu(answer(**told))
    assert isinstance(found, Gpus)
    return found


UUIDS = [f"GPU-1b3fd4a2-0c11-4f5e-8a77-00000000000{n}" for n in range(3)]
LIST = "".join(f"GPU {n}: NVIDIA A100-SXM4-40GB (UUID: {UUIDS[n]})\n" for n in (0, 1))
PCI = (
    "gpu\t0000:1b:00.0\t/sys/devices/pci0000:17/0000:17:00.0/0000:1b:00.0\t1\t16.0 GT/s PCIe\t16.0 GT/s PCIe\t16\t16\n"
)


def test_a_whole_answer() -> None:
    found = whole(topology_pci=PCI)
    assert isinstance(found.gpus, tuple)
    assert [(gpu.index, gpu.uuid, gpu.pci, gpu.numa) for gpu in found.gpus] == [
        (0, UUIDS[0], "0000:1b:00.0", 1),
        (1, UUIDS[1], "0000:1c:00.0", Unknown("not among the PCI devices: 0000:1c:00.0")),
    ]
    driver = found.driver
    assert (driver.loaded, driver.installed, driver.cuda, driver.open) == ("545.23.08", "545.23.08", "12.2", True)
    assert driver.fabric_manager == "active"
    assert isinstance(found.processes, tuple)
    assert len(found.processes) == 2
    assert (found.mig_instances, found.lost) == ((), ())


def test_a_host_without_any_gpu_software() -> None:
    missing = {f"gpu_{name}": NOT_THERE for name in ("list", "query", "processes", "smi")}
    found = parse_gpu(
        answer(gpu_driver_loaded=NO_DRIVER, gpu_driver_installed=NO_MODULE, gpu_license=NO_MODULE, **missing)
    )
    assert found == Absent("neither nvidia-smi nor a driver is there")


def test_a_driver_that_is_installed_and_not_loaded() -> None:
    failing = (FAILED, 9, "")
    found = whole(
        gpu_driver_loaded=NO_DRIVER, gpu_list=failing, gpu_query=failing, gpu_processes=failing, gpu_smi=failing
    )
    assert isinstance(found.driver.loaded, Absent)
    assert found.driver.installed == "545.23.08"
    assert found.driver.open is True
    for part in (found.gpus, found.processes, found.driver.cuda):
        assert part == Unknown(FAILED.strip())


def test_a_driver_that_was_changed_under_its_programs() -> None:
    said = ("Failed to initialize NVML: Driver/library version mismatch\n", 18, "")
    found = whole(gpu_query=said, gpu_list=said)
    assert found.gpus == Unknown("Failed to initialize NVML: Driver/library version mismatch")
    assert found.driver.loaded == "545.23.08"


def test_a_gpu_that_fell_off_the_bus_is_told_and_the_others_stay() -> None:
    lost = "Unable to determine the device handle for GPU 0000:1C:00.0: Unknown Error\n"
    found = whole(gpu_list=(LIST.replace(LIST.split("\n")[1] + "\n", lost), 0, ""), gpu_query=(lost, 15, ""))
    assert isinstance(found.gpus, tuple)
    assert [(gpu.index, gpu.uuid) for gpu in found.gpus] == [(0, UUIDS[0])]
    assert found.gpus[0].memory == Unknown(lost.strip())
    assert found.lost == (lost.strip(),)


def test_no_devices() -> None:
    none = ("No devices were found\n", 6, "")
    assert whole(gpu_list=none, gpu_query=none).gpus == Unknown("No devices were found")


def test_a_tool_that_hangs_says_nothing_of_gpus() -> None:
    found = whole(gpu_query=("", 124, ""), gpu_list=(LIST[:60], 124, ""))
    assert found.gpus == Unknown("gpu.query: no answer in time")


def test_an_answer_that_was_cut() -> None:
    text = (
        f"N probe 1 1.0\nN begin gpu.list\n{LIST}\nN end gpu.list 0\nN begin gpu.query\n{case('query_two_gpus')[:-30]}"
    )
    found = parse_gpu(sections(text.encode()))
    assert isinstance(found, Gpus)
    assert isinstance(found.gpus, tuple)
    assert [gpu.uuid for gpu in found.gpus] == UUIDS[:2]
    assert isinstance(found.gpus[0].memory, Unknown)


def test_an_answer_that_was_cut_before_anything_was_told() -> None:
    text = "N probe 1 1.0\nN begin gpu.driver_loaded\n\nN end gpu.driver_loaded 127\nN err cat: not found\nN begin gpu.list\n"
    assert parse_gpu(sections(text.encode())) == Unknown("the probe's answer was cut off within it")


def test_the_list_and_the_query_have_to_tell_of_the_same_gpus() -> None:
    other = LIST.replace(UUIDS[1], UUIDS[2])
    found = whole(gpu_list=other).gpus
    assert isinstance(found, Unknown)
    assert UUIDS[2] in found.reason
    assert whole(gpu_list=LIST.split("\n")[0] + "\n").gpus == Unknown("--query-gpu gives 2 GPUs and -L 1, or others")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (("LoadState=loaded\nActiveState=inactive\n", 0, ""), "inactive"),
        (("LoadState=not-found\nActiveState=inactive\n", 0, ""), Absent("there is no unit nvidia-fabricmanager")),
        (("", 127, "systemctl: not found"), Absent("systemctl: not found")),
        (("", 1, "Failed to connect to bus"), Unknown("Failed to connect to bus (exit code 1)")),
        (("ActiveState=aktiv\n", 0, ""), Unknown("systemctl show nvidia-fabricmanager: 'ActiveState=aktiv'")),
    ],
)
def test_the_fabric_manager(said: tuple[str, int, str], found: object) -> None:
    assert whole(gpu_fabric_manager=said).driver.fabric_manager == found


@pytest.mark.parametrize(
    ("license_", "found"),
    [("NVIDIA\n", False), ("Dual MIT/GPL\n", True), ("GPL v2\n", Unknown("modinfo -F license nvidia: 'GPL v2'"))],
)
def test_the_license_tells_of_open_modules_where_none_is_loaded(license_: str, found: object) -> None:
    assert whole(gpu_driver_loaded=NO_DRIVER, gpu_license=license_).driver.open == found


def test_addresses_are_written_as_sysfs_does() -> None:
    assert pci_address("00000000:1B:00.0") == "0000:1b:00.0"
    assert pci_address("00010000:00:1E.0") == "10000:00:1e.0"
    assert isinstance(pci_address("1B:00.0"), Unknown)


@pytest.mark.parametrize("name", ["query_two_gpus", "query_commas_in_names", "query_nounits", "query_not_supported"])
def test_a_cut_query_gives_the_same_values_or_none(name: str) -> None:
    text = case(name)
    full = read_query(text)
    assert isinstance(full, Queried)
    assert isinstance(full.gpus, tuple)
    for end in range(len(text)):
        found = read_query(text[:end])
        if isinstance(found, Queried):
            assert isinstance(found.gpus, tuple)
            for one, other in zip(found.gpus, full.gpus, strict=False):
                parts = [(getattr(one, field), getattr(other, field)) for field in vars(other)]
                assert all(mine == theirs or isinstance(mine, Unknown) for mine, theirs in parts), text[:end][-40:]
            assert isinstance(found.driver, Unknown) or found.driver == full.driver


@pytest.mark.parametrize("name", ["list_mig", "list_lost"])
def test_a_cut_list_holds_whole_lines_only(name: str) -> None:
    text = case(name)
    full = read_list(text)
    assert isinstance(full, Listed)
    for end in range(len(text)):
        found = read_list(text[:end])
        if isinstance(found, Listed):
            assert found.gpus == full.gpus[: len(found.gpus)]
            assert found.instances == full.instances[: len(found.instances)]


@given(st.text(alphabet='GPU 0:MIG-(,)[]/N\tname\nindex, \x1b[4m<?xml>&;"', max_size=200))
def test_no_text_raises(text: str) -> None:
    for read in (read_query, read_list, read_processes, read_xml):
        read(text)
        read("index, uuid, name\n" + text)
        read('<?xml version="1.0"?><nvidia_smi_log>' + text + "</nvidia_smi_log>")
