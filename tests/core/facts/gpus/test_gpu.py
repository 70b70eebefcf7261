"""GPUs from the probe's answer, and what is left of nvidia-smi's text when it is cut."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.facts.gpus.gpu import (
    ListedGpus,
    QueriedGpus,
    parse_gpu,
    pci_address,
    read_list,
    read_processes,
    read_query,
)
from taco_launch.core.facts.gpus.smi_xml import read_xml
from taco_launch.core.facts.text.sections import read as sections
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.hardware import Gpus
from tests.support.host_facts import known
from tests.support.probe_answers import answer

CASES = Path(__file__).parents[1] / "cases" / "captured"
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
    return known(parse_gpu(answer(**told)))


UUIDS = [f"GPU-1b3fd4a2-0c11-4f5e-8a77-00000000000{n}" for n in range(3)]
LIST = "".join(f"GPU {n}: NVIDIA A100-SXM4-40GB (UUID: {UUIDS[n]})\n" for n in (0, 1))
PCI = (
    "gpu\t0000:1b:00.0\t/sys/devices/pci0000:17/0000:17:00.0/0000:1b:00.0\t1\t16.0 GT/s PCIe\t16.0 GT/s PCIe\t16\t16\n"
)


def test_a_whole_answer() -> None:
    found = whole(topology_pci=PCI)
    assert [(gpu.index, gpu.uuid, gpu.pci, gpu.numa) for gpu in known(found.gpus)] == [
        (0, UUIDS[0], "0000:1b:00.0", 1),
        (1, UUIDS[1], "0000:1c:00.0", Unknown("0000:1c:00.0 is not in the list of PCI devices")),
    ]
    driver = found.driver
    assert (driver.loaded, driver.installed, driver.cuda, driver.open) == ("545.23.08", "545.23.08", "12.2", True)
    assert driver.fabric_manager == "active"
    assert len(known(found.processes)) == 2
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
    assert [(gpu.index, gpu.uuid) for gpu in known(found.gpus)] == [(0, UUIDS[0])]
    assert known(found.gpus)[0].memory == Unknown(lost.strip())
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
    found = known(parse_gpu(sections(text.encode())))
    assert [gpu.uuid for gpu in known(found.gpus)] == UUIDS[:2]
    assert isinstance(known(found.gpus)[0].memory, Unknown)


def test_an_answer_that_was_cut_before_anything_was_told() -> None:
    text = "N probe 1 1.0\nN begin gpu.driver_loaded\n\nN end gpu.driver_loaded 127\nN err cat: not found\nN begin gpu.list\n"
    assert parse_gpu(sections(text.encode())) == Unknown("the probe's answer was cut off within it")


def test_the_list_and_the_query_have_to_tell_of_the_same_gpus() -> None:
    other = LIST.replace(UUIDS[1], UUIDS[2])
    found = whole(gpu_list=other).gpus
    assert isinstance(found, Unknown)
    assert UUIDS[2] in found.reason
    assert whole(gpu_list=LIST.split("\n")[0] + "\n").gpus == Unknown(
        "--query-gpu and -L list different GPUs (2 and 1)"
    )


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
    full = known(read_query(text))
    for end in range(len(text)):
        found = read_query(text[:end])
        if isinstance(found, QueriedGpus):
            for one, other in zip(known(found.gpus), known(full.gpus), strict=False):
                parts = [(getattr(one, field), getattr(other, field)) for field in vars(other)]
                assert all(mine == theirs or isinstance(mine, Unknown) for mine, theirs in parts), text[:end][-40:]
            assert isinstance(found.driver, Unknown) or found.driver == full.driver


@pytest.mark.parametrize("name", ["list_mig", "list_lost"])
def test_a_cut_list_holds_whole_lines_only(name: str) -> None:
    text = case(name)
    full = known(read_list(text))
    for end in range(len(text)):
        found = read_list(text[:end])
        if isinstance(found, ListedGpus):
            assert found.gpus == full.gpus[: len(found.gpus)]
            assert found.instances == full.instances[: len(found.instances)]


@given(st.text(alphabet='GPU 0:MIG-(,)[]/N\tname\nindex, \x1b[4m<?xml>&;"', max_size=200))
def test_no_text_raises(text: str) -> None:
    for read in (read_query, read_list, read_processes, read_xml):
        read(text)
        read("index, uuid, name\n" + text)
        read('<?xml version="1.0"?><nvidia_smi_log>' + text + "</nvidia_smi_log>")


# --- what verdicts are made of ----------------------------------------------------------------------------------------

HEALTH = (
    "index, uuid, name, pci.bus_id, memory.total [MiB], memory.used [MiB], driver_version, mig.mode.current, "
    "{reasons}, persistence_mode, ecc.mode.current, temperature.gpu, pcie.link.width.current, pcie.link.width.max\n"
    f"0, {UUIDS[0]}, NVIDIA A100-SXM4-40GB, 00000000:1B:00.0, 40536 MiB, 0 MiB, 545.23.08, Disabled, "
    "0x0000000000000045, Enabled, Enabled, 41, 8, 16\n"
    f"1, {UUIDS[1]}, NVIDIA A100-SXM4-40GB, 00000000:1C:00.0, 40536 MiB, 0 MiB, 545.23.08, Disabled, "
    "0x0000000000000001, Disabled, [N/A], [N/A], 16, 16\n"
)
REMAPPED = f"gpu_uuid, remapped_rows.pending, remapped_rows.failure\n{UUIDS[0]}, No, 0\n{UUIDS[1]}, 1, Yes\n"


@pytest.mark.parametrize("reasons", ["clocks_throttle_reasons.active", "clocks_event_reasons.active"])
def test_what_verdicts_are_made_of(reasons: str) -> None:
    found = known(whole(gpu_query=HEALTH.replace("{reasons}", reasons), gpu_remapped=REMAPPED).gpus)
    one, two = found
    assert (one.persistence, one.ecc, one.temperature, one.width, one.max_width) == (True, True, 41, 8, 16)
    assert (one.slowdowns, two.slowdowns) == (("SwPowerCap", "HwThermalSlowdown"), ())
    assert (two.persistence, two.ecc, two.temperature) == (False, Absent("[N/A]"), Absent("[N/A]"))
    assert [(gpu.remap_pending, gpu.remap_failed) for gpu in found] == [(False, False), (True, True)]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (("Option is not recognized\n", 2, ""), Absent("this driver does not report remapped rows")),
        (("", 124, ""), Unknown("gpu.remapped: no answer in time")),
        (REMAPPED.replace("No", "Perhaps"), Unknown("not asked: --query-remapped-rows does not say")),
    ],
)
def test_rows_that_are_not_told_of_are_not_fine(said: Any, found: object) -> None:
    gpus = known(whole(gpu_remapped=said).gpus)
    assert gpus[0].remap_pending == found


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (("\n\n\tFabric Manager version is : 535.161.08\n", 0, ""), "535.161.08"),
        (("", 0, "Fabric Manager version is : 450.102.04"), "450.102.04"),
        (("", 127, "nv-fabricmanager: not found"), Absent("nv-fabricmanager: not found")),
        (("usage\n", 0, ""), Unknown("nv-fabricmanager names no version")),
    ],
)
def test_the_fabric_managers_version(said: tuple[str, int, str], found: object) -> None:
    assert whole(gpu_fabric_version=said).driver.fabric_version == found


def test_the_xml_tells_the_same() -> None:
    text = """<?xml version="1.0"?><nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="00000000:1B:00.0">
    <persistence_mode>Disabled</persistence_mode><ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
    <remapped_rows><remapped_row_pending>Yes</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
    </remapped_rows><temperature><gpu_temp>41 C</gpu_temp></temperature><pci><pci_gpu_link_info><link_widths>
    <max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths></pci_gpu_link_info>
    </pci><clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
    <clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>
    <clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap></clocks_event_reasons>
    </gpu></nvidia_smi_log>"""
    found = known(read_xml(text))
    (gpu,) = known(found.gpus)
    assert (gpu.persistence, gpu.ecc, gpu.remap_pending, gpu.remap_failed) == (False, True, True, False)
    assert (gpu.temperature, gpu.width, gpu.max_width, gpu.slowdowns) == (41, 8, 16, ("HwSlowdown",))
