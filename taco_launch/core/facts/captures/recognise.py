"""Recognises captured outputs of tools in a text by what they look like, and reads each with its parser."""

import re
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

from taco_launch.core.facts.gpus import gpu, smi_csv, smi_xml, topology
from taco_launch.core.facts.rdma import ibstat, peermem, rdma, verbs
from taco_launch.core.facts.text.strip_terminal import PROMPT, pasted, shown
from taco_launch.core.model import codec
from taco_launch.core.model.host.fact_value import Found, Unknown

_COMMAND = re.compile(
    r"[+$ ]*(?:sudo )?(?:\S*/)?(?:nvidia-smi|show_gids|ibdev2netdev|ibv_devinfo|ibstat|lsmod|modprobe|ofed_info|cat)"
    r"(?: [\w./,=*>|-]+)*"
)
_GID_ROW = re.compile(r"DEV\s+PORT\s+INDEX\s+GID|\S+\s+[0-9]+\s+[0-9]+\s+[0-9a-f]{4}(?::[0-9a-f]{4}){7}\s.*v[12]")
_MODULES = re.compile(
    r"Module\s+Size\s+Used by|\w+ [0-9]+ [0-9]+ (?:-|\S+,) (?:Live|Loading|Unloading) 0x|"
    r"[a-z]\w*\s{2,}[0-9]{4,9}\s+[0-9]{1,4}(?:\s+[\w,]+)?\s*$"
)
# What a command's rows may go through, and outputs that are as many rows as there are things.
_FILTER = re.compile(r"\|\s*(?:\S*/)?(?:head|tail|e?grep|sed|awk)\b")
_LISTS = frozenset(("-L", "--query-gpu", "--query-compute-apps", "show_gids", "ibdev2netdev"))
# No tool's line is longer; what a pattern does with one may take the square of its length.
_LONGEST = 1 << 13
# How a device begins in an output that lists one after the other, and more than a host has.
_RECORDS = {
    "ibv_devinfo": re.compile(r"^(?=hca_id:)", re.MULTILINE),
    "ibstat": re.compile(r"^(?=[ \t]*CA ')", re.MULTILINE),
}
_MOST_RECORDS = 256
_KNOWN = (
    "nvidia-smi (topo -m, --query-gpu and --query-compute-apps with --format=csv, -L, -q -x), show_gids, ibdev2netdev, "
    "ibv_devinfo -v, ibstat, lsmod, ofed_info -s, the probe's answer, a copy of /sys/class/infiniband"
)
# How files start that are not UTF-8 text
_FOREIGN = (
    (b"\x1f\x8b", "is compressed (gzip): unpack it first"),
    (b"\x28\xb5\x2f\xfd", "is compressed (zstd): unpack it first"),
    (b"\xfd7zXZ\x00", "is compressed (xz): unpack it first"),
    (b"PK\x03\x04", "is compressed (zip): unpack it first"),
    (b"\xff\xfe", "is UTF-16: save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16: save it as UTF-8"),
)
# Keys of what `facts --json` prints, of one host and of several
_SAVED = ({"host", "distances", "unknown"}, {"hosts", "differences", "fabric"})


class Capture(NamedTuple):
    """One output: the tool's name or option, and what it says, Unknown with a reason where it is not understood.

    `kind` is empty where it is not recognised.
    """

    kind: str
    value: object


def recognise(text: str) -> Tuple[Capture, ...]:
    """Return the outputs in a text, which may hold several, with prompts and command lines around them.

    At least one is given: an Unknown that says what would be known, where nothing is.
    """
    found: List[Capture] = []
    strange: List[str] = []
    plain_text = pasted(text)
    long = next((number for number, line in enumerate(plain_text.split("\n"), 1) if len(line) > _LONGEST), None)
    if long is not None:
        return (
            Capture("", Unknown(f"line {long} is longer than {_LONGEST} characters, which no supported tool prints")),
        )
    blocks = _blocks(plain_text)
    for place, (command, block) in enumerate(blocks):
        captures = _captures(block)
        if _FILTER.search(command):
            captures = [_filtered(capture, command) for capture in captures]
        greeting = place == 0 and len(blocks) > 1
        if not captures and block.strip() and not greeting:
            first = next(filter(str.strip, block.split("\n"))).strip()
            strange.append(f"what {shown(command)} printed" if command else shown(first))
        found += captures
    if strange:
        found.append(Capture("", Unknown(f"{_listed(strange)} not the output of a supported command: {_KNOWN}")))
    return tuple(found) or (Capture("", Unknown("the file is empty")),)


def _listed(names: Sequence[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are each"


def no_text(content: bytes) -> Optional[str]:
    """Return what a file is that no tool's output can be in as it stands; None where it may be one."""
    for begin, what in _FOREIGN:
        if content.startswith(begin):
            return what
    try:
        saved = codec.load(content)
    except ValueError:
        return None
    if isinstance(saved, dict) and any(keys <= saved.keys() for keys in _SAVED):
        return "is JSON output of taco-launch: give the output of the commands on the hosts instead"
    return None


def _blocks(text: str) -> List[Tuple[str, str]]:
    """Split a text at its prompts: the command that was typed, and what followed."""
    blocks: List[Tuple[str, List[str]]] = [("", [])]
    rows = text.split("\n")
    for number, line in enumerate(rows):
        prompt = PROMPT.match(line)
        if prompt:
            blocks[-1][1].append("")  # what stands before a prompt has ended
            blocks.append((line[prompt.end() :].strip(), []))
        elif not _COMMAND.fullmatch(line) or number == len(rows) - 1:
            blocks[-1][1].append(line)
    return [(command, "\n".join(lines)) for command, lines in blocks]


def _filtered(capture: Capture, command: str) -> Capture:
    """Return a capture whose rows a filter may have dropped, with that as its reason where it lists what there is."""
    if capture.kind not in _LISTS or isinstance(capture.value, Unknown):
        return capture
    why = f"{shown(command)} may have left rows out: capture it without the filter"
    return Capture(capture.kind, Unknown(why))


def _captures(block: str) -> List[Capture]:
    lines = block.split("\n")
    found = [
        capture for kind, looks, read in _RECOGNISERS if any(map(looks, lines)) for capture in _read(kind, read, block)
    ]
    # nvlink --status names GPUs as -L does, but perhaps not all of them, and no MIG instance.
    return [each for each in found if each.kind != "-L"] if any(map(_LINKS, lines)) else found


def _read(kind: str, read: Callable[[str], object], block: str) -> List[Capture]:
    """Read an output; of one that lists devices, those that are whole, and why the others are not read."""
    value = read(block)
    if not isinstance(value, Unknown) or kind not in _RECORDS:
        return [Capture(kind, value)]
    begin, *records = _RECORDS[kind].split(block)
    above, readable, reasons = begin.count("\n"), "", [value.reason]
    for record in records[:_MOST_RECORDS]:
        alone = read("\n" * above + record)  # so that the reason names the line of the file
        above += record.count("\n")
        if isinstance(alone, Unknown):
            reasons.append(alone.reason)
        else:
            readable += record
    devices = read(readable)
    if not readable or isinstance(devices, Unknown) or len(records) > _MOST_RECORDS:
        return [Capture(kind, value)]
    left_out = [Unknown(f"{reason}; that device is left out") for reason in dict.fromkeys(reasons)]
    return [Capture(kind, devices), *(Capture("", why) for why in left_out)]


def _header(*, of_processes: bool) -> Callable[[str], bool]:
    def looks(line: str) -> bool:
        return smi_csv.is_header(line) and bool(re.search(r"\bpid\b", line)) == of_processes

    return looks


def _matching(pattern: Union[str, "re.Pattern[str]"]) -> Callable[[str], bool]:
    return lambda line: bool(re.search(pattern, line))


_LINKS = _matching(r"^\s+Link [0-9]+: ")


def _why_not(text: str) -> Found[str]:
    return peermem.why_not(text) or Unknown("modprobe's output is not understood")


def _without_x(_text: str) -> Unknown:
    return Unknown("the text output of nvidia-smi -q is not supported: capture nvidia-smi -q -x")


def _links_of(_text: str) -> Unknown:
    return Unknown("nvidia-smi nvlink --status is not supported, because it may leave out GPUs: capture nvidia-smi -L")


def _table(_text: str) -> Unknown:
    return Unknown(
        "only the driver and CUDA versions are read from nvidia-smi's table: for the GPUs capture nvidia-smi -q -x, or "
        "nvidia-smi --query-gpu=index,name,uuid,pci.bus_id --format=csv"
    )


def _peers(_text: str) -> Unknown:
    return Unknown("nvidia-smi topo -p2p is not supported: capture nvidia-smi topo -m")


def _refusal(text: str) -> Found[str]:
    return gpu.refusal(text) or Unknown("nvidia-smi's output is not understood")


_RECOGNISERS: Sequence[Tuple[str, Callable[[str], bool], Callable[[str], object]]] = (
    ("topo -m", topology.is_header, topology.read),
    ("", _matching(r"^\s*(?:CNS|GNS|TNS) +="), _peers),
    ("--query-gpu", _header(of_processes=False), gpu.read_query),
    ("--query-compute-apps", _header(of_processes=True), gpu.read_processes),
    ("", _LINKS, _links_of),
    ("-L", _matching(r"^GPU [0-9]+: "), gpu.read_list),
    ("ibstat", lambda line: bool(re.search(r"^\s*CA '\S+'\s*$", line) or ibstat.PANIC.fullmatch(line)), ibstat.read),
    ("-q -x", _matching("<nvidia_smi_log>"), smi_xml.read_xml),
    ("driver", _matching("^NVRM version: "), gpu.loaded),
    ("cuda", _matching(r"CUDA (?:UMD )?Version\s*: "), gpu.cuda),
    ("driver", _matching(gpu.TABLE_HEAD), gpu.table_driver),
    ("", _matching(r"^\| GPU +Name +"), _table),
    ("-q -x", _matching("^=+NVSMI LOG=+$"), _without_x),
    ("refusal", lambda line: gpu.refusal(line) is not None, _refusal),
    ("show_gids", lambda line: bool(_GID_ROW.match(line)), verbs.show_gids),
    ("ibdev2netdev", _matching(r"\bport +[0-9]+ .*==>"), verbs.ibdev2netdev),
    ("ibv_devinfo", _matching(r"^hca_id:|GID\[ *[0-9]+\]:|^\s*link_layer:\s+[IE]"), verbs.ibv_devinfo),
    ("lsmod", lambda line: bool(_MODULES.match(line)), peermem.read_modules),
    ("modprobe", lambda line: peermem.why_not(line) is not None, _why_not),
    ("ofed_info", lambda line: "OFED" in line and bool(rdma.OFED.match(line)), rdma.ofed),
)
