"""Read what the operating system is and has: release, processors, memory, limits."""

import re
from typing import Dict, List, Optional, Tuple

from taco_launch.core.facts.system.clock import Clock, booted
from taco_launch.core.facts.system.disks import parse_disks, with_types
from taco_launch.core.facts.text.sections import Files, Sections, answer, failure, files, unasked
from taco_launch.core.facts.text.strip_terminal import shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import Cpu, Memory, NumaNode, Os, ProcessLimits, System

_NODES = "/sys/devices/system/node"
# by the names of limits.conf(5)
_LIMITS = (
    ("memlock", "Max locked memory"),
    ("stack", "Max stack size"),
    ("nofile", "Max open files"),
    ("nproc", "Max processes"),
)
_RANGES = re.compile(r"[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*")
_LOGIND_NAMES = ("KillUserProcesses", "RemoveIPC")
# where logind.conf(5) looks, the first one first: of two drop-ins of one name, the one in the earlier folder counts
_LOGIND_FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
_TRUTHS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


def parse_system(sections: Sections, clock: Clock) -> Found[System]:
    """Read the probe's sections system.*; each fact that cannot be read is Unknown by itself."""
    missing = unasked(sections, "system")
    if missing is not None:
        return missing
    told = files(sections, "system.files")
    shell = _pairs(answer(sections, "system.shell"), " ")
    hostname, kernel, architecture = _uname(answer(sections, "system.uname"))
    init = _init(told, shell)
    remove_ipc, kill_user_processes = parse_logind(sections, init)
    return System(
        hostname=hostname,
        os=_os(told),
        kernel=kernel,
        architecture=architecture,
        cpu=_cpu(answer(sections, "system.cpu"), told.text("/sys/devices/system/cpu/online")),
        numa=_numa(sections),
        memory=_memory(told.text("/proc/meminfo")),
        disks=with_types(parse_disks(answer(sections, "system.disks")), sections),
        limits=_limits(told.text("/proc/self/limits")),
        clock_offset=clock.offset,
        clock_error=clock.error,
        clock_synchronised=_synchronised(answer(sections, "system.clock")),
        selinux=_selinux(told.text("/sys/fs/selinux/enforce")),
        remove_ipc=remove_ipc,
        kill_user_processes=kill_user_processes,
        access=_one_of(shell, "access", ("root", "sudo", "user")),
        init=init,
        virtualization=_virtualization(sections),
        package_manager=_package_manager(shell),
        booted=booted(sections, told.text("/proc/uptime")),
    )


def memlock(text: str) -> Found[Optional[int]]:
    """Return how much memory a process may lock, in bytes, from /proc/self/limits; None is unlimited."""
    found = _limits(text)
    return found[0].soft if isinstance(found, tuple) else found


def _pairs(text: Found[str], separator: str) -> Dict[str, str]:
    """Return `KEY SEPARATOR VALUE` lines; a key with two different values is left out."""
    pairs: Dict[str, str] = {}
    twice = set()
    for line in text.split("\n") if isinstance(text, str) else ():
        key, found, value = line.partition(separator)
        key, value = key.strip(), value.strip()
        if found and pairs.setdefault(key, value) != value:
            twice.add(key)
    return {key: value for key, value in pairs.items() if key not in twice}


def _one_of(pairs: Dict[str, str], key: str, known: Tuple[str, ...]) -> Found[str]:
    value = pairs.get(key)
    return value if value in known and value is not None else Unknown(f"the probe did not report: {key}")


def _uname(text: Found[str]) -> Tuple[Found[str], Found[str], Found[str]]:
    if not isinstance(text, str):
        return text, text, text
    words = text.split()
    if len(words) != 3 or text.count("\n") > 1 or not text.isascii():
        wrong = Unknown(f"uname -nrm: {shown(text)} is not understood")
        return wrong, wrong, wrong
    return words[0], words[1], words[2]


def _os(told: Files) -> Found[Os]:
    """Read /etc/os-release (os-release(5)); CentOS 7 tells its minor release in /etc/centos-release only."""
    text = told.text("/etc/os-release")
    if not isinstance(text, str):
        return Unknown(text.reason)
    pairs = {key: _unquoted(value) for key, value in _pairs(text, "=").items()}
    release = told.text("/etc/centos-release")
    if isinstance(release, Unknown):
        return release
    if not re.fullmatch(r"[a-z0-9._-]+", pairs.get("ID", "")):
        return Unknown(f"/etc/os-release names no ID: {shown(text)}")
    name = pairs.get("PRETTY_NAME") or pairs.get("NAME") or pairs["ID"]
    version = pairs.get("VERSION_ID", "")
    if not re.fullmatch(r"[A-Za-z0-9._-]*", version):
        return Unknown(f"/etc/os-release: VERSION_ID {shown(version)} is not understood")
    if isinstance(release, str):
        full = re.fullmatch(r"(\S.*) release ([0-9][0-9.]*)( .*)?", release.strip())
        if full is None:
            return Unknown(f"/etc/centos-release: {shown(release)} is not understood")
        if full[2].startswith(f"{version}."):
            version, name = full[2], f"{full[1]} {full[2]}{full[3] or ''}"
    return Os(pairs["ID"], version, name)


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return re.sub(r"\\(.)", r"\1", value)


def _cpu(text: Found[str], online: Found[str]) -> Found[Cpu]:
    if not isinstance(text, str):
        return text
    if not isinstance(online, str):
        return Unknown(online.reason)
    pairs = _pairs(text, ":")
    sockets, cores = pairs.get("Socket(s)", ""), pairs.get("Core(s) per socket", "")
    threads = _count(online.strip())
    if not (re.fullmatch("[1-9][0-9]{0,3}", sockets) and re.fullmatch("[1-9][0-9]{0,3}", cores)) or not threads:
        return Unknown(f"lscpu reports no sockets, no cores per socket, or no threads: {shown(text)}")
    return Cpu(pairs.get("Model name", ""), int(sockets), int(sockets) * int(cores), threads)


def _count(ranges: str) -> int:
    """Count what a list of the kernel's, like `0-23,48-71`, holds; 0 where it is none."""
    if not _RANGES.fullmatch(ranges):
        return 0
    ends = [part.partition("-")[::2] for part in ranges.split(",")]
    return sum(max(int(last or first) - int(first) + 1, 0) for first, last in ends)


def _numa(sections: Sections) -> Found[Tuple[NumaNode, ...]]:
    missing = failure(sections, "system.numa")
    if missing is not None:
        return missing
    cpus, memory = {}, {}
    for path, text in files(sections, "system.numa").below(_NODES):
        match = re.fullmatch("node([0-9]{1,4})/(cpulist|meminfo)", path)
        total = re.fullmatch(r"Node [0-9]+ MemTotal:\s+([0-9]{1,16}) kB", text.strip())
        if match and match[2] == "cpulist" and (not text or _RANGES.fullmatch(text)):
            cpus[int(match[1])] = text
        elif match and match[2] == "meminfo" and total:
            memory[int(match[1])] = int(total[1]) << 10
        else:
            return Unknown(f"{_NODES}/{path}: {shown(text)} is not understood")
    if not cpus or sorted(cpus) != sorted(memory):
        return Unknown(f"{_NODES}: some nodes do not report their processors and memory")
    return tuple(NumaNode(index, cpus[index], memory[index]) for index in sorted(cpus))


def _memory(text: Found[str]) -> Found[Memory]:
    if not isinstance(text, str):
        return Unknown(text.reason)
    pairs = _pairs(text, ":")
    sizes: List[int] = []
    for name in ("MemTotal", "MemAvailable", "SwapTotal"):
        match = re.fullmatch("([0-9]{1,16}) kB", pairs.get(name, ""))
        if match is None:
            return Unknown(f"/proc/meminfo reports no {name}")
        sizes.append(int(match[1]) << 10)
    return Memory(*sizes)


def _limits(text: Found[str]) -> Found[Tuple[ProcessLimits, ...]]:
    if not isinstance(text, str):
        return Unknown(text.reason)
    limits = []
    for name, words in _LIMITS:
        row = rf"{words} +(unlimited|[0-9]{{1,20}}) +(unlimited|[0-9]{{1,20}})(?: +[a-z]+)? *"
        found = {match.groups() for match in map(re.compile(row).fullmatch, text.split("\n")) if match}
        if len(found) != 1:
            return Unknown(f"/proc/self/limits reports no {words}, or several")
        soft, hard = (None if value == "unlimited" else int(value) for value in found.pop())
        limits.append(ProcessLimits(name, soft, hard))
    return tuple(limits)


def _synchronised(text: Found[str]) -> Found[bool]:
    """Read timedatectl; systemd before 239 says `NTP synchronized`, later ones `System clock synchronized`."""
    if not isinstance(text, str):
        return Unknown(text.reason)
    found = set(re.findall(r"(?m)^\s*(?:NTP|System clock) synchronized: (yes|no)\s*$", text))
    return found == {"yes"} if len(found) == 1 else Unknown(f"timedatectl does not say: {shown(text)}")


def _selinux(text: Found[str]) -> Found[str]:
    if isinstance(text, Absent):
        return "disabled"  # selinuxfs(8) is there wherever the kernel enforces or would log
    states = {"0": "permissive", "1": "enforcing"}
    if isinstance(text, str):
        return states.get(text.strip(), Unknown(f"/sys/fs/selinux/enforce: {shown(text)} is not understood"))
    return text


def _init(told: Files, shell: Dict[str, str]) -> Found[str]:
    if shell.get("init") == "systemd":
        return "systemd"
    name = told.text("/proc/1/comm")
    if isinstance(name, str) and not re.fullmatch("[^\n]+", name):
        return Unknown(f"/proc/1/comm: {shown(name)} is not understood")
    return name


def _virtualization(sections: Sections) -> Found[str]:
    section = sections.get("system.virtualization")
    if section is not None and section.exit_code in (0, 1):  # 1 with the word none
        word = section.stdout.strip()
        if word == "none":
            return Absent()
        if section.exit_code == 0 and re.fullmatch("[a-z0-9-]+", word):
            return word
    missing = failure(sections, "system.virtualization")
    return Unknown(missing.reason if missing else "systemd-detect-virt: its answer is not understood")


def _package_manager(shell: Dict[str, str]) -> Found[str]:
    name = shell.get("packages")
    if name == "none":
        return Absent()
    return name if name is not None and re.fullmatch("[a-z-]+", name) else Unknown("the probe did not report: packages")


def parse_logind(sections: Sections, init: Found[str]) -> Tuple[Found[bool], Found[bool]]:
    """Return RemoveIPC and KillUserProcesses: what the running logind says, or else what its configuration means.

    logind of systemd 219 (CentOS 7) tells only KillUserProcesses. Absent where systemd does not run the host.
    """
    if isinstance(init, str) and init != "systemd":
        absent = Absent(f"init is {init}, not systemd")
        return absent, absent
    section = sections.get("system.logind")
    text = section.stdout if section is not None else ""
    said = re.findall(r"(?m)^b (true|false)$", text)
    # busctl prints a line for each name, and ends at the first one that logind does not know
    if section is not None and section.exit_code == 0 and not re.fullmatch(r"(b (true|false)\n){2}", text):
        wrong = Unknown(f"busctl get-property: {shown(text)} is not understood")
        return wrong, wrong
    found: Dict[str, Found[bool]] = {name: word == "true" for name, word in zip(_LOGIND_NAMES, said)}
    told = files(sections, "system.logind_conf")
    for name in _LOGIND_NAMES:
        if name not in found:
            words = answer(sections, "system.logind")
            why = "logind did not report it" if isinstance(words, str) else words.reason
            found[name] = _configured(told, name, why)
    return found["RemoveIPC"], found["KillUserProcesses"]


def _configured(told: Files, name: str, why: str) -> Found[bool]:
    """Return the last setting of the files; where there is none, the default, which the main file shows as a comment."""
    if told.failed is not None or told.cut is not None:
        return Unknown(why)
    drop_ins = {
        path: text for folder in reversed(_LOGIND_FOLDERS) for path, text in told.below(f"{folder}/logind.conf.d")
    }
    main = [told.texts.get(f"{folder}/logind.conf") for folder in _LOGIND_FOLDERS]
    texts = [next((text for text in main if text is not None), ""), *(drop_ins[path] for path in sorted(drop_ins))]
    values = [value for text in texts for value in re.findall(rf"(?m)^[ \t]*{name}[ \t]*=[ \t]*(\S+)[ \t]*$", text)]
    values = values or re.findall(rf"(?m)^#{name}=(\S+)$", texts[0])
    value = _TRUTHS.get(values[-1].lower()) if values else None
    return Unknown(f"{why}, and logind.conf does not set {name}") if value is None else value
