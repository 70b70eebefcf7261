"""A manifest of the MPI Operator (kind: MPIJob) -> the document of a job file, as far as it has a counterpart here.

The keys are those of kubeflow.org/v2beta1 (v1 has the same ones). What has none is named, not passed over in silence.
"""

from collections.abc import Iterator
from typing import Any

from taco_launch.command import shell
from taco_launch.frozen import dataclass
from taco_launch.inventory.document import kind_of
from taco_launch.inventory.faults import Faults, Loc, path_of
from taco_launch.inventory.mpirun_line import UnclearError, read

_LAUNCHER: Loc = ("spec", "mpiReplicaSpecs", "Launcher")
_WORKER: Loc = ("spec", "mpiReplicaSpecs", "Worker")
_POLICY: Loc = ("spec", "runPolicy")
_SCHEDULING: Loc = (*_POLICY, "schedulingPolicy")
_POLICY_KEYS = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend")
_SCHEDULING_KEYS = ("queue", "scheduleTimeoutSeconds")
# What says nothing about the job itself, or nothing that is not so here anyway.
_SILENT = (
    "apiVersion",
    "kind",
    "metadata",
    "status",
    "name",
    "imagePullPolicy",
    "sshAuthMountPath",
    "mpiImplementation",
)


@dataclass(frozen=True)
class Converted:
    """A job file's document out of a manifest.

    `origin` says where in the manifest its values stand: for a place in the document, the place there. `notes` names
    what of the manifest is not used.
    """

    document: dict[str, Any]
    origin: dict[Loc, Loc]
    notes: tuple[str, ...]

    def place(self, loc: Loc) -> Loc:
        """Give the place in the manifest of a place in the document."""
        known = next((loc[:end] for end in range(len(loc), 0, -1) if loc[:end] in self.origin), None)
        return loc if known is None else self.origin[known]


def convert(value: dict[str, Any], faults: Faults) -> Converted:
    """Read a manifest; what is wrong with it, or cannot be a job here, goes to `faults`."""
    return _Manifest(value, faults).converted()


class _Manifest:
    """Takes values out of a manifest and remembers which."""

    def __init__(self, value: dict[str, Any], faults: Faults) -> None:
        self._value = value
        self._faults = faults
        self._taken: set[Loc] = set()
        self._notes: list[str] = []
        self._document: dict[str, Any] = {}
        self._origin: dict[Loc, Loc] = {}

    def converted(self) -> Converted:
        if self._value["kind"] != "MPIJob":
            self._faults.add(("kind",), "of Kubernetes' objects an MPIJob can be read, and no other", self._torchs())
            return Converted({}, {}, ())
        if "status" in self._value and self._at((*_LAUNCHER, "template")) is None:
            problem = "this is how a job stood, as `taco-launch get -o yaml` tells it, and no job file"
            self._faults.add(("status",), problem, f"to run it again: {self._again()}")
            return Converted({}, {}, ())
        implementation = self._take(("spec", "mpiImplementation"))
        if implementation not in (None, "OpenMPI"):
            self._faults.add(("spec", "mpiImplementation"), "jobs run under Open MPI's mpirun here")
        self._keep(("name",), ("metadata", "name"))
        for key in _POLICY_KEYS:
            self._keep(("runPolicy", key), (*_POLICY, key))
        for key in _SCHEDULING_KEYS:
            self._keep(("runPolicy", "schedulingPolicy", key), (*_SCHEDULING, key))
        # The operator's Never leaves the tries to backoffLimit.
        if self._take((*_LAUNCHER, "restartPolicy")) != "Never":
            self._keep(("runPolicy", "restartPolicy"), (*_LAUNCHER, "restartPolicy"))
        self._size()
        container = self._container(_LAUNCHER)
        if container is not None:
            self._command(container)
        self._container(_WORKER)
        unused = [path_of(loc) for loc in self._left(self._value, ())]
        return Converted(self._document, self._origin, (*self._notes, *unused))

    def _torchs(self) -> str:
        """Give the line of a job as a PyTorchJob has it, one process on each of its workers; "" for another object."""
        if self._value["kind"] != "PyTorchJob":
            return ""
        replicas: Loc = ("spec", "pytorchReplicaSpecs")
        counts = [self._at((*replicas, role, "replicas")) or 1 for role in self._at(replicas) or ()]
        container: Loc = (*replicas, "Master", "template", "spec", "containers", 0)
        gpus = self._at((*container, "resources", "limits", "nvidia.com/gpu")) or 1
        if not all(isinstance(count, int) for count in (*counts, gpus)):
            return ""
        each = ("--per-host",) if gpus > 1 else ()  # else every GPU would have a process of its own
        size = ("--workers", str(sum(counts)), "--gpus", str(gpus)) if counts else ()
        words = [word for key in ("command", "args") for word in self._words((*container, key))]
        return shell(("taco-launch", "submit", "--launcher", "env", *each, *size, "--", *(words or ("COMMAND",))))

    def _again(self) -> str:
        """Give the line that submits a job again of which `get` told: its size and its command, as far as they are there."""
        words = ["taco-launch", "submit", "--name", "NEW"]
        for option, key in (("--np", "np"), ("--hosts", "host_count"), ("--slots-per-host", "slots_per_host")):
            number = self._at(("spec", key))
            words += [option, str(number)] if isinstance(number, int) else []
        return shell((*words, "--", *(tuple(self._words(("spec", "command"))) or ("COMMAND",))))

    def _size(self) -> None:
        self._keep(("hosts",), (*_WORKER, "replicas"))
        self._keep(("slotsPerHost",), ("spec", "slotsPerWorker"))
        self._document.setdefault("slotsPerHost", 1)  # the operator's defaults
        if self._document.get("hosts") in (None, 0):
            self._faults.add((*_WORKER, "replicas"), "is how many hosts the job has: at least 1", value="missing")
        if self._take((*_LAUNCHER, "replicas")) not in (None, 1):
            self._faults.add((*_LAUNCHER, "replicas"), "a job has one launcher")
        for key in ("runLauncherAsWorker", "runLauncherAsNode"):
            if self._take(("spec", key)) is True:
                self._faults.add(("spec", key), "the launcher has no ranks of its own here", "count it to the workers")

    def _container(self, replica: Loc) -> Loc | None:
        """Give the place of the one container of a replica; none where there is another number of them."""
        loc = (*replica, "template", "spec", "containers")
        containers = self._at(loc)
        if isinstance(containers, tuple) and len(containers) == 1 and isinstance(containers[0], dict):
            return (*loc, 0)
        self._faults.add(loc, "one container is needed", value="" if containers is not None else "missing")
        return None

    def _command(self, container: Loc) -> None:
        """Take the launcher's line apart."""
        places = [
            ((*container, key, index), word)
            for key in ("command", "args")
            for index, word in enumerate(self._words((*container, key)))
        ]
        words = [word for _place, word in places]
        if not words:
            self._faults.add((*container, "command"), "the line of mpirun has to stand here", value="missing")
            return
        expanded = next((place for place, word in places if "$(" in word), None)
        if expanded is not None:
            self._faults.add(expanded, "Kubernetes would put a variable's value in here", "write the value")
            return
        try:
            line = read(words, self._variables(container))
        except UnclearError as error:
            self._faults.add(places[error.index][0], error.problem, error.hint)
            return
        self._put(("command",), tuple(words[line.program :]), places[line.program][0][:-1])
        for index in range(line.program, len(words)):
            self._origin["command", index - line.program] = places[index][0]
        for key, values in (("env", line.env), ("mca", line.mca)):
            for name, value, index in values:
                self._put((key, name), value, places[index][0])
        self._notes += [f"mpirun's {option}" for option in line.unused]
        if line.np is not None:
            self._ranks(line.np[0], places[line.np[1]][0])

    def _ranks(self, np: int, place: Loc) -> None:
        """See that the line has as many ranks as there are slots; with fewer it is the number that counts."""
        hosts, slots = self._document.get("hosts"), self._document["slotsPerHost"]
        if not isinstance(hosts, int) or not isinstance(slots, int) or np == hosts * slots:
            return
        if np > hosts * slots:
            self._faults.add(place, f"more ranks than Worker.replicas x slotsPerWorker, which are {hosts * slots}")
            return
        del self._document["hosts"], self._document["slotsPerHost"]
        self._put(("np",), np, place)

    def _variables(self, container: Loc) -> dict[str, str]:
        """Give the container's variables whose values stand there."""
        found: dict[str, str] = {}
        entries = self._at((*container, "env"))
        for index, entry in enumerate(entries if isinstance(entries, tuple) else ()):
            if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("value"), str):
                found[entry["name"]] = entry["value"]
                self._taken.add((*container, "env", index))
        return found

    def _words(self, loc: Loc) -> Iterator[str]:
        value = self._take(loc)
        if value is not None and not isinstance(value, tuple):
            self._faults.add(loc, f"must be a list, and this is {kind_of(value)}")
            return
        for index, word in enumerate(value or ()):
            number = isinstance(word, int) and not isinstance(word, bool)
            if not isinstance(word, str) and not number:
                self._faults.add((*loc, index), f"must be text, and this is {kind_of(word)}")
            yield str(word)

    def _keep(self, loc: Loc, at: Loc) -> None:
        value = self._take(at)
        if value is not None:
            self._put(loc, value, at)

    def _put(self, loc: Loc, value: Any, at: Loc) -> None:
        section = self._document
        for step in loc[:-1]:
            section = section.setdefault(str(step), {})
        section[str(loc[-1])] = value
        self._origin[loc] = at

    def _take(self, loc: Loc) -> Any:
        self._taken.add(loc)
        return self._at(loc)

    def _at(self, loc: Loc) -> Any:
        value: Any = self._value
        for step in loc:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, tuple) and isinstance(step, int):
                value = value[step]
            else:
                return None
        return value

    def _left(self, value: Any, loc: Loc) -> Iterator[Loc]:
        """Give the places that nothing was taken from."""
        steps = value.items() if isinstance(value, dict) else enumerate(value)
        for step, inner in steps:
            at = (*loc, step)
            if at in self._taken or step in _SILENT:
                continue
            if isinstance(inner, (dict, tuple)) and any(taken[: len(at)] == at for taken in self._taken):
                yield from self._left(inner, at)
            else:
                yield at
