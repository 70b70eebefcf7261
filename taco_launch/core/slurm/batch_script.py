"""JobSpec -> the batch script by which Slurm gives the job its nodes. Pure."""

import math
import posixpath
from typing import Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from taco_launch.core.command import shell
from taco_launch.core.model.engines import SlurmArray, SlurmOptions
from taco_launch.core.model.jobs import JobSpec

# After TERM, what the supervisor and the guards take besides the job's own grace time; seconds.
_BESIDE_SECONDS = 60.0
# What the script itself needs: the job has the environment that it was submitted with.
_EXPORTED = ("HOME", "LANG", "PATH", "SLURM_CONF", "USER")


class Directive(NamedTuple):
    """One #SBATCH line, and why it is there."""

    option: str
    why: str


def directives(spec: JobSpec, output: str, mark: str = "", numbers: Iterable[int] = ()) -> Tuple[Directive, ...]:
    """Return the options of sbatch for a job; `output` is the file for what the script itself prints, `mark` its comment.

    `numbers` are those of the jobs of an array, of which `spec` and `output` are those of one.
    """
    assert spec.slurm is not None
    array, output = spec.slurm.array, output.replace("%", "%%")
    if array is not None:
        folder, file = posixpath.split(output)
        output = posixpath.join(posixpath.dirname(folder), f"{name_of(spec)}-%a", file)
    return (
        *requested(spec),
        *([Directive(f"--array={_elements(numbers, array)}", "--array")] if array is not None else []),
        *_limits(spec),
        Directive("--no-requeue", "retries are the job's own: --backoff-limit"),
        Directive(f"--export={','.join(_EXPORTED)}", "ranks get the environment of the submission, kept with the job"),
        Directive(f"--output={_quoted(output)}", "what Slurm and the supervisor print"),
        Directive("--open-mode=append", "a restarted script keeps what the first one printed"),
        *([Directive(f"--comment={mark}", "by which the job is found again")] if mark else []),
    )


def requested(spec: JobSpec) -> Tuple[Directive, ...]:
    """Return the options for what a job requests of Slurm: its name, size, partition and the like; not its time."""
    assert spec.slurm is not None
    return (
        Directive(f"--job-name={name_of(spec)}", "the job's name"),
        *_size(spec),
        *(Directive(f"--{option}={value}", why) for option, value, why in _passed_on(spec.slurm) if value),
    )


def name_of(spec: JobSpec) -> str:
    """Return the name of a job in Slurm: that of its array, where it belongs to one."""
    assert spec.slurm is not None
    return spec.name if spec.slurm.array is None else spec.name.rpartition("-")[0]


def _elements(numbers: Iterable[int], array: SlurmArray) -> str:
    """Return the value of --array for some numbers, such as 0-3,8%2."""
    ranges: List[List[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    text = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)
    return text if array.limit is None else f"{text}%{array.limit}"


def script(lines: Sequence[Directive], agent: str, folder: str, *, is_array: bool = False) -> str:
    """Return the batch script: it starts the job's queue and supervisor on the first node of the allocation.

    The folders of the jobs of an array are called as `folder`, followed by a hyphen and their numbers.
    """
    options = [f"#SBATCH {directive.option}" for directive in lines]
    command = shell(("python3", "-I", "-S", agent, "allocation", folder))
    command += '"-$SLURM_ARRAY_TASK_ID"' if is_array else ""
    return "\n".join(("#!/bin/sh", *options, f"exec {command}", ""))


def _quoted(path: str) -> str:
    """Return a path as sbatch reads it in a script: it splits lines at blanks, and knows quotes."""
    return f'"{path}"' if " " in path else path


def _size(spec: JobSpec) -> Iterator[Directive]:
    assert spec.slurm is not None
    ranks, hosts, each = spec.np, spec.host_count, spec.slots_per_host
    if spec.slots_per_worker is not None:  # no worker spans two hosts
        ranks, hosts, each = None, (spec.np or 0) // spec.slots_per_worker, spec.slots_per_worker
    least = f"{spec.least_hosts}-" if spec.least_hosts is not None else ""
    if hosts is not None:
        yield Directive(f"--nodes={least}{hosts}", "hosts of the job")
    if ranks is not None:
        yield Directive(f"--ntasks={ranks}", "ranks of the job")
    each = each if ranks is None else spec.most_per_host
    if each is not None:
        yield Directive(f"--ntasks-per-node={each}", "ranks on each host" if ranks is None else "most ranks on a host")
    if spec.slurm.gpus and each is not None and ranks is None:
        yield Directive(f"--gres=gpu:{each}", "a GPU for each rank")
    elif spec.slurm.gpus:
        yield Directive("--gpus-per-task=1", "a GPU for each rank")
    if spec.exclusive:
        yield Directive("--exclusive", "--exclusive: no other job on these hosts")
    if spec.slurm.exclude:
        yield Directive(f"--exclude={','.join(spec.slurm.exclude)}", "hosts that were not chosen")


def _passed_on(options: SlurmOptions) -> List[Tuple[str, str, str]]:
    return [
        ("partition", options.partition, "--partition"),
        ("account", options.account, "--account"),
        ("qos", options.qos, "--qos"),
        ("constraint", options.constraint, "--constraint"),
        ("reservation", options.reservation, "--reservation"),
        ("dependency", options.dependency, "--dependency"),
    ]


def _limits(spec: JobSpec) -> Iterator[Directive]:
    policy = spec.policy
    if policy.timeout is not None:
        minutes = math.ceil((policy.timeout + policy.grace + _BESIDE_SECONDS) / 60)
        yield Directive(f"--time={minutes}", "--timeout in minutes, and the time that the job's end takes")
