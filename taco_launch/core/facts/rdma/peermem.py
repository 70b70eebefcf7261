"""Reads which kernel modules are loaded, and whether one of them lets HCAs reach GPU memory, now and after a reboot."""

import re
from typing import Dict, List, Optional, Tuple

from taco_launch.core.facts.text.sections import Sections, failure
from taco_launch.core.facts.text.strip_terminal import PROMPT, lines, shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.hardware import PeerMemory
from taco_launch.core.signatures.known.system import SYSTEM, words

# NVIDIA's, with the driver since R470; and Mellanox's, before it
MODULES = ("nvidia_peermem", "nv_peer_mem")
_PROC = re.compile(
    r"(\w[\w-]*) ([0-9]+) ([0-9]+) (-|(?:[\w-]+,)+) (Live|Loading|Unloading) 0x[0-9a-f]+(?: \([A-Z+-]+\))?"
)
_LSMOD = re.compile(r"(\w[\w-]*)\s+([0-9]+)\s+([0-9]+|-)(?:\s+([\w,-]+|\[permanent\](?:[\w,-]+)?))?\s*")
# The unit that packages of nv_peer_mem bring.
SERVICE = "nv_peer_mem.service"
_NAMED = re.compile("nvidia[-_]peermem|nv_peer_mem")
_FORBIDS = re.compile(r"\s*(?:blacklist\s|install\s+\S+\s+(?:/usr)?/s?bin/(?:true|false)\b)")
# How it is loaded, by whoever asks for it (modprobe.d(5)).
_HOW = re.compile(rf"\s*install\s+(?:{_NAMED.pattern})\s")
# The entries that know a module that could not be loaded.
_REFUSALS = tuple(
    each
    for each in SYSTEM
    if each.name in ("peermem-not-built", "peermem-symbols", "peermem-nvidia-symbols", "module-key")
)
_Places = Tuple[Tuple[str, str], ...]
# The kernel that first let an HCA map GPU memory by DMA-BUF (ib_umem_dmabuf_get, Linux 5.12)
_DMABUF_KERNEL = (5, 12)


def parse_peer_memory(sections: Sections, modules: Found[Tuple[str, ...]]) -> PeerMemory:
    """Read the probe's sections rdma.peermem and rdma.comes_back."""
    at_boot, blocked = _boot(sections)
    missing = failure(sections, "rdma.peermem")
    if missing is not None:
        return PeerMemory(
            missing, loaded(modules), _comes_back(at_boot), missing, missing, at_boot, blocked, missing, missing
        )
    told: Dict[str, List[str]] = {}
    for line in lines(sections["rdma.peermem"].stdout):
        word, _, rest = line.partition(" ")
        told.setdefault(word, []).append(rest.strip())
    exists = tuple(name for name in MODULES if name in told.get("exists", ()))
    refused = [
        text
        for text in told.get("missing", ())
        if not re.search(r"(?i)module (?:alias |name )?'?[\w-]+'? not found", text)
    ]
    return PeerMemory(
        exists=_exists(exists, refused, "missing" in told or "exists" in told, sections["rdma.peermem"].stderr),
        loaded=_loaded_of(tuple(told.get("loaded", ()))),
        comes_back=_comes_back(at_boot),
        clients=tuple(told.get("client", ())),
        dmabuf=dmabuf(" ".join(told.get("kernel", ())), " ".join(told.get("driver", ()))),
        at_boot=at_boot,
        blocked=blocked,
        headers=_headers(" ".join(told.get("headers", ()))),
        secure_boot=secure_boot(" ".join(told.get("secureboot", ()))),
    )


def read_modules(text: str) -> Found[Tuple[str, ...]]:
    """Read lsmod or /proc/modules: the names of the modules in the kernel."""
    names: List[str] = []
    among = False
    for number, line in enumerate(lines(text), 1):
        match = _PROC.fullmatch(line) or _LSMOD.fullmatch(line)
        if match:
            names.append(match[1])
        elif among and line.strip() and not line.startswith("Module ") and not PROMPT.match(line):
            return Unknown(f"line {number}: {shown(line)} is not a module")
        among = bool(match) or line.startswith("Module ")
    return tuple(names) or Unknown("no module is listed")


def loaded(modules: Found[Tuple[str, ...]]) -> Found[str]:
    """Return which of the two modules is in the kernel, by the list of all."""
    if not isinstance(modules, tuple):
        return modules
    return _loaded_of(tuple(name for name in MODULES if name in modules))


def dmabuf(kernel: str, driver: str) -> Found[bool]:
    """Return whether kernel and driver can do without a module: Linux 5.12 or newer, and open kernel modules."""
    version = re.match(r"([0-9]{1,9})\.([0-9]{1,9})(?![0-9])", kernel)
    if version is None:
        return Unknown(f"kernel {shown(kernel)}")
    if (int(version[1]), int(version[2])) < _DMABUF_KERNEL:
        return False
    if not driver:
        return Unknown("no NVIDIA driver is loaded")
    return "Open Kernel Module" in driver


def why_not(text: str) -> Optional[Unknown]:
    """Return what modprobe and the kernel say of a module that could not be loaded, and what that means."""
    said: Dict[str, str] = {}
    for line in lines(text):
        for known in _REFUSALS:
            match = re.search(known.pattern, line)
            if match and _NAMED.fullmatch(match["module"]):
                meant = " ".join(words(known.name, **match.groupdict(), host="the host"))
                said.setdefault(line.strip(), meant.rstrip("."))
    return Unknown(f"{'; '.join(said)}: {next(iter(said.values()))}") if said else None


def _loaded_of(names: Tuple[str, ...]) -> Found[str]:
    if len(names) > 1:
        return Unknown(f"{' and '.join(names)} are both loaded, but only one may be")
    return names[0] if names else Absent(f"neither {' nor '.join(MODULES)} is loaded")


def _exists(exists: Tuple[str, ...], refused: List[str], asked: bool, stderr: str) -> Found[Tuple[str, ...]]:
    if refused or not asked:
        return Unknown("; ".join([*refused, *stderr.strip().splitlines()]) or "modinfo was not queried")
    return exists


def _boot(sections: Sections) -> Tuple[Found[_Places], Found[_Places]]:
    """Read FILE:LINE of what loads a module at boot, and of what forbids that, and how nv_peer_mem's own service stands."""
    missing = failure(sections, "rdma.comes_back")
    if missing is not None:
        return missing, missing
    at_boot: Dict[Tuple[str, str], None] = {}
    blocked: Dict[Tuple[str, str], None] = {}
    for line in lines(sections["rdma.comes_back"].stdout):
        path, _, text = line.partition(":")
        named = _NAMED.search(text)
        forbids = _FORBIDS.match(text)
        if line.startswith("/") and named and (forbids or not _HOW.match(text)):
            (blocked if forbids else at_boot).setdefault((path, named[0].replace("-", "_")))
        unit, _, state = line.partition(" ")
        if unit == SERVICE and state.strip() in ("enabled", "enabled-runtime"):
            at_boot.setdefault((unit, "nv_peer_mem"))
    return tuple(at_boot), tuple(blocked)


def _comes_back(at_boot: Found[_Places]) -> Found[str]:
    if not isinstance(at_boot, tuple):
        return at_boot
    return at_boot[0][0] if at_boot else Absent("nothing loads it at boot")


def _headers(text: str) -> Found[bool]:
    return Unknown("the probe did not check it") if text not in ("yes", "no") else text == "yes"


def secure_boot(text: str) -> Found[bool]:
    """Read `mokutil --sb-state`, else the bytes of the EFI variable SecureBoot: four of attributes, and its value."""
    if text == "no EFI" or "EFI variables are not supported" in text:
        return False
    if re.match("SecureBoot (?:en|dis)abled", text):  # shim may have been told to take everything
        return text.startswith("SecureBoot enabled") and "validation is disabled" not in text
    if re.fullmatch("(?:[0-9]+ ){4}[01]", text):
        return text.endswith("1")
    return Unknown(f"Secure Boot: {shown(text)}" if text else "the probe did not check it")
