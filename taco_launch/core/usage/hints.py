"""Say why a job uses little of its GPUs, as far as that can be seen from outside: a table of rules, each with its numbers."""

from typing import Callable, Dict, List, NamedTuple, Tuple

from taco_launch.core.model.job_view import HostUsages, Usage

# About a minute: what is seen for less is no habit.
LEAST_SECONDS = 55.0
_MIB = float(1 << 20)


class Rule(NamedTuple):
    """A cause: when it holds (each value at least, or less than, a limit), what was measured, and what to do about it."""

    at_least: Dict[str, float]
    below: Dict[str, float]
    words: Callable[[Usage], str]
    advice: str


def _of(share: object) -> str:
    return f"{100 * float(share):.0f} %"  # type: ignore[arg-type]  # the rule's limits say that it is known


def _idle(usage: Usage) -> str:
    return f"GPUs idle {_of(1 - (usage.gpu or 0))} of the time"


def _memory(usage: Usage) -> str:
    return f"{_of(usage.gpu_memory)} of the GPU memory is used and {_idle(usage)}"


_WORKERS = (
    "use more data loader workers (num_workers) that load ahead (prefetch_factor), and pinned memory (pin_memory)"
)
_DISKS = "copy the data to a local disk or to memory, merge small files, write checkpoints, events and logs less often"
_NETWORK = (
    "copy the data to the hosts before the job; if it is gradients, use a faster network or communicate less often"
)
RULES: Tuple[Rule, ...] = (
    Rule(
        {"full_cpus": 2, "gpu": 0},
        {"gpu": 0.7, "cpu": 0.6},
        lambda use: f"{_idle(use)} while {use.full_cpus:.0f} of {use.cpus} CPUs are at 100 %",
        _WORKERS,
    ),
    Rule(
        {"thread": 0.9, "gpu": 0},
        {"gpu": 0.7, "cpu": 0.6, "full_cpus": 2},
        lambda use: (
            f"{_idle(use)} while one CPU thread is at {_of(use.thread)} and the host's CPUs are {_of(use.cpu)} busy"
        ),
        _WORKERS,
    ),
    Rule(
        {"thread": 0.9, "job_cpus": 0},
        {"job_cpus": 1.5, "cpu": 0.6, "gpus": 1},
        lambda use: f"one CPU thread is at {_of(use.thread)}, and the job uses {use.job_cpus:.1f} of {use.cpus} CPUs",
        "share the work among more threads, processes or ranks",
    ),
    Rule(
        {"cpu": 0.9, "gpu": 0},
        {"gpu": 0.7},
        lambda use: f"{_idle(use)} while the host's CPUs are {_of(use.cpu)} busy",
        "preprocess the data in a job before this one, or on the GPUs (NVIDIA DALI)",
    ),
    Rule(
        {"iowait_cpus": 0.3},
        {"gpu": 0.7},
        lambda use: f"processes wait for disks: I/O wait is {_of(use.iowait)} of {use.cpus} CPUs",
        _DISKS,
    ),
    Rule(
        {"link": 0.9}, {}, lambda use: f"the busiest network interface carries {_of(use.link)} of its speed", _NETWORK
    ),
    Rule(
        {"gpu": 0, "gpu_memory": 0},
        {"gpu": 0.9, "gpu_memory": 0.3},
        _memory,
        "raise the batch size, then the number of data loader workers",
    ),
    Rule(
        {"swap": _MIB},
        {},
        lambda use: f"the host swaps {(use.swap or 0) / _MIB:.0f} MiB/s",
        "use fewer data loader workers, or less memory in each",
    ),
    Rule(
        {"throttled": 0.1},
        {},
        lambda use: f"GPUs are throttled {_of(use.throttled)} of the time, at {use.temperature or 0:.0f} °C",
        "cooling or power is not sufficient; taco-launch check shows more",
    ),
    Rule(
        {"gpu": 0, "cpu": 0},
        {"gpu": 0.3, "cpu": 0.05, "iowait_cpus": 0.3, "link": 0.5, "thread": 0.5},
        lambda use: f"{_idle(use)}, and the host's CPUs are {_of(use.cpu)} busy",
        "the ranks wait, for data on another host or for each other; taco-launch stacks shows where",
    ),
)


def hints(hosts: HostUsages) -> Tuple[str, ...]:
    """Return each cause that holds on a host, with that host's numbers; of several hosts the first, with how many others."""
    lines = []
    for rule in RULES:
        where = [(name, usage) for name, usage in hosts if usage.seconds >= LEAST_SECONDS and _holds(rule, usage)]
        if where:
            name, usage = where[0]
            others = f" (as on {len(where) - 1} more)" if len(where) > 1 else ""
            lines.append(f"{name}{others}: {rule.words(usage)}: {rule.advice}")
    return tuple(lines)


def _holds(rule: Rule, usage: Usage) -> bool:
    """Return whether a rule holds: a value that is not known reaches no limit."""
    values = {**vars(usage), "iowait_cpus": None if usage.iowait is None else usage.iowait * usage.cpus}
    reached: List[bool] = [values[name] is not None and values[name] >= least for name, least in rule.at_least.items()]
    below = [values[name] is None or values[name] < most for name, most in rule.below.items()]
    return all(reached) and all(below)
