"""Remarks on settings that are valid alone, but not together or not in the installed versions."""

import re
from typing import Dict, Iterator, Mapping, Optional, Sequence, Tuple

from taco_launch.core.launch.knobs import NEWEST, find, must_be_known
from taco_launch.core.launch.knobs.knob import Knob
from taco_launch.core.model.host.versions import OWN_GID, version

# An interface whose name is the start of another's: eth1 of eth10.
_PREFIX = re.compile(r"[A-Za-z_]+[0-9]*[1-9]")
# The name of a driver, of whose HCAs each has a number: mlx5 of mlx5_0.
_DRIVER = re.compile(r"mlx[45]_?|[a-z]+(?:_[a-z]+)*_?")
_LIMIT_OF_TIMEOUT = 32
_DEFAULT_STALL_CHECK = 60
# A fusion threshold of so few bytes fuses nothing; it is one of MiB.
_LIKE_MIB = 4096
_NAMES = {"nccl": "NCCL", "horovod": "Horovod", "openmpi": "Open MPI"}
# Autotune leaves alone what is set by hand (Horovod 0.28, common/operations.cc: the second argument `true`).
_TUNED = (
    "HOROVOD_FUSION_THRESHOLD",
    "HOROVOD_CYCLE_TIME",
    "HOROVOD_CACHE_CAPACITY",
    "HOROVOD_HIERARCHICAL_ALLREDUCE",
    "HOROVOD_HIERARCHICAL_ALLGATHER",
    "HOROVOD_TORUS_ALLREDUCE",
)


def remarks(pairs: Sequence[Tuple[str, Optional[str]]]) -> Tuple[str, ...]:
    """Return warnings for the knobs of one job, each a sentence; none is a reason to refuse it.

    `pairs` are (name, value) as the libraries get them, environment variables and MCA parameters by their bare names;
    the value is None where it is not known here.
    """
    given = dict(pairs)
    known = {name: value for name, value in given.items() if value}
    return (
        *_logging(given, known),
        *_network(known),
        *_horovod(known),
        *_light(known),
        *_openmpi(known),
        *_btl_exclude(known),
    )


def _logging(given: Mapping[str, Optional[str]], known: Dict[str, str]) -> Tuple[str, ...]:
    found = []
    level = known.get("NCCL_DEBUG", "").upper()
    if "NCCL_DEBUG_SUBSYS" in known and level not in ("INFO", "TRACE") and not _hidden(given, "NCCL_DEBUG"):
        found.append("NCCL_DEBUG_SUBSYS does nothing without NCCL_DEBUG=INFO")
    file = known.get("NCCL_DEBUG_FILE", "")
    if file and not file.startswith("/dev/std"):
        lacking = [mark for mark in ("%h", "%p") if mark not in file]
        if lacking:
            who = "processes" if "%p" in lacking else "hosts that share a file system"
            found.append(f"NCCL_DEBUG_FILE={file} lacks {' and '.join(lacking)}: {who} overwrite each other's file")
    return tuple(found)


def _network(known: Dict[str, str]) -> Tuple[str, ...]:
    found = []
    if known.get("NCCL_IB_DISABLE") == "0":
        found.append(
            "NCCL_IB_DISABLE=0 does nothing: 0 is the default and does not force IB (since NCCL 2.10, NCCL_NET=IB does)"
        )
    if known.get("NCCL_IB_DISABLE") == "1" and known.get("NCCL_NET", "").upper() == "IB":
        found.append("NCCL_NET=IB allows only IB, and NCCL_IB_DISABLE=1 forbids it: NCCL fails; omit one of them")
    if known.get("NCCL_IB_DISABLE") == "1":
        unused = [name for name in known if _is_of_rdma(name)]
        if unused:
            does = "does" if len(unused) == 1 else "do"
            found.append(f"NCCL_IB_DISABLE=1 keeps NCCL off RDMA, so {', '.join(unused)} {does} nothing")
    hcas = known.get("NCCL_IB_HCA", "")
    exact = hcas.lstrip("^")[1:].split(",") if hcas.lstrip("^").startswith("=") else []
    driver = next((item for item in exact if _DRIVER.fullmatch(item)), "")
    if driver:
        found.append(
            f"NCCL_IB_HCA={hcas} requests exact names, and {driver} is a driver's name, not an HCA's: omit the ="
        )
    names = known.get("NCCL_SOCKET_IFNAME", "")
    sign = "^" if names.startswith("^") else ""
    items = names[len(sign) :]
    wide = next((item for item in items.split(",") if _PREFIX.fullmatch(item)), "")
    if wide:
        does = "excludes" if sign else "includes"
        found.append(
            f"NCCL_SOCKET_IFNAME={names} is a prefix: {wide} also {does} {wide}0; for exact names write {sign}={items}"
        )
    if sign and not items.startswith("=") and not any("lo".startswith(item) for item in items.split(",") if item):
        found.append(f"NCCL_SOCKET_IFNAME={names} does not exclude lo, which reaches no other host: write {names},lo")
    timeout = known.get("NCCL_IB_TIMEOUT", "")
    if timeout.isdecimal() and (int(timeout) == 0 or int(timeout) >= _LIMIT_OF_TIMEOUT):
        found.append(f"NCCL_IB_TIMEOUT={timeout} waits forever: a lost host hangs the job instead of ending it")
    protocols = re.split(r"[;:,]", known.get("NCCL_PROTO", "").lower())
    if "ll128" in protocols:
        found.append("NCCL_PROTO names LL128: where NCCL would not choose it by itself, data can be corrupted")
    return tuple(found)


def _horovod(known: Dict[str, str]) -> Tuple[str, ...]:
    found = []
    shutdown = _whole(known, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0)
    check = _whole(known, "HOROVOD_STALL_CHECK_TIME_SECONDS", _DEFAULT_STALL_CHECK)
    if shutdown and shutdown <= check:
        found.append(
            f"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={shutdown} is not above HOROVOD_STALL_CHECK_TIME_SECONDS, which is"
            f" {check}: it must be larger"
        )
    fusion = _whole(known, "HOROVOD_FUSION_THRESHOLD", 0)
    if 0 < fusion <= _LIKE_MIB:
        found.append(
            f"HOROVOD_FUSION_THRESHOLD={fusion} is {fusion} bytes: horovodrun's --fusion-threshold-mb counts MiB, but this"
            f" variable counts bytes; {fusion} MiB are {fusion << 20}"
        )
    cycle = known.get("HOROVOD_CYCLE_TIME", "")
    if cycle and re.fullmatch(r"0*\.?0*", cycle):
        found.append("HOROVOD_CYCLE_TIME=0 keeps one core per rank busy even when idle: it is for LightCC only")
    fixed = [name for name in _TUNED if name in known]
    if known.get("HOROVOD_AUTOTUNE") == "1" and fixed:
        found.append(f"HOROVOD_AUTOTUNE does not tune what you set yourself: {', '.join(fixed)}")
    return tuple(found)


def _light(known: Dict[str, str]) -> Tuple[str, ...]:
    found = []
    if known.get("LIGHT_TOPK_ALLREDUCE") == "1":
        share = known.get("LIGHT_TOPK_RATIO", "0.01")
        found.append(
            f"LIGHT_TOPK_ALLREDUCE=1 is lossy: it sends only a fraction of {share} of the values of each large gradient;"
            " compare the accuracy with a run without it"
        )
    if known.get("LIGHT_2D_ALLREDUCE") == "1" and known.get("HOROVOD_HIERARCHICAL_ALLREDUCE") == "1":
        found.append("HOROVOD_HIERARCHICAL_ALLREDUCE and LIGHT_2D_ALLREDUCE do the same thing: one is enough")
    return tuple(found)


def _openmpi(known: Dict[str, str]) -> Tuple[str, ...]:
    """Look at `btl`, whose component self is how a rank reaches itself (4.1.4 and 5.0.11 were asked without it)."""
    value = known.get("btl", "")
    items = value.lstrip("^").split(",")
    pml = known.get("pml", "ob1")
    if not value or not (pml.startswith("^") or "ob1" in pml.split(",")):
        return ()
    if value.startswith("^"):
        if "self" not in items:
            return ()
        kept = ",".join(item for item in items if item != "self")
        write = f"write ^{kept}" if kept else "omit it"
        return (f"btl {value} excludes self too, as ^ applies to the whole list: no rank reaches itself; {write}",)
    if "self" not in items:
        return (f"btl {value} lacks self: no rank reaches itself, and MPI does not start; write self,{value}",)
    if items == ["self"]:
        return ("btl self reaches no other rank, and MPI does not start; write self,tcp",)
    return ()


def _btl_exclude(known: Dict[str, str]) -> Tuple[str, ...]:
    """Look for the loopback interface, which the default of this list has."""
    value = known.get("btl_tcp_if_exclude", "")
    if not value or any(item == "lo" or item.startswith("127.") for item in value.split(",")):
        return ()
    return (f"btl_tcp_if_exclude {value} lacks lo, which reaches no other host: write lo,{value}",)


def _is_of_rdma(name: str) -> bool:
    knob = find(name)
    return knob is not None and name.startswith("NCCL_IB_") and ("IB verbs" in knob.applies or "RoCE" in knob.applies)


def _hidden(given: Mapping[str, Optional[str]], name: str) -> bool:
    return name in given and given[name] is None


def _whole(known: Dict[str, str], name: str, default: int) -> int:
    text = known.get(name, "")
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else default


def by_version(pairs: Sequence[Tuple[str, Optional[str]]], versions: Mapping[str, str]) -> Tuple[str, ...]:
    """Return warnings for the knobs of one job that these versions do not read, each a sentence.

    `pairs` are as for `remarks`. `versions` has those of nccl, horovod and openmpi that are known, such as
    {"nccl": "2.9.9"}; of a library without one nothing is said. Where a version is given with fewer parts than the
    table has (2.22 beside 2.22.3), the parts that are given count.
    """
    return tuple(_of_versions(pairs, versions))


def _of_versions(pairs: Sequence[Tuple[str, Optional[str]]], versions: Mapping[str, str]) -> Iterator[str]:
    for name, value in pairs:
        knob = find(name)
        if knob is None and must_be_known(name):
            newest = next((who for prefix, who in NEWEST.items() if name.startswith(prefix)), "")
            yield f"{name}: not known to taco-launch, which knows {newest}: it is passed on unchanged"
        told = versions.get(knob.library, "") if knob else ""
        numbers = version(told)
        if knob is None or not numbers:
            continue
        who = f"{_NAMES[knob.library]} {told}"
        since, until = _life(knob, name)
        if since and numbers < version(since)[: len(numbers)]:
            yield f"{name}: {who} does not read it: it was added in {since}{_other(knob, name)}"
        elif until and numbers >= _shortest(until):
            yield f"{name}: {who} no longer reads it: it was removed in {until}{_other(knob, name)}"
        elif name == "NCCL_IB_GID_INDEX" and numbers >= OWN_GID and value != "-1":
            yield f"{name}: {who} finds the index of each host by itself: better omit it"


def _life(knob: Knob, name: str) -> Tuple[str, str]:
    """Return since when and until when a name is read: an alias of a name that is gone is what came in its place."""
    return (knob.since, knob.until) if name == knob.name or not knob.until else (knob.until, "")


def _other(knob: Knob, name: str) -> str:
    """Return what to write instead, where it is another name of the same knob."""
    if not knob.until or not knob.aliases:
        return f" ({knob.history})" if knob.until and knob.history.startswith(knob.until) else ""
    return f"; write {knob.aliases[0] if name == knob.name else knob.name}"


def _shortest(text: str) -> Tuple[int, ...]:
    """Return a version without the zeros at its end, so that 5 is not below 5.0."""
    numbers = version(text)
    while numbers and not numbers[-1]:
        numbers = numbers[:-1]
    return numbers
