"""The GPUs of this host, by nvidia-smi: which there are, and who uses them."""

import contextlib
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.mig import MIG

# A driver that hangs must not hang the job's start for ever (Azure's and NHC's health checks use 30 s too).
_SMI_SECONDS = 30.0
_NO_DEVICES = 6  # nvidia-smi(1), RETURN VALUE: a query to find an object was unsuccessful
_LIST = ("-L",)
# Where each GPU that the driver has started, or that set-up gave a container, has a file: nvidia0, nvidia1, ...
_DEVICES = Path("/dev")
_TOPOLOGY = ("topo", "-m")
_FORMAT = "--format=csv,noheader,nounits"
_PROCESSES = ("--query-compute-apps=gpu_uuid,pid,process_name,used_memory", _FORMAT)
_MEMORY = ("--query-gpu=uuid,memory.used", _FORMAT)
_ERRORS = ("--query-gpu=uuid,ecc.errors.uncorrected.volatile.total", _FORMAT)
# Oldest names: drivers before 535 know no others, and later ones know both.
COUNTERS = (
    "--query-gpu=uuid,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu,clocks_throttle_reasons.active",
    _FORMAT,
)
# See `GpuUse.describe`.
_IDLE_MIB = 1024


class GpuClient(NamedTuple):
    """A process on a GPU, by the name that nvidia-smi gives it."""

    pid: int
    name: str


class GpuUse(NamedTuple):
    """Who uses a GPU: its processes, and how much of its memory is in use (MiB, None where it is not known).

    `errors` are its uncorrectable memory errors since the driver was loaded, 0 where they were not asked for.
    """

    processes: Tuple[GpuClient, ...] = ()
    mib: Optional[int] = None
    errors: int = 0

    def describe(self) -> str:
        """Return who uses it, nothing where it is idle.

        A GPU that nobody uses shows some memory in use all the same: NVML counts what driver and firmware keep for
        themselves (NVML API reference, nvmlMemory_v2_t: `used` includes `reserved`). Seen there were 103 MiB on a P100
        (gpustat, issue 130) and 517 MiB on an A10 (mayooot/detect-gpu, issue 3), and canhazgpu, which started with 100 MB,
        calls a GPU free below 1 GB by now (its issue 5); so do we. Nor are processes told that this container or this
        user may not see.
        """
        if self.processes:
            plural = "es" if len(self.processes) > 1 else ""
            return f"used by process{plural} {', '.join(map(_describe_client, self.processes))}"
        if self.mib is not None and self.mib >= _IDLE_MIB:
            return f"with {self.mib} MiB of its memory in use by a process that is not visible here"
        if self.errors:
            return f"kept back by a check: ECC: {self.errors} uncorrectable errors (taco-launch check shows what to do)"
        return ""


class GpuIdentity(NamedTuple):
    """One GPU: its UUID, and its model with ` MIG` behind it where it is divided into instances."""

    uuid: str
    model: str


def listed(*, needed: bool) -> Optional[Tuple[str, ...]]:
    """Return the UUIDs of the GPUs that there are, as `found` does."""
    gpus = found(needed=needed)
    return None if gpus is None else tuple(gpu.uuid for gpu in gpus)


def found(*, needed: bool) -> Optional[Tuple[GpuIdentity, ...]]:
    """Return the GPUs that `nvidia-smi -L` lists (`GPU 0: NAME (UUID: ...)`), none without the tool.

    None where the tool is there but does not answer, so that nobody knows, unless it is `needed`.

    Raises:
        HostError: nobody knows, and it is needed.
    """
    if shutil.which("nvidia-smi") is None:  # a folder of PATH that may not be searched makes no error of it
        return ()
    try:
        (listing,) = _asked(_LIST)
    except HostError:
        if needed:
            raise
        return None
    rows = re.findall(r"^GPU (\d+):(?: *(.*?) *\(UUID: ([\w-]+)\))?((?:\n\s+MIG .*)?)", listing, re.MULTILINE)
    return tuple(GpuIdentity(uuid or f"slot-{index}", model + (MIG if mig else "")) for index, model, uuid, mig in rows)


def lacking(count: int) -> str:
    """Return that fewer GPUs answer than have a device file here, "" where `count`, of those that answer, is as many."""
    with contextlib.suppress(OSError):
        files = sum(re.fullmatch("nvidia[0-9]+", name) is not None for name in os.listdir(_DEVICES))
        if (
            files > count and shutil.which("nvidia-smi") is not None
        ):  # else an image without it, which has GPUs all the same
            return f"nvidia-smi lists {count} of the {files} GPUs that have a device file ({_DEVICES}/nvidiaN)"
    return ""


def matrix() -> str:
    """Return what `nvidia-smi topo -m` prints.

    Raises:
        HostError: it does not answer.
    """
    return _asked(_TOPOLOGY)[0]


def used(*, errors: bool = False) -> Dict[str, GpuUse]:
    """Return who uses each GPU, by its UUID; with `errors` also how many memory errors it has had.

    Raises:
        HostError: nvidia-smi does not answer.
    """
    processes, memory, *more = _asked(_PROCESSES, _MEMORY, *((_ERRORS,) if errors else ()))
    use = parse_use(processes, memory)
    for line in "".join(more).splitlines():
        uuid, _, count = (each.strip() for each in line.partition(","))
        if uuid in use and count.isdecimal():  # else it has no ECC
            use[uuid] = use[uuid]._replace(errors=int(count))
    return use


def counters() -> str:
    """Return what nvidia-smi says of the use of each GPU, once.

    Raises:
        HostError: it does not answer.
    """
    return _asked(COUNTERS)[0]


def parse_use(processes: str, memory: str) -> Dict[str, GpuUse]:
    """Read what nvidia-smi says: lines `UUID, PID, NAME, MIB` of processes, and `UUID, MIB` of GPUs."""
    found: Dict[str, List[GpuClient]] = {}
    for line in processes.splitlines():
        uuid, _, rest = line.partition(", ")
        pid, _, rest = rest.partition(", ")
        if pid.strip().isdecimal():
            name = rest.rpartition(", ")[0].strip()  # which may hold commas itself
            found.setdefault(uuid.strip(), []).append(GpuClient(int(pid), name))
    sizes: Dict[str, Optional[int]] = dict.fromkeys(found)
    for line in memory.splitlines():
        uuid, comma, mib = line.partition(",")
        if comma:
            sizes[uuid.strip()] = int(mib) if mib.strip().isdecimal() else None
    return {uuid: GpuUse(tuple(found.get(uuid, ())), mib) for uuid, mib in sizes.items()}


def describe(name: str, use: Mapping[str, GpuUse]) -> str:
    """Return who uses the GPU of that UUID, nothing where it is idle."""
    return use[name].describe() if name in use else "not listed by nvidia-smi"


def _describe_client(process: GpuClient) -> str:
    name = process.name.rpartition("/")[2]
    if not name or name.startswith("["):  # [Not Found]: of another container
        name = "name not reported by nvidia-smi"
    try:
        owner = pwd.getpwuid(Path(f"/proc/{process.pid}").stat().st_uid).pw_name
    except (OSError, KeyError):
        return f"{process.pid} ({name})"
    return f"{process.pid} ({name} of {owner})"


def _asked(*questions: Sequence[str]) -> Tuple[str, ...]:
    """Return nvidia-smi's answers to questions that are asked side by side.

    Raises:
        HostError: nvidia-smi fails, or does not answer in time.
    """
    hint = "repair the driver, or set how many ranks the host runs: slots in the inventory, or -H HOST:N"
    running: List[subprocess.Popen[str]] = []
    answers = []
    try:
        for question in questions:
            running.append(_start(question))  # noqa: PERF401 - those that were started are ended where one is not
        for question, process in zip(questions, running):
            said, complaint = process.communicate(timeout=_SMI_SECONDS)
            if process.returncode not in (0, _NO_DEVICES):
                first = (said + complaint).strip().splitlines()
                why = f"exit {process.returncode}: {first[0] if first else ''}"
                raise HostError(f"{_name(question)}: {why}", hint)
            answers.append(said)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"{_name(questions[len(answers)])}: {error}", hint) from None
    finally:
        for process in running:
            with process:  # which waits for it, and closes its pipes
                process.kill()
    return tuple(answers)


def _name(question: Sequence[str]) -> str:
    return f"nvidia-smi {question[0].partition('=')[0]}"


def _start(question: Sequence[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["nvidia-smi", *question],  # noqa: S607 - it lies elsewhere on some hosts
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
