"""Reads what set-up left on a host: its files, keys and units; and what it builds on: devices, capabilities, limits."""

import re
from typing import Dict, List, Mapping, Optional, Tuple

from taco_launch.core.facts.text.sections import Files, Sections, answer, files, unasked
from taco_launch.core.facts.text.strip_terminal import lines, shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import SetupFile, SetupState

_PATH = r"(/[\x20-\x7e]+?)"
_KINDS = "directory|regular file|regular empty file|symbolic link|socket|fifo"
_STAT = re.compile(rf"([0-7]{{3,4}})\|({_KINDS})\|{_PATH}")
_SUM = re.compile(rf"([0-9a-f]{{64}})  {_PATH}")
_LINK = re.compile(rf"{_PATH} -> ([\x20-\x7e]+)")
_DEVICE = re.compile(r"/dev/(?:infiniband/|nvidia)[\w.-]+", re.ASCII)
_INSTALLED = re.compile(r"ii ([\w.+-]+ [\w.:+~-]+)", re.ASCII)
# dpkg's status of a package that is removed, wanted or half there (dpkg-query(1)); rpm's words, in English as asked
_NOT_INSTALLED = re.compile(
    r"(?!ii)[uihrp][ncHUFWti]R? [\w.+-]+ ?[\w.:+~-]*|package [\w.+-]+ is not installed", re.ASCII
)
# RFC 8709: 51 bytes, which are 68 letters of base64; set-up makes no other keys.
_KEY = re.compile(r"(ssh-ed25519 [A-Za-z0-9+/]{68})(?: .*)?\n*")
_ARGV = re.compile(r"argv\[\]=(.*?) ; ignore_errors=")
# linux/capability.h, in the order of their bits.
_CAPABILITIES = (  # noqa: SIM905 - a list of literals would take a line each
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE "
    "NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN "
    "SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE "
    "MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
).split()

# A service and its states, a file and its cluster, the version of control groups.
_OF_SLURM = re.compile(r"([a-z]+\.service|/etc/slurm/[a-z]+\.conf|cgroup) ([\w. -]+)", re.ASCII)

_Unit = Mapping[str, str]


def parse_made(sections: Sections) -> Found[SetupState]:
    """Read the probe's sections made.*."""
    missing = unasked(sections, "made")
    if missing is not None:
        return missing
    limits = files(sections, "made.limits")
    keys = files(sections, "made.keys")
    packages = _packages(answer(sections, "made.package"))
    status, of_init = limits.text("/proc/1/status"), limits.text("/proc/1/limits")
    ours, engine = _units(answer(sections, "made.units"), answer(sections, "made.at_boot"))
    return SetupState(
        files=_files(answer(sections, "made.files")),
        devices=_devices(answer(sections, "made.devices")),
        capabilities=_capabilities(status),
        memlock=_memlock(of_init),
        host_key=_key(keys, "host_key.pub"),
        cluster_key=_key(keys, "key.pub"),
        unit=_active(ours),
        enabled=_enabled(ours),
        docker_package=_package(packages),
        engine_unit=_value(engine, "UnitFileState"),
        engine_active=_active(engine),
        engine_command=_command(answer(sections, "made.engine"), engine),
        daemon_json=answer(sections, "made.daemon_json"),
        hosts=answer(sections, "made.hosts"),
        toolkit_packages=packages
        if isinstance(packages, (Absent, Unknown))
        else tuple(each for each in packages if each.startswith("nvidia-")),
        machine=answer(sections, "made.machine"),
        slurm=_slurm(answer(sections, "made.slurm")),
    )


def _files(text: Found[str]) -> Found[Tuple[SetupFile, ...]]:
    """Read `MODE|KIND|PATH` of everything, `PATH -> TARGET` of links and `SHA256  PATH` of files."""
    if not isinstance(text, str):
        return Unknown(text.reason)
    modes: Dict[str, Tuple[int, str]] = {}
    sums: Dict[str, str] = {}
    links: Dict[str, str] = {}
    for line in text.split("\n"):
        stat, checksum, link = _STAT.fullmatch(line), _SUM.fullmatch(line), _LINK.fullmatch(line)
        if stat:
            modes[stat[3]] = (int(stat[1], 8), stat[2])
        elif checksum:
            sums[checksum[2]] = checksum[1]
        elif link:
            links[link[1]] = link[2]
        elif line:
            return Unknown(f"the files of set-up: {shown(line)} is not understood")
    untold = [path for path, (_, kind) in modes.items() if kind.startswith("regular") and path not in sums]
    untold += [path for path, (_, kind) in modes.items() if kind == "symbolic link" and path not in links]
    untold += [path for path in (*sums, *links) if path not in modes]
    if untold:
        return Unknown(f"the files made by set-up: the report of {untold[0]} is incomplete")
    return tuple(
        SetupFile(path, sums.get(path), mode, links.get(path))
        for path, (mode, kind) in sorted(modes.items())
        if path in sums or path in links or kind == "directory"
    )


def _devices(text: Found[str]) -> Found[Tuple[str, ...]]:
    if not isinstance(text, str):
        return Unknown(text.reason)
    found = tuple(sorted({line for line in text.split("\n") if line}))
    odd = next((path for path in found if not _DEVICE.fullmatch(path)), None)
    return found if odd is None else Unknown(f"the devices: {shown(odd)} is not understood")


def _capabilities(status: Found[str]) -> Found[Tuple[str, ...]]:
    """Read `CapBnd: 000001ffffffffff`; a bit beyond those that are known has no name yet."""
    if not isinstance(status, str):
        return Unknown(status.reason)
    match = re.search(r"(?m)^CapBnd:\s*([0-9a-f]{1,16})$", status)
    if match is None:
        return Unknown(f"/proc/1/status: {shown(status)} is not understood")
    mask = int(match[1], 16)
    return tuple(name for bit, name in enumerate(_CAPABILITIES) if mask >> bit & 1)


def _memlock(limits: Found[str]) -> Found[Optional[int]]:
    """Read the hard limit in `Max locked memory  SOFT  HARD  bytes`."""
    if not isinstance(limits, str):
        return Unknown(limits.reason)
    match = re.search(r"(?m)^Max locked memory +(?:[0-9]{1,19}|unlimited) +([0-9]{1,19}|unlimited) +bytes *$", limits)
    if match is None:
        return Unknown(f"/proc/1/limits: {shown(limits)} is not understood")
    return None if match[1] == "unlimited" else int(match[1])


def _key(keys: Files, name: str) -> Found[str]:
    """Return a public key, type and data, without its comment."""
    path = next((path for path in (*keys.texts, *keys.refused) if path.endswith(f"/ssh/{name}")), None)
    if path is None:
        return Unknown(keys.failed.reason if keys.failed else f"{name}: it is missing from the answer")
    text = keys.text(path)
    if not isinstance(text, str):
        return text
    match = _KEY.fullmatch(text)
    return match[1] if match else Unknown(f"{name}: {shown(text)} is not understood")


def _units(text: Found[str], at_boot: Found[str]) -> Tuple[Found[_Unit], Found[_Unit]]:
    """Read `systemctl show` of our unit and of docker.service: `KEY=VALUE` lines, an empty line between the two.

    `at_boot` has lines `UNIT STATE` of `systemctl is-enabled`, which looks at the files: systemd itself keeps reporting
    the UnitFileState from before somebody changed them.
    """
    if not isinstance(text, str):
        return text, text
    blocks: List[Dict[str, str]] = [{}]
    for line in text.strip("\n").split("\n"):
        key, equals, value = line.partition("=")
        if equals:
            blocks[-1][key] = value
        elif not line and blocks[-1]:
            blocks.append({})
    ids = [block.get("Id", "") for block in blocks]
    if len(ids) != 2 or not ids[0].startswith(("taco-launch-", "taco-launch.")) or ids[1] != "docker.service":
        wrong = Unknown(f"systemctl show: {shown(text)} is not understood")
        return wrong, wrong
    for line in at_boot.split("\n") if isinstance(at_boot, str) else ():
        unit, _, state = line.partition(" ")
        if unit in ids and state == "not-found":
            blocks[ids.index(unit)].pop("UnitFileState", None)
        elif unit in ids and state:
            blocks[ids.index(unit)]["UnitFileState"] = state
    return blocks[0], blocks[1]


def _value(unit: Found[_Unit], key: str) -> Found[str]:
    """Return a state, which is one word."""
    if isinstance(unit, (Absent, Unknown)):
        return unit
    value = unit.get(key)
    if not value:
        return Absent(f"{unit['Id']} has no {key}")
    return (
        value if re.fullmatch("[a-z-]+", value) else Unknown(f"{key} of {unit['Id']}: {shown(value)} is not understood")
    )


def _active(unit: Found[_Unit]) -> Found[str]:
    """Return how a unit stands; systemd says `inactive` of one that it has no file of, and that has no UnitFileState."""
    state, file = _value(unit, "ActiveState"), _value(unit, "UnitFileState")
    return file if isinstance(file, Absent) and state == "inactive" else state


def _enabled(unit: Found[_Unit]) -> Found[bool]:
    state = _value(unit, "UnitFileState")
    return state == "enabled" if isinstance(state, str) else state  # `enabled-runtime` is so until a reboot


def _command(running: Found[str], unit: Found[_Unit]) -> Found[str]:
    """Return the words of the engine that runs, else those that its unit would run."""
    if isinstance(running, str) and "dockerd" in running.partition("\n")[0]:  # its pid file may be left of another
        return " ".join(running.split("\n")).strip()
    if isinstance(unit, (Absent, Unknown)):
        return unit
    text = unit.get("ExecStart")
    if not text:
        return Absent(f"{unit['Id']} has no ExecStart")
    match = _ARGV.search(text)
    return match[1] if match else Unknown(f"ExecStart of docker.service: {shown(text)} is not understood")


def _packages(text: Found[str]) -> Found[Tuple[str, ...]]:
    """Read which packages are installed, `NAME VERSION` each."""
    if not isinstance(text, str):
        return text
    found: List[str] = []
    for line in lines(text):
        match = _INSTALLED.fullmatch(line)
        if match:
            found.append(match[1])
        elif line.strip() and not _NOT_INSTALLED.fullmatch(line):
            return Unknown(f"the installed packages: {shown(line)} is not understood")
    return tuple(found)


def _slurm(text: Found[str]) -> Found[Tuple[Tuple[str, str], ...]]:
    if not isinstance(text, str):
        return text
    rows: List[Tuple[str, str]] = []
    for line in filter(None, lines(text)):
        match = _OF_SLURM.fullmatch(line)
        if match is None:
            return Unknown(f"Slurm: {shown(line)} is not understood")
        rows.append((match[1], match[2].strip()))
    return tuple(rows)


def _package(found: Found[Tuple[str, ...]]) -> Found[str]:
    if not isinstance(found, tuple):
        return found
    of_docker = (each for each in found if not each.startswith("nvidia-"))
    return next(of_docker, Absent("no docker package is installed"))
