"""How many ranks a launcher's line starts, and where -> the options for the size of a job: pure."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence

from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, Part, UnclearError

COUNTED = {table.RANKS: "--np", table.EACH: "--slots-per-host", table.NODES: "--hosts"}
_OF_HOSTS = ("node-rank", "machine-rank", "nnodes", "num-machines", "nproc-per-node")
# Launchers whose process is a job of one host unless its line counts hosts.
_ALONE_BY_DEFAULT = ("torch", "accelerate", "composer", "colossalai")
# Launchers whose option for GPUs is one of each task, or of so many as a resource set has.
_GIVES_EACH_TASK = ("jsrun", "lrun", "flux")
_OF_NCCL_TESTS = re.compile(r"(?:.*/)?[a-z_]+_perf(?:_mpi)?")


def of_line(line: LauncherLine) -> Iterator[str]:
    """Yield the options for how many ranks a line starts, and for an elastic job of Horovod its launcher."""
    each = _counts(line)[1]
    if hosts := changing_hosts(line, each):
        yield from ("--launcher", "horovod", "--elastic", "--hosts", hosts, "--slots-per-host", each)
    else:
        yield from _of_ranks(line)


def _of_ranks(line: LauncherLine) -> Iterator[str]:
    if line.kind == "accelerate" and any(part.words == ("--cpu",) for part in line.parts):
        yield from ("--np", "1")
        return
    ranks, each, nodes = _counts(line)
    # A count that is there, but not known, has no default.
    unknown = {part.name for part in line.of(table.REFUSED)}
    automatic = table.EACH in unknown or (not each and any("nproc" in part.words[0] for part in line.of(table.OMITTED)))
    if line.kind in (
        "srun",
        "flux",
    ):  # srun(1): --ntasks-per-node is a limit beside --ntasks, and a node has one task by default
        each = (
            ("" if nodes else each)
            if ranks
            else each or ("1" if nodes and not automatic and table.RANKS not in unknown else "")
        )
    if ranks and nodes.isdecimal() and not each and int(ranks) % int(nodes) == 0:
        each, ranks = str(int(ranks) // int(nodes)), ""
    each = each or _in_turn(line, ranks, nodes)
    if line.kind == "torch":  # torch/distributed/run.py: --nnodes is 1 by default, and so is --nproc-per-node
        nodes, each = nodes or ("" if table.NODES in unknown else "1"), each if automatic else each or "1"
    if ranks:
        yield from ("--np", ranks)
        if each:
            yield from ("--slots-per-host", each)
    elif nodes == "1" and each and (each == "1" or line.kind in table.OF_PYTHON):
        yield from ("--np", each)
    elif nodes:
        yield from (*elastic(line.kind, nodes), "--hosts", nodes)
        if each:
            yield from ("--slots-per-host", each)
    elif each and (
        line.kind in ("mpirun", "hydra")
        or table.NODES in unknown
        or line.last(table.HOSTS)
        or line.last(table.HOSTFILE)
    ):
        yield from ("--slots-per-host", each)
    elif each:
        yield from ("--np", each)


def changing_hosts(line: LauncherLine, each: str, most: int = 0) -> str:
    """Return MIN:MAX hosts of a line of horovodrun whose ranks come and go, "" for any other.

    Hosts have `each` ranks: MIN of them have at least the ranks that the line has, MAX of them at most. `most` is how many
    ranks there can be where the line has no limit; its -np is its lower limit where it has no other (horovod/runner/launch.py).
    """
    least, limit = line.last(table.LEAST) or line.last(table.RANKS), line.last(table.MOST)
    if not (line.last(table.LEAST) or limit):
        return ""
    counts = (least.value if least else "", limit.value if limit else str(most), each)
    if not all(count.isdecimal() and int(count) for count in counts):
        return ""
    ranks, ranks_at_most, slots = map(int, counts)
    fewest, largest = -(-ranks // slots), ranks_at_most // slots
    return f"{fewest}:{largest}" if fewest < largest else ""


def elastic(kind: str, nodes: str) -> tuple[str, ...]:
    """Return the option for a job that gains and loses hosts: torchrun's is one where it has a range of them."""
    least, colon, most = nodes.partition(":")
    return ("--elastic",) if kind == "torch" and colon and least != most else ()


def _counts(line: LauncherLine) -> tuple[str, str, str]:
    """Return the ranks, the ranks of each host and the hosts of a line, "" where it does not say; srun(1) starts one task by default."""
    ranks, each, nodes = (part.value if part else "" for part in (line.last(use) for use in COUNTED))
    counted = not {part.name for part in line.of(table.REFUSED)} & {*COUNTED}
    if (
        times := line.last(table.TIMES)
    ) is not None and times.value.isdecimal():  # of each set that -n and -r of jsrun count
        ranks, each = (str(int(count) * int(times.value)) if count else "" for count in (ranks, each))
    return ("1" if line.kind in ("srun", "flux") and counted and not (ranks or each or nodes) else ranks), each, nodes


def is_uncounted(line: LauncherLine) -> bool:
    """Return whether a line counts no ranks, of a launcher that then uses the GPUs of its host."""
    counts = {part.name if part.use == table.REFUSED else part.use for part in line.parts}
    has_settings = any("config" in part.words[0] for part in line.of(table.REFUSED))
    nodes = line.last(table.NODES)
    places = {*COUNTED, table.HOSTS, table.HOSTFILE} - ({table.NODES} if nodes and nodes.value == "1" else set())
    return line.kind in table.ON_ONE_HOST and not has_settings and not counts & places


def total(size: Sequence[str]) -> int:
    """Return the number of ranks of a size, 0 where it is not known."""
    given = dict(itertools.pairwise(size))
    factors = [given["--np"]] if "--np" in given else [given.get("--hosts", ""), given.get("--slots-per-host", "")]
    return math.prod(map(int, factors)) if all(factor.isdecimal() for factor in factors) else 0


def alone(outer: Sequence[str], inside: Sequence[str], kind: str) -> str:
    """Return what a launcher does that starts another one, of that kind, several times, each for itself; "" for any other.

    `outer` and `inside` are the options of the two.
    """
    started, own = total(outer), dict(itertools.pairwise(inside))
    if started > 1 and kind in table.OF_MPI and total(inside) != started:
        return f"starts it {started} times, each with ranks of its own; here it starts once"
    if started < 2 or "--hosts" in own or kind not in _ALONE_BY_DEFAULT:
        return ""
    one = f"--hosts {started} --slots-per-host {own.get('--np', 'N')}"
    return f"starts it {started} times, and without a number of hosts each is a job of its own; one job of all: {one}"


def _in_turn(line: LauncherLine, ranks: str, nodes: str) -> str:
    """Return how many ranks each host has if the line gives them out in turn; "" where that is not one number, or not known."""
    if not ranks or line.last(table.SPREAD) is None:
        return ""
    named = {each.partition(":")[0] for part in line.of(table.HOSTS) for each in part.value.split(",")}
    hosts = len(named) or int(nodes if nodes.isdecimal() else "0")
    return str(max(1, int(ranks) // hosts)) if hosts and (int(ranks) <= hosts or int(ranks) % hosts == 0) else ""


def of_gpus(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the ranks that Slurm counts by GPUs, by those of each task or the tasks of each, where nothing else counts them."""
    given = {part.use: part for part in parts}
    if {table.RANKS, table.EACH} & {*given}:
        return ()
    per_task = [part for part in parts if part.use == table.GPUS and "gpus-per-task" in part.words[0]][-1:]
    per_host = [part for part in parts if part.use == table.GPUS and "per-task" not in part.words[0]][-1:]
    every, times = given.get(table.ALL_GPUS), given.get(table.PER_GPU)
    counted = (every, times, *per_task) if every else (*per_host, times)
    words = tuple("=".join(part.words) for part in counted if part)
    if every and (times or per_task):
        gpus, each = int(every.value), int(per_task[0].value) if per_task and not times else 1
        ranks = gpus // each * int(times.value if times else "1")
        return () if gpus % each else (Part(0, words, table.RANKS, value=str(ranks)),)
    if per_host and times:
        return (Part(0, words, table.EACH, value=str(int(per_host[0].value) * int(times.value))),)
    return ()


def of_hosts(line: LauncherLine) -> tuple[str, ...]:
    """Return the options for a line of srun with one process for each host, which has several GPUs; () for others."""
    ranks, each, nodes = _counts(line)
    hosts = nodes or ranks
    of_host, of_all = line.last(table.GPUS), line.last(table.ALL_GPUS)
    gpus = of_host.value if of_host else ""
    if of_all and not of_host and hosts.isdecimal() and int(of_all.value) % int(hosts) == 0:
        gpus = str(int(of_all.value) // int(hosts))
    if line.kind != "srun" or int(gpus or "1") < 2 or {part.name for part in line.of(table.REFUSED)} & {*COUNTED}:
        return ()
    if each not in ("", "1") or not (each or ranks or nodes) or (ranks and ranks != (nodes or ("" if each else "1"))):
        return ()
    return (*(("--hosts", hosts) if hosts else ()), "--slots-per-host", gpus)


def is_per_host(line: LauncherLine, program: Sequence[str]) -> bool:
    """Return whether a line starts one process for each host, which uses several of its GPUs.

    Raises:
        UnclearError: that process is one of MPI, and a rank of MPI has one slot here, which is one GPU.
    """
    is_one = bool(of_hosts(line))
    gpus, times = (line.last(use) for use in (table.GPUS, table.TIMES))
    if gpus and line.kind in _GIVES_EACH_TASK and int(gpus.value) > int(times.value if times else "1"):
        problem = "is a task with several GPUs, but a rank has one slot here, which is one GPU"
        hint = "start a rank for each GPU: taco-launch run --np N -- PROGRAM; or one process on each host, which uses its GPUs: --launcher env --per-host --slots-per-host GPUS"
        raise UnclearError(line.begin, problem, hint)
    is_test = line.kind == "srun" and bool(gpus_of_test(program))
    is_mpi = any(p.words[0].startswith("--mpi") and not p.words[-1].endswith("none") for p in line.parts)
    if is_test or (is_one and is_mpi):
        problem = "is one process of MPI for several GPUs, but a rank of MPI has one slot here, which is one GPU"
        hint = "start a rank for each GPU: -g 1 of nccl-tests; without MPI: --launcher env --per-host --slots-per-host GPUS"
        raise UnclearError(line.begin, problem, hint)
    return is_one


def misplaced(line: LauncherLine) -> Iterator[str]:
    """Yield options that torch's launchers count hosts and ranks by, where they are behind the program and not before it."""
    before = {part.words[0].lstrip("-").replace("_", "-").partition("=")[0] for part in line.parts}
    for word in line.program[1:] if line.kind in table.OF_PYTHON else ():
        name = word.lstrip("-").replace("_", "-").partition("=")[0]
        if word.startswith("--") and name in _OF_HOSTS and name not in before:
            yield word


def gpus_of_test(program: Sequence[str]) -> str:
    """Return how many GPUs each process of nccl-tests uses; "" for one, and for other programs."""
    begin = next((at for at, word in enumerate(program) if _OF_NCCL_TESTS.fullmatch(word)), len(program))
    given = [value for option, value in itertools.pairwise(program[begin:]) if option in ("-g", "--ngpus")]
    return given[-1] if given and given[-1].isdecimal() and int(given[-1]) > 1 else ""
