"""A manifest of the Training Operator (kind: PyTorchJob) -> the line of the same job here, which is suggested, not run: pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines import launcher_line, shell_line
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import UnclearError

_ROLES = ("Master", "Worker")
_COMMAND = ("COMMAND",)


def suggested(manifest: Mapping[str, Any]) -> str:
    """Return the line of a PyTorchJob, "" for another object."""
    if manifest["kind"] != "PyTorchJob":
        return ""
    spec = _within(manifest, "spec")
    replicas = [role for name in _ROLES if isinstance(role := _within(spec, "pytorchReplicaSpecs").get(name), dict)]
    containers = [*map(_container, replicas)]
    gpus = next((count for each in containers if (count := _count(_gpus(each)))), 1)
    pods = sum(_count(role.get("replicas")) or 1 for role in replicas)
    words = _plain(next((found for each in containers if (found := tuple(_words(each)))), _COMMAND))
    launcher = inner(words)
    if launcher is None:
        each_pod = ("--per-host",) if gpus > 1 else ()  # else every GPU would have a process of its own
        size = ("--workers", str(pods), "--gpus", str(gpus)) if replicas else ()
        return _line("env", (*each_pod, *size), words)
    each = _count(spec.get("nprocPerNode")) or gpus
    variables: list[str] = []
    try:
        line = launcher_line.read(words[launcher.begin :], launcher)
    except UnclearError:
        words = _COMMAND
    else:
        own = line.last(table.EACH)
        if launcher.kind == "torch" and own is not None:
            each = _count(own.value) or each
        words = (*line.before, *line.program)
        variables = [word for part in line.of(table.ENV) for word in ("-x", f"{part.name}={part.value}")]
    return _line("torchrun", ("--hosts", str(pods), "--slots-per-host", str(each), *variables), words)


def _line(launcher: str, options: Sequence[str], words: Sequence[str]) -> str:
    return shell(("taco-launch", "-i", "FILE", "submit", "--launcher", launcher, *options, "--", *words))


def _plain(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of the program that a shell's line starts, where it does nothing else."""
    try:
        found = shell_line.read(words)
    except UnclearError:
        return words
    return words if found is None else (*(f"{name}={value}" for name, value in found[1].items()), *found[0])


def _container(replica: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _within(_within(replica, "template"), "spec").get("containers")
    return found[0] if isinstance(found, tuple) and found and isinstance(found[0], dict) else {}


def _gpus(container: Mapping[str, Any]) -> Any:
    return _within(_within(container, "resources"), "limits").get("nvidia.com/gpu")


def _words(container: Mapping[str, Any]) -> Iterator[str]:
    for key in ("command", "args"):
        value = container.get(key)
        yield from map(str, value if isinstance(value, tuple) else ())


def _within(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _count(value: Any) -> int:
    """Return a number that is at least 1, 0 for anything else."""
    return int(value) if isinstance(value, (int, str)) and str(value).isdecimal() else 0
