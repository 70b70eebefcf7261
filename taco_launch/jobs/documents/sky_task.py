"""A task of SkyPilot (`run`, `num_nodes`, `resources`, `envs`) -> the script that its hosts run, and what it has beside that."""

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from taco_launch.core.command import shell
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.inventory.schema.document import OddValue
from taco_launch.hosts.inventory.schema.names import as_word
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.container_options import image
from taco_launch.jobs.command_lines.sizes import total
from taco_launch.jobs.command_lines.translation import Row

_KEYS = ("resources", "num_nodes", "setup", "envs", "file_mounts", "workdir")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,6}")
_MOST = 10**6 - 1
_PER_HOST = "--launcher env --per-host"
_WHY = {
    "setup": "prepare it in the image, or on the hosts",
    "file_mounts": "put the files on the hosts, or into the inventory, and mount them: --data",
}


@dataclass(frozen=True)
class SkyTask:
    """A task: the script that each of its `hosts` runs, options here, the GPUs of a host (0 for none), and rows for the rest."""

    script: str
    options: tuple[str, ...]
    hosts: int
    gpus: int
    rows: tuple[Row, ...]

    def by_hand(self, options: Sequence[str], program: Sequence[str]) -> str:
        """Return what to type where no launcher starts a program that all hosts run; "" where a job has them all."""
        if total(options) != 1 or self.hosts < 2:
            return ""
        size = f"--hosts {self.hosts} --slots-per-host {self.gpus or 1}"
        return f"taco-launch run {_PER_HOST} {size} -- {shell(tuple(program))}"

    def remarks(self, options: Sequence[str]) -> Iterator[Row]:
        """Yield what a job with these options does not have of the task's hosts and GPUs."""
        sizes = dict(itertools.pairwise(options))
        if self.hosts > 1 and sizes.get("--hosts") != str(self.hosts) and total(options) != self.hosts * self.gpus:
            why = f"the line in `run` counts its hosts itself: is it one job of all, --hosts {self.hosts}?"
            yield Row(f"num_nodes: {self.hosts}", "", why, is_remark=True)
        if self.gpus > 1 and total(options) == 1:
            why = f"the one rank has one GPU; for all of them: {_PER_HOST} --hosts 1 --slots-per-host {self.gpus}"
            yield Row("resources.accelerators", "", why, is_remark=True)


def is_task(value: Mapping[str, Any]) -> bool:
    """Return whether a document is a task of SkyPilot."""
    return isinstance(value.get("run"), str) and any(key in value for key in _KEYS)


def read(value: Mapping[str, Any]) -> SkyTask:
    """Return what a task has."""
    nodes = value.get("num_nodes", 1)
    hosts = nodes if type(nodes) is int and 0 < nodes <= _MOST else 0  # no bool
    resources = value.get("resources")
    resources = resources if isinstance(resources, Mapping) else {}
    model, gpus = _accelerators(resources.get("accelerators"))
    envs = value.get("envs")
    variables = {
        name: _text(text)
        for name, text in (envs.items() if isinstance(envs, Mapping) else ())
        if _NAME.fullmatch(str(name)) and text is not None
    }
    begin = f"SKYPILOT_NUM_NODES={hosts or 1}; SKYPILOT_NUM_GPUS_PER_NODE={gpus or 1}; "
    begin += "".join(f"export {name}={shell((text,))}; " for name, text in variables.items())
    rows = [Row(f"{key}: {_short(value[key])}", "", why) for key, why in _WHY.items() if key in value]
    if not hosts:
        rows.append(Row("num_nodes", "", "is not a number of hosts: --hosts N"))
    options: tuple[str, ...] = ()
    name = value.get("name")
    if isinstance(name, str) and as_word(name):
        options = ("--name", as_word(name))
        rows.append(Row(f"name: {name}", shell(options)))
    workdir = value.get("workdir")
    if isinstance(workdir, str):
        options += ("--sync", workdir)
        rows.append(Row(f"workdir: {_short(workdir)}", shell(("--sync", workdir))))
    elif workdir is not None:
        rows.append(Row(f"workdir: {_short(workdir)}", "", "fetch it here first, and copy it: --sync FOLDER"))
    if gpus:
        why = f"{table.ONE_GPU_EACH}; for that model only: --gpu-model {model}"
        rows.append(Row(f"resources.accelerators: {model}:{gpus}", "", why))
    for key, setting in resources.items():
        here = _image(str(setting)) if key == "image_id" else ()
        if key != "accelerators":
            why = "" if here else "the inventory has the hosts"
            rows.append(Row(f"resources.{key}: {_short(setting)}", shell(here) if here else "", why))
        options += here
    return SkyTask(begin + value["run"], options, hosts or 1, gpus, tuple(rows))


def _image(value: str) -> tuple[str, ...]:
    """Return the option for an image of a registry, () for one of a cloud."""
    with contextlib.suppress(ValueError):
        return ("--image", image(value)) if value.startswith("docker:") else ()
    return ()


def _text(value: Any) -> str:
    """Return a value as it is written."""
    return value.text if isinstance(value, OddValue) else str(value)


def _accelerators(value: Any) -> tuple[str, int]:
    """Return the model of the GPUs of a host, and their number, of `A100:8` or `{A100: 8}`; of several, of the first."""
    first = next(iter(value), "") if isinstance(value, (Mapping, tuple)) else value
    model, _colon, count = str(first or "").partition(":")
    count = str(value[first] or count) if isinstance(value, Mapping) and first else count
    return model, int(count) if _COUNT.fullmatch(count) else int(bool(model))


def _short(value: Any) -> str:
    """Return a value of a row in one line."""
    text = ", ".join(map(str, value)) if isinstance(value, (Mapping, tuple)) else _text(value)
    return " ".join(text.split())[:40]
