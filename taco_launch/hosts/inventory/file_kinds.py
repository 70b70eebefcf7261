"""Files that people give to -i and that name no hosts, or in another way: each is refused by what it is."""

import re
from collections.abc import Mapping
from typing import Any

from taco_launch.core.errors import Fault, SpecError
from taco_launch.hosts.inventory.schema import names

_INIT = "name the hosts: taco-launch init HOST ... --to hosts.yaml"
_SCRIPT = f"to see the command for it: taco-launch translate {{file}}; {_INIT}"
_JOB = "it describes a job: taco-launch -i hosts.yaml run -f {file}"
_EXPLAIN = "to find the cause of a failure in it: taco-launch explain {file}"
_LOG = (
    r"\bNCCL (?:INFO|WARN) |^Traceback \(most recent call last\)|\[\d+,\d+\]<std(?:out|err)>"
    r"|^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|^\[[\w.-]+:\d+\] |^-{20,}$"
)
# (what, how one of its lines starts, what to do): the first that fits counts.
_BY_LINE = tuple(
    (what, re.compile(form, re.MULTILINE | re.ASCII), hint)
    for what, form, hint in (
        ("a Slurm script", r"^#SBATCH\s", _SCRIPT),
        ("a PBS script", r"^#PBS\s", _SCRIPT),
        ("an LSF script", r"^#BSUB\s", _SCRIPT),
        ("a shell script", r"\A#!.*\b(?:ba|da|a|k|z|c|tc)?sh\b", _SCRIPT),
        (
            "a Python program",
            r"\A#!.*\bpython|\A(?:import|from) \w+",
            "taco-launch -i hosts.yaml run -- python3 {file}",
        ),
        ("a script", r"\A#!", _INIT),
        ("a log", _LOG, _EXPLAIN),
        ("a rankfile of Open MPI", r"^[ \t]*rank[ \t]+\d+[ \t]*=[ \t]*\S+[ \t]+slot", _INIT),
        (
            "an SSH configuration",
            r"^[ \t]*Host[ \t]+\S.*\n(?:[ \t]*(?:#.*)?\n)*[ \t]+[A-Z]\w+\s",
            f"taco-launch follows ~/.ssh/config; {_INIT}",
        ),
        ("a template", r"^[ \t]*(?:\{[{%]|%\{)", "give the inventory that is made from it"),
        ("a table of addresses, as /etc/hosts", r"^[ \t]*(?:\d{1,3}\.){3}\d{1,3}[ \t]+(?!.*=)[A-Za-z]", _INIT),
        ("a log or another text", r"^(?![ \t]*(?:;|//))(?:[^\s#=]+[ \t]+){5,}[^\s#=]+[ \t]*$", _EXPLAIN),
    )
)
# (what, keys at the top of a YAML or JSON file that it alone has, what to do)
_BY_KEY = (
    ("a manifest of Kubernetes", ("apiVersion",), _JOB),
    ("a job file", ("command",), _JOB),
    ("a benchmark matrix", ("workloads",), "taco-launch -i hosts.yaml nightly run {file}"),
    (
        "a configuration of horovodrun",
        ("params", "autotune", "timeline", "stall-check", "library-options"),
        f"it names no hosts; to see the command for it: taco-launch translate {{file}}; {_INIT}",
    ),
    ("a configuration of DeepSpeed", ("train_batch_size", "train_micro_batch_size_per_gpu"), _INIT),
    ("a configuration of Accelerate", ("compute_environment", "distributed_type"), _INIT),
    ("a compose file of Docker", ("services",), _INIT),
    ("the output of ansible-inventory --list", ("_meta",), "give the file that Ansible's own -i names"),
)


def refuse_text(text: str, source: str) -> None:
    """Refuse a file that its lines show to be no inventory.

    Raises:
        SpecError: it is one of the kinds that are known.
    """
    for what, form, hint in _BY_LINE:
        if line := form.search(text):
            raise _refused(source, what, hint, text.count("\n", 0, line.start()) + 1)


def refuse_document(value: Any, own: Mapping[str, object], source: str) -> None:
    """Refuse a document whose keys show it to be no inventory; one with a key that only inventories have is one.

    Raises:
        SpecError: it is one of the kinds that are known.
    """
    if (
        isinstance(value, tuple)
        and value
        and isinstance(value[0], dict)
        and {"hosts", "tasks", "roles"} & set(value[0])
    ):
        raise _refused(source, "a playbook of Ansible", "give the inventory that Ansible's own -i names", 1)
    if not isinstance(value, dict) or {"cluster", "defaults", "groups"} & (own.keys() & value.keys()):
        return
    for what, keys, hint in _BY_KEY:
        if any(key in value for key in keys):
            raise _refused(source, what, hint, 1)


def _refused(source: str, what: str, hint: str, line: int) -> SpecError:
    name = names.plain(source, names.PATH_MAX)
    problem = f"this is {what}, not an inventory or a hostfile"
    fault = Fault(f"line {line}", "", problem)
    return SpecError(name, (fault,), hint.format(file=name), short=f"{name}: {problem}")
