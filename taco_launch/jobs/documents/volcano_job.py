"""A Job of Volcano (batch.volcano.sh) -> the document of a job file, as far as it has a counterpart here.

Its tasks are pods. Where one of them starts mpirun, and the other has the sshd that mpirun comes by, they are the launcher
and the workers of an MPIJob; any others all start one program, as the pods of a PyTorchJob do. Volcano tells each pod of
the others by VC_ variables (volcano-sh/volcano, pkg/controllers/job/plugins).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.hosts.inventory.schema.faults import Loc
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines import shell_script
from taco_launch.jobs.command_lines.launcher_line import Part
from taco_launch.jobs.command_lines.shell_script import shown
from taco_launch.jobs.documents import pods
from taco_launch.jobs.documents.manifest import SPEC, Manifest, Started
from taco_launch.jobs.documents.mpi_job import MpiJob
from taco_launch.jobs.documents.pytorch_job import PyTorchJob

_TASKS: Loc = (*SPEC, "tasks")
_GROUP = "batch.volcano.sh/"
_VC = re.compile(r"\bV[CK]_[A-Z_]+")
_PODS_HOSTS = "the hosts of the pods: the inventory has the hosts"


def is_one(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a Job of Volcano, and none of Kubernetes itself."""
    return value.get("kind") == "Job" and str(value.get("apiVersion")).startswith(_GROUP)


def reader(value: dict[str, Any]) -> type[Manifest]:
    """Return what reads a Job: one task that starts ranks of MPI beside others is a launcher."""
    tasks = value["spec"].get("tasks") if isinstance(value.get("spec"), dict) else None
    is_launching = [*map(_starts_mpi, tasks)] if isinstance(tasks, tuple) else []
    return _OfMpi if len(is_launching) > 1 and True in is_launching else _OfPods


def _starts_mpi(task: Any) -> bool:
    words = [*_words(task)]
    lines = [words, *(each.words for each in shell_script.read(shell_script.of_line(words or [""])).commands)]
    return any(
        (launcher := inner((*line, "-"))) is not None and launcher.kind in table.OF_MPI for line in lines if line
    )


def _words(value: Any, key: str = "") -> Iterator[str]:
    """Yield the words of the commands in a task."""
    if isinstance(value, dict):
        for name in ("template", "spec", "containers", "command", "args"):
            yield from _words(value.get(name), name)
    elif isinstance(value, tuple):
        for each in value:
            yield from [each] if isinstance(each, str) and key in ("command", "args") else _words(each)


class _Volcano(Manifest):
    """Reads what both forms have."""

    def policy(self) -> None:
        """Take how the job ends, and in which queue it waits."""
        self.keep(("runPolicy", "backoffLimit"), (*SPEC, "maxRetry"))
        self.keep(("runPolicy", "ttlSecondsAfterFinished"), (*SPEC, "ttlSecondsAfterFinished"))
        self.keep(("runPolicy", "schedulingPolicy", "queue"), (*SPEC, "queue"))
        for key in ("schedulerName", "minAvailable", "plugins"):
            self.take((*SPEC, key))

    def tasks(self) -> list[Loc]:
        """Return the places of the tasks."""
        tasks = self.at(_TASKS)
        places: list[Loc] = [(*_TASKS, index) for index in range(len(tasks))] if isinstance(tasks, tuple) else []
        for place in places:
            for key in (("name",), ("policies",), ("template", "spec", "restartPolicy")):
                self.take((*place, *key))
        if not places:
            self.faults.add(_TASKS, "must be the pods of the job", value="missing")
        return places

    def keeps(self, _rows: Sequence[str]) -> bool:
        """Return that what a script does beside its launcher is left out, and named: Volcano's launcher has an sshd of its own."""
        return True

    def given(self) -> dict[str, str]:
        """Return the variables by which Volcano counts the pods of each task."""
        counts = {}
        for place in self.tasks():
            name, count = self.at((*place, "name")), self.at((*place, "replicas"))
            counts[f"VC_{str(name).upper().replace('-', '_')}_NUM"] = str(1 if count is None else count)
        return counts


class _OfMpi(_Volcano, MpiJob):
    """Reads a launcher and its workers."""

    managers = ()
    passes_variables = False

    def read(self) -> bool:
        """Read all of it."""
        places = self.tasks()
        launching = [place for place in places if _starts_mpi(self.at(place))]
        workers = [place for place in places if place not in launching]
        if len(launching) != 1 or len(workers) != 1:
            self.faults.add(_TASKS, "must be one task that starts mpirun, and one that has its workers")
            return False
        (self.launcher,), (self.worker,) = launching, workers
        self.policy()
        self.size()
        self.name()
        self.replicas()
        return True

    def size(self) -> None:
        """Take the workers, and a rank for each GPU of theirs."""
        self.document["slotsPerWorker"] = pods.gpus(self, self._resources()) or 1
        super().size()

    def _resources(self) -> Loc:
        return (*self.worker, "template", "spec", "containers", 0, "resources")

    def ranks(self, np: int, place: Loc) -> None:
        """Take the line's number of ranks, of which each worker has as many where no GPUs count them."""
        workers = self.document.get("workers")
        if isinstance(workers, int) and np % workers == 0 and not pods.gpus(self, self._resources()):
            self.document["slotsPerWorker"] = np // workers
        super().ranks(np, place)

    def refused(self, part: Part) -> bool:
        """Return whether a part of the launcher's line has no counterpart; of the pods' hosts none is needed."""
        if part.name in (table.HOSTS, table.HOSTFILE):
            self.notes.append(f"{' '.join(map(shown, part.words))}: {_PODS_HOSTS}")
            return False
        return True


class _OfPods(_Volcano, PyTorchJob):
    """Reads pods that all start one program."""

    managers = ()

    def read(self) -> bool:
        """Read all of it."""
        places = self.tasks()
        if not places:
            return False
        self.policy()
        containers = [self.container(place) for place in places]
        counts = [self.count(place) for place in places]
        if None not in containers:
            self.start([place for place in containers if place is not None], sum(counts))
        self.name()
        return True

    def started(self, places: list[tuple[Loc, str]]) -> Started:
        """Return the words of the program, and the variables that it is given; of a script with VC_ variables its launcher."""
        if _VC.search("\n".join(word for _place, word in places)) and (started := self.of_script(places)):
            return started
        return super().started(places)
