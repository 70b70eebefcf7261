"""Reads `nvidia-smi -q -x`."""

import re
from typing import List, Tuple
from xml.etree import ElementTree as ET

from taco_launch.core.facts.gpus.gpu import pci_address
from taco_launch.core.facts.text.strip_terminal import plain
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, known_value, not_told
from taco_launch.core.model.host.hardware import Driver, Gpu, GpuProcess, Gpus

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_NOT_TOLD = not_told("nvidia-smi -q -x does not say")


def read_xml(text: str) -> Found[Gpus]:
    """Read the whole of `nvidia-smi -q -x`.

    A document that defines entities is refused unread: nvidia-smi defines none, and nested ones can fill the memory.
    """
    text = plain(text)
    begin, end = text.find("<?xml"), text.rfind("</nvidia_smi_log>")
    if begin < 0 or end < 0:
        return Unknown("there is no complete <nvidia_smi_log> document")
    document = text[begin : end + len("</nvidia_smi_log>")]
    if "<!ENTITY" in document or re.search(r"<!DOCTYPE[^>]*\[", document):
        return Unknown("the document defines entities, which nvidia-smi never does")
    try:
        # a declaration of another encoding than the text was read with would be obeyed
        root = ET.fromstring(re.sub(r"<\?xml[^>]*\?>", "", document, count=1))  # noqa: S314 - see above
    except (ET.ParseError, ValueError) as error:
        return Unknown(f"no XML that can be read: {error}")
    nodes = root.findall("gpu")
    attached = _number(_text(root, "attached_gpus"))
    driver = Driver(
        loaded=_text(root, "driver_version"),
        installed=_NOT_TOLD,
        cuda=_text(root, "cuda_version"),
        open=_NOT_TOLD,
        fabric_manager=_NOT_TOLD,
    )
    gpus: Found[Tuple[Gpu, ...]] = tuple(_gpu(index, node) for index, node in enumerate(nodes))
    if attached != len(nodes):
        shown = attached if isinstance(attached, int) else attached.reason
        gpus = Unknown(f"the document has {len(nodes)} GPUs, but attached_gpus is {shown}: some GPUs are not reported")
    processes: List[GpuProcess] = []
    for node in nodes:
        uuid = _text(node, "uuid")
        for process in node.findall("processes/process_info"):
            pid, name, memory = (
                _text(process, "pid"),
                _text(process, "process_name"),
                _size(_text(process, "used_memory")),
            )
            if (
                _text(process, "type") != "G"
                and isinstance(pid, str)
                and re.fullmatch("[0-9]{1,10}", pid)
                and isinstance(uuid, str)
            ):
                processes.append(GpuProcess(uuid, int(pid), known_value(name) or "", known_value(memory)))
    actions = [(index, _perhaps(node, "gpu_recovery_action")) for index, node in enumerate(nodes)]
    lost = tuple(
        f"GPU {index} requires: {action}" for index, action in actions if isinstance(action, str) and action != "None"
    )
    return Gpus(driver, gpus, tuple(processes), not_told("nvidia-smi -q -x does not name the instances' UUIDs"), lost)


def _gpu(index: int, node: ET.Element) -> Gpu:
    """Return one GPU; nvidia-smi writes them in the order of their indices."""
    uuid, name = _text(node, "uuid"), _text(node, "product_name")
    bus = _text(node, "pci/pci_bus_id")
    return Gpu(
        index=index,
        uuid=known_value(uuid) or "",
        name=known_value(name) or "",
        pci=pci_address(bus) if isinstance(bus, str) else pci_address(node.get("id", "")),
        memory=_size(_text(node, "fb_memory_usage/total")),
        memory_used=_size(_text(node, "fb_memory_usage/used")),
        mig=_mode(_text(node, "mig_mode/current_mig")),
        numa=_NOT_TOLD,
        ecc_uncorrected=_uncorrected(node),
        ecc=_mode(_perhaps(node, "ecc_mode/current_ecc")),
        remap_pending=_mode(_perhaps(node, "remapped_rows/remapped_row_pending")),
        remap_failed=_mode(_perhaps(node, "remapped_rows/remapped_row_failure")),
        persistence=_mode(_perhaps(node, "persistence_mode")),
        temperature=_number(_perhaps(node, "temperature/gpu_temp"), " C"),
        width=_number(_perhaps(node, "pci/pci_gpu_link_info/link_widths/current_link_width"), "x"),
        max_width=_number(_perhaps(node, "pci/pci_gpu_link_info/link_widths/max_link_width"), "x"),
        slowdowns=_slowdowns(node),
    )


def _perhaps(node: ET.Element, path: str) -> Found[str]:
    """Return a text that some drivers do not tell."""
    return _NOT_TOLD if node.find(path) is None else _text(node, path)


def _slowdowns(node: ET.Element) -> Found[Tuple[str, ...]]:
    """Return what holds the clocks low, in NVML's words; drivers from 535 on call throttling an event."""
    for kind in ("throttle", "event"):
        reasons = node.find(f"clocks_{kind}_reasons")
        if reasons is not None:
            active = [each.tag for each in reasons if (each.text or "").strip() == "Active"]
            words = [tag.replace(f"clocks_{kind}_reason_", "", 1).split("_") for tag in active]
            return tuple("".join(map(str.capitalize, each)) for each in words if each != ["gpu", "idle"])
    return _NOT_TOLD


def _uncorrected(node: ET.Element) -> Found[int]:
    """Return the uncorrectable errors since the driver was loaded: one total, or the parts of newer drivers."""
    total = _number(_text(node, "ecc_errors/volatile/double_bit/total"))
    if isinstance(total, int):
        return total
    found = node.find("ecc_errors/volatile")
    parts = [] if found is None else [part for part in found if re.fullmatch(r"[sd]ram_uncorrectable\w*", part.tag)]
    counts = [_number((part.text or "").strip()) for part in parts]
    told = [count for count in counts if isinstance(count, int)]
    if told and len(told) == len(counts):
        return sum(told)
    return next((count for count in counts if not isinstance(count, int)), _NOT_TOLD)


def _text(node: ET.Element, path: str) -> Found[str]:
    found = node.findtext(path)
    if found is None:
        return Unknown(f"nvidia-smi -q -x does not hold {path}")
    found = found.strip()
    if found in ("N/A", "[N/A]", "[Not Supported]"):
        return Absent(found)
    return found if found and not found.startswith("[") else Unknown(f"{path}: nvidia-smi reports {found!r}")


def _number(found: Found[str], unit: str = "") -> Found[int]:
    if not isinstance(found, str):
        return found
    if found in ("N/A", "[N/A]"):
        return Absent(found)
    found = found[: len(found) - len(unit)] if unit and found.endswith(unit) else found
    return int(found) if re.fullmatch("[0-9]{1,18}", found) else Unknown(f"{found!r} is not a number")


def _size(found: Found[str]) -> Found[int]:
    if not isinstance(found, str):
        return found
    match = re.fullmatch("([0-9]{1,12}) ([KMG]iB)", found)
    return int(match[1]) * _UNITS[match[2]] if match else Unknown(f"{found!r} is not a size")


def _mode(found: Found[str]) -> Found[bool]:
    if not isinstance(found, str):
        return found
    known = {"Enabled": True, "Yes": True, "Disabled": False, "No": False}
    return known.get(found, Unknown(f"nvidia-smi -q -x reports {found!r}"))
