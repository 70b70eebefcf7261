"""A manifest of the Training Operator (kind: PyTorchJob) -> the line of the same job here, which is suggested, not run: pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines import launcher_line, shell_line
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import UnclearError

_ROLES = ("Master", "Worker")
_COMMAND = ("COMMAND",)
_KINDS = ("PyTorchJob", "TrainJob")
_GPUS = "nvidia.com/gpu"


def suggested(manifest: Mapping[str, Any]) -> str:
    """Return the line of a PyTorchJob or a TrainJob, "" for another object."""
    if manifest["kind"] not in _KINDS:
        return ""
    options, words = job_of(manifest)
    return shell(("taco-launch", "-i", "FILE", "submit", *options, "--", *words))


def job_of(manifest: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options and the program of a PyTorchJob or a TrainJob (trainer.kubeflow.org/v1alpha1)."""
    spec = _within(manifest, "spec")
    if manifest["kind"] == "TrainJob":
        trainer = _within(spec, "trainer")
        containers, pods = [trainer], _count(trainer.get("numNodes")) or 1
        own = _count(trainer.get("numProcPerNode"))
        gpus = _count(_within(_within(trainer, "resourcesPerNode"), "limits").get(_GPUS)) or 1
    else:
        replicas = [role for name in _ROLES if isinstance(role := _within(spec, "pytorchReplicaSpecs").get(name), dict)]
        containers, pods = [*map(_container, replicas)], sum(_count(role.get("replicas")) or 1 for role in replicas)
        own = _count(spec.get("nprocPerNode"))
        gpus = next((count for each in containers if (count := _count(_gpus(each)))), 1)
    words = _plain(next((found for each in containers if (found := tuple(_words(each)))), _COMMAND))
    variables = [word for text in _env(next(iter(containers), {})) for word in ("-x", text)]
    launcher = inner(words)
    if launcher is None:
        each_pod = ("--per-host",) if gpus > 1 else ()  # else every GPU would have a process of its own
        size = ("--workers", str(pods), "--gpus", str(gpus)) if pods else ()
        return ("--launcher", "env", *each_pod, *size, *variables), words
    each = own or gpus
    try:
        line = launcher_line.read(words[launcher.begin :], launcher)
    except UnclearError:
        words = _COMMAND
    else:
        per_node = line.last(table.EACH)
        if launcher.kind == "torch" and per_node is not None:
            each = _count(per_node.value) or each
        words = (*line.before, *line.program)
        variables += [word for part in line.of(table.ENV) for word in ("-x", f"{part.name}={part.value}")]
    return ("--launcher", "torchrun", "--hosts", str(pods), "--slots-per-host", str(each), *variables), words


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
    return _within(_within(container, "resources"), "limits").get(_GPUS)


def _words(container: Mapping[str, Any]) -> Iterator[str]:
    for key in ("command", "args"):
        value = container.get(key)
        yield from map(str, value if isinstance(value, tuple) else ())


def _env(container: Mapping[str, Any]) -> Iterator[str]:
    """Yield the variables whose values are written there."""
    entries = container.get("env")
    for entry in entries if isinstance(entries, tuple) else ():
        if (
            isinstance(entry, dict)
            and isinstance(entry.get("name"), str)
            and isinstance(entry.get("value"), (str, int))
        ):
            yield f"{entry['name']}={entry['value']}"


def _within(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _count(value: Any) -> int:
    """Return a number that is at least 1, 0 for anything else."""
    return int(value) if isinstance(value, (int, str)) and str(value).isdecimal() else 0
