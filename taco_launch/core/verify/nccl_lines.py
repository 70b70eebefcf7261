r"""One line of NCCL's log, with NCCL_DEBUG=INFO: who said it, and which of the known lines it is.

Formats of 2.4 to 2.31, from its sources: `HOST:PID:TID [DEVICE] NCCL INFO ...`, before which a program, mpirun or a log
collector may put anything. A line is only believed as a whole: a number that a cut line ends in may lack digits, and
`via NET/IB/0` may lack its `/GDRDMA`.
"""

import re
from typing import Dict, List, NamedTuple, Tuple

MOST_LINE = 4096
_PREFIX = re.compile(r"(?P<host>[^\s:]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) (?:\[(?P<dev>-?\d{1,5})\] )?")
_LONGEST_PREFIX = 400
_TAG = re.compile(r"^.*<std(?:out|err|diag)>")
_ZONE = re.compile(r"T\d\d:\d\d:\d\d\S{0,12}[+-]\d\d:$")
_MARK = re.compile(r" ?NCCL (INFO|WARN) ")
_VERSION = re.compile(
    r"(?:^|[\s:>|])NCCL version (?P<version>\d+\.\d+(?:\.\d+)*[\w.-]*?)(?:\+cuda[\d.]+)?(?: git[\w /:.-]*)?\s*$"
)
# What a log collector or a person added behind a line.
_BEHIND = re.compile(r"\s+#.*$")

_RANK = r"(\d{1,7})(?:\[[0-9a-f]{1,16}\])?"
_WAY = rf"(?:Channel|Ring) \d{{2,4}}(?:/\d+)? : {_RANK} -> {_RANK}"
_HEX = r"(?:0x)?[0-9a-f]{1,16}"
_INTERFACE = r"[\w.@-]{1,64}:[^\s]{1,80}?(?:<\d{1,5}>)?"

_COMMUNICATOR = (
    rf"(?:\[Rank \d+\] )?(?:\w+ )?comm {_HEX} rank (\d{{1,7}}) nranks (\d{{1,7}}) cudaDev (-?\d{{1,5}})"
    rf"(?: nvmlDev -?\d{{1,5}})?(?: busId ({_HEX}))?(?: (?:parent {_HEX}|splitCount \d+|color -?\d+|key -?\d+))*"
    rf"(?: commId ({_HEX}))? ?- (Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)"
)

FORMS: Tuple[Tuple[str, "re.Pattern[str]"], ...] = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        (
            "network",
            rf"{_WAY} \[(send|receive)\] via NET/([^/]{{1,64}})/(\d{{1,4}})(?:\(\d+\))?(/GDRDMA(?:\(PCI\))?)?(?:/Shared)?",
        ),
        ("local", rf"{_WAY} via (P2P|SHM)/?([\w /\[\]-]{{0,80}})"),
        (
            "collnet",
            r"(?:Coll[Nn]et|Channel) \d{2,4}(?:/\d+)? : (\d{1,7}) \[(send|receive)\] via COLLNET/([^/]{1,64})/(\d{1,4})(/GDRDMA(?:\(PCI\))?)?(?:/Shared)?",
        ),
        ("communicator", _COMMUNICATOR),
        (
            "member",
            rf"comm {_HEX} rank (\d{{1,7}}) nRanks (\d{{1,7}}) nNodes \d{{1,6}} localRanks \d{{1,5}} localRank \d{{1,5}} .{{0,40}}",
        ),
        ("chosen", r"Using network (\S.{0,63})"),
        ("chosen_old", r"Using internal Network (\S{1,64})"),
        ("chosen", r"Assigned NET plugin (\S.{0,63}) to comm"),
        ("plugin", r"NET/Plugin ?: Loaded net plugin (\S.{0,63}?)(?: \(v\d+\))?"),
        ("plugin", r"Initialized NET plugin (\S.{0,63})"),
        ("plugin_none", r"NET/Plugin ?: No plugin found.{0,200}"),
        ("hcas", rf"NET/IB ?: Using((?: \[\d+\][^\s;]+)+)\s*(?:\[RO\])?\s*; OOB ({_INTERFACE}|:)"),
        ("no_ib", r"NET/IB ?: No device found\.?.{0,80}"),
        ("sockets", rf"NET/Socket ?: Using((?: \[\d+\]{_INTERFACE})+)"),
        ("bootstrap", rf"Bootstrap ?: Using((?: (?:\[\d+\])?{_INTERFACE})+)"),
        ("gdr", r"NET/[\w -]{1,64} ?: GPU Direct RDMA (Enabled|Disabled) for HCA (\d{1,4}) '([\w.:+-]{1,255})'.{0,80}"),
        (
            "gdr_old",
            r"NET/IB ?: GPU Direct RDMA Disabled for GPU \d+\[\d+\] / HCA (\d{1,4}) '([\w.:+-]{1,255})'.{0,80}",
        ),
        (
            "too_far",
            r"(?:NET/[\w -]{1,64} ?: )?GPU Direct RDMA Disabled for GPU \S{1,20} / HCA \d{1,4} (\(distance \d+ >=? \d+\)).{0,40}",
        ),
        ("gid", r"NET/IB ?: .{0,120}Port \d+ .{0,200}GID (-?\d{1,5}) \([0-9A-Fa-f]+/[0-9A-Fa-f]+\).{0,120}"),
        ("version", r"NCCL version (\d+\.\d+\.\d+[\w.-]*?)(?:\+cuda\d+\.\d+)(?: git[\w /:.-]*)?"),
        ("env", r"(NCCL_\w{1,64}) set by environment to (.{0,400}?)\.?"),
        ("env", r"(NCCL_\w{1,64}) set to (.{0,400}?)\.?"),
        ("nvls_not", r"NVLS multicast support is not available on dev \d+.{0,80}"),
        ("nvls", r"Connected NVLS tree"),
        ("rings", r"Connected all rings(?:, use ring PXN \d+ GDR \d+)?"),
    )
)
# What may go on where the line was cut: these are not believed then.
_OPEN = ("network", "local", "collnet", "env", "chosen", "chosen_old", "plugin", "version", "sockets", "bootstrap")
# A line that speaks of these and is none of the forms was cut, or mixed with another.
_SPEAKS = re.compile(
    r" via (?:NET|P2P|SHM|COLLNET)\b|- Init (?:START|COMPLETE)|GPU Direct RDMA (?:Enabled|Disabled) for HCA"
)
# The rest of a line that was cut in two.
_REST = re.compile(r"^\s*/(?:GDRDMA|Shared|read|IPC)|NCCL INFO\s*$|^\s*- Init COMPLETE")


class NcclLine(NamedTuple):
    """One line: the process that wrote it, which form it has ("" for none of them), its values, and whether it is torn.

    `host` is "" for the line with the version, which has no prefix before 2.18. A warning has kind `warning`.
    """

    host: str
    pid: int
    kind: str
    values: Tuple[str, ...] = ()
    torn: bool = False


def read(text: str, ends: bool = True) -> List[NcclLine]:
    """Read one line; none where it is not NCCL's. More than one where lines of several processes were run together.

    Without `ends` there was no line end behind it: it may go on.
    """
    if len(text) > MOST_LINE:
        return [NcclLine("", 0, "", torn=True)] if "NCCL" in text[:MOST_LINE] else []
    marks = list(_MARK.finditer(text))
    if not marks:
        version = _VERSION.search(text) if ends else None
        if version is not None:
            prefix = _last_prefix(text[: version.start()])
            return [NcclLine(prefix[0], prefix[1], "version", (version["version"],))]
        return [NcclLine("", 0, "", torn=True)] if _REST.search(text) else []
    found: List[NcclLine] = []
    for index, mark in enumerate(marks):
        host, pid, _begin = _last_prefix(text[: mark.start() + 1])
        is_last = index == len(marks) - 1
        is_whole = is_last and ends
        end = len(text) if is_last else _last_prefix(text[: marks[index + 1].start() + 1])[2]
        # What stands before another line's prefix was cut by it.
        found.append(_message(host, pid, mark[1], text[mark.end() : max(end, mark.end())], is_whole=is_whole))
    return found


def _message(host: str, pid: int, level: str, text: str, is_whole: bool) -> NcclLine:
    if not host:
        return NcclLine("", 0, "", torn=True)
    if level == "WARN":
        return NcclLine(host, pid, "warning", (text.strip()[:400],))
    rest = text.rstrip()
    for candidate in (rest, _BEHIND.sub("", rest)) if "#" in rest else (rest,):
        for kind, form in FORMS:
            match = form.fullmatch(candidate)
            if match is not None:
                if not is_whole and kind in _OPEN:
                    break
                return NcclLine(host, pid, kind, tuple(group or "" for group in match.groups()))
    return NcclLine(host, pid, "", torn=bool(_SPEAKS.search(rest)) or not is_whole)


def _last_prefix(text: str) -> Tuple[str, int, int]:
    """Return host, pid and where the prefix begins, of the last one in a text; "" and 0 without one."""
    near = text[-_LONGEST_PREFIX:]
    found = list(_PREFIX.finditer(near))
    if not found:
        return "", 0, len(text)
    # A tag of mpirun's stands right before the host: [1,0]<stdout>:gpu1:42:43
    host = _TAG.sub("", found[-1]["host"])
    # A time of a log collector's may be glued to it: 2025-05-16T16:39:51.208-07:00gpu1:42:43
    if _ZONE.search(near[: found[-1].start()]) and host[:2].isdigit():
        host = host[2:]
    return host, int(found[-1]["pid"]), len(text) - len(near) + found[-1].start()


def devices(text: str) -> Dict[int, str]:
    """Return the items of `[0]mlx5_0:1/RoCE [1]eth0:10.0.0.1<0>` by their number."""
    return {int(number): item for number, item in re.findall(r"\[(\d{1,4})\](\S{1,160})", text)}
