"""A manifest of the MPI Operator (kind: MPIJob) -> the document of a job file, as far as it has a counterpart here.

The keys are those of kubeflow.org/v2beta1 (v1 has the same ones), and what the operator refuses (its validation.go) is
refused. What has no counterpart here is named where it says how and where pods run, and refused where other programs or
other ranks would run without it.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from taco_launch.core.command import shell
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.given_remarks import reference
from taco_launch.hosts.inventory.schema.document import kind_of
from taco_launch.hosts.inventory.schema.faults import Faults, Loc, path_of
from taco_launch.jobs.command_lines import launcher_line, shell_line
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, Part, UnclearError
from taco_launch.jobs.documents import mpi_line, mpi_pod, pytorch_job

_LAUNCHER: Loc = ("spec", "mpiReplicaSpecs", "Launcher")
_WORKER: Loc = ("spec", "mpiReplicaSpecs", "Worker")
_POLICY: Loc = ("spec", "runPolicy")
_SCHEDULING: Loc = (*_POLICY, "schedulingPolicy")
_POLICY_KEYS = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend")
_SCHEDULING_KEYS = ("queue", "scheduleTimeoutSeconds")
# What says nothing about the job itself, or nothing that is not so here anyway.
_SILENT = (
    *("apiVersion", "kind", "metadata", "status", "name", "imagePullPolicy"),
    *("sshAuthMountPath", "mpiImplementation", "launcherCreationPolicy"),
)
_VERSIONS = ("kubeflow.org/v2beta1", "kubeflow.org/v1", "kubeflow.org/v1alpha2")
_V2 = _VERSIONS[0]
_OLD = "kubeflow.org/v1alpha1"
_RESTARTS = ("Never", "OnFailure")
_MANAGERS = ("kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue")
# RFC 1035's label, which a Service's name has to be.
_LABEL = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")
_LABEL_CHARACTERS = 63
_MCA = "OMPI_MCA_"
_HYDRAS = ("Intel", "MPICH")  # mpiImplementation of the MPI Operator, besides OpenMPI
# What Kubernetes puts a variable's value in for, unless the dollar sign is doubled.
_EXPANDED = re.compile(r"(?<!\$)\$\([A-Za-z_][A-Za-z0-9_.-]*\)")


@dataclass(frozen=True)
class ConvertedManifest:
    """A job file's document out of a manifest.

    `origin` says where in the manifest its values stand: for a place in the document, the place there. `notes` names
    what of the manifest is not used. `line_np` is the number of ranks that its line of mpirun asks for.
    """

    document: dict[str, Any]
    origin: dict[Loc, Loc]
    notes: tuple[str, ...]
    line_np: int | None = None

    def place(self, loc: Loc) -> Loc:
        """Return the place in the manifest of a place in the document."""
        known = next((loc[:end] for end in range(len(loc), 0, -1) if loc[:end] in self.origin), None)
        return loc if known is None else self.origin[known]


def convert(value: dict[str, Any], faults: Faults) -> ConvertedManifest:
    """Read a manifest; what is wrong with it, or cannot be a job here, goes to `faults`."""
    return _Manifest(value, faults).converted()


class _Manifest:
    """Takes values out of a manifest and remembers which."""

    def __init__(self, value: dict[str, Any], faults: Faults) -> None:
        self._value = value
        self.faults = faults
        self._taken: set[Loc] = set()
        self.notes: list[str] = []
        self._document: dict[str, Any] = {}
        self.origin: dict[Loc, Loc] = {}
        self.line_np: int | None = None

    def converted(self) -> ConvertedManifest:
        if self._value["kind"] != "MPIJob":
            self.faults.add(
                ("kind",),
                "the only Kubernetes object that can be read is an MPIJob",
                pytorch_job.suggested(self._value),
            )
            return ConvertedManifest({}, {}, ())
        version = self.at(("apiVersion",))
        old = self.at(("spec", "template")) is not None and self.at(("spec", "mpiReplicaSpecs")) is None
        if old or (version is not None and version not in _VERSIONS):
            rewrite = "spec.slotsPerWorker, spec.mpiReplicaSpecs.Launcher and spec.mpiReplicaSpecs.Worker"
            old = old or version == _OLD
            why = (
                f"spec.gpus and spec.template are the old form, {_OLD}, which is not supported"
                if old
                else "is not known"
            )
            self.faults.add(("apiVersion",), why, f"write it in the form of {_V2}: {rewrite}")
            return ConvertedManifest({}, {}, ())
        if "status" in self._value and self.at((*_LAUNCHER, "template")) is None:
            problem = "this is the state of a job, as `taco-launch get -o yaml` prints it, not a job file"
            self.faults.add(("status",), problem, f"to run it again: {self._again()}")
            return ConvertedManifest({}, {}, ())
        implementation = self.take(("spec", "mpiImplementation"))
        if implementation in _HYDRAS:
            self.put(("launcher",), "hydra", ("spec", "mpiImplementation"))
        elif implementation not in (None, "OpenMPI"):
            self.faults.add(("spec", "mpiImplementation"), f"must be OpenMPI, {' or '.join(_HYDRAS)}")
        for key in _POLICY_KEYS:  # the forms before v2beta1 have them in spec, too
            self._keep(("runPolicy", key), ("spec", key))
            self._keep(("runPolicy", key), (*_POLICY, key))
        if self.take((*_POLICY, "managedBy")) not in (None, *_MANAGERS):
            self.faults.add((*_POLICY, "managedBy"), f"must be {' or '.join(_MANAGERS)}")
        for key in _SCHEDULING_KEYS:
            self._keep(("runPolicy", "schedulingPolicy", key), (*_SCHEDULING, key))
        self._restart()
        self._size()
        self._name()
        container, workers = self._container(_LAUNCHER), self._container(_WORKER)
        if container is not None:
            self._command(container)
        if workers is not None:
            self._workers_program(workers)
            if version != _V2:
                self._workers_variables(workers)
        slots = self._document.get("slotsPerWorker")
        mpi_pod.take(self, container, workers, slots if isinstance(slots, int) else None)
        unused = [self._shown(loc) for loc in self._left(self._value, ())]
        return ConvertedManifest(self._document, self.origin, (*self.notes, *unused), self.line_np)

    def _again(self) -> str:
        """Return the line that submits a job again of which `get` told: its size and its command, as far as they are there."""
        words = ["taco-launch", "submit", "--name", "NEW"]
        for option, key in (("--np", "np"), ("--hosts", "host_count"), ("--slots-per-host", "slots_per_host")):
            number = self.at(("spec", key))
            words += [option, str(number)] if isinstance(number, int) else []
        return shell((*words, "--", *(tuple(self._words(("spec", "command"))) or ("COMMAND",))))

    def _name(self) -> None:
        """Take the job's name, of which the operator makes those of its workers."""
        loc: Loc = ("metadata", "name")
        name, workers = self.take(loc), self._document.get("workers", 1)
        if name is None and self.at(("metadata", "generateName")) is not None:
            return
        if name is None:
            self.faults.add(loc, "the job needs a name", value="missing")
            return
        last = f"{name}-worker-{workers - 1 if isinstance(workers, int) else 0}"
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            problem = "is not a Kubernetes name: use a-z, 0-9 and '-', a letter first, and a letter or digit last"
            self.faults.add(loc, problem)
        elif len(last) > _LABEL_CHARACTERS:
            self.faults.add(
                loc, f"is too long: its last worker would be {last}, of {len(last)} characters (63 at most)"
            )
        else:
            self.put(("name",), name, loc)

    def _restart(self) -> None:
        """Take the launcher's restartPolicy; the operator's Never leaves the tries to backoffLimit."""
        for replica in (_LAUNCHER, _WORKER):
            loc = (*replica, "restartPolicy")
            policy = self.take(loc)
            if policy in (None, *_RESTARTS) or (policy == "ExitCode" and self.at(("apiVersion",)) != _V2):
                if replica is _LAUNCHER and policy != "Never":
                    self._keep(("runPolicy", "restartPolicy"), loc)
            else:
                self.faults.add(loc, f"must be {' or '.join(_RESTARTS)}")

    def _size(self) -> None:
        self._keep(("workers",), (*_WORKER, "replicas"))
        self._keep(("slotsPerWorker",), ("spec", "slotsPerWorker"))
        self._document.setdefault("slotsPerWorker", 1)  # the operator's defaults
        workers = self._document.get("workers")
        if workers is None or (isinstance(workers, int) and workers < 1):
            self._document.pop("workers", None)
            value = "missing" if workers is None else ""
            self.faults.add((*_WORKER, "replicas"), "must be the number of workers, at least 1", value=value)
        if self.take((*_LAUNCHER, "replicas")) not in (None, 1):
            self.faults.add((*_LAUNCHER, "replicas"), "a job has one launcher")
        for key in ("runLauncherAsWorker", "runLauncherAsNode"):
            if self.take(("spec", key)) is True:
                self.faults.add(("spec", key), "here the launcher runs no ranks", "add one worker instead")

    def _container(self, replica: Loc) -> Loc | None:
        """Return the place of the one container of a replica; none where there is another number of them."""
        loc = (*replica, "template", "spec", "containers")
        containers = self.at(loc)
        before = (*loc[:-1], "initContainers")
        if self.take(before):
            problem = "would run before the ranks, but taco-launch does not run them"
            self.faults.add(before, problem, "prepare the hosts, or the image, and leave them out")
        if isinstance(containers, tuple) and len(containers) == 1 and isinstance(containers[0], dict):
            self._taken.add((*loc, 0, "name"))
            hook = (*loc, 0, "lifecycle", "postStart")
            if self.take(hook):
                problem = "would run beside the ranks, but taco-launch does not run it"
                self.faults.add(hook, problem, "do it in the job's own program")
            return (*loc, 0)
        self.faults.add(loc, "must be exactly one container", value="" if containers is not None else "missing")
        return None

    def _workers_program(self, container: Loc) -> None:
        """Refuse workers that are to run something else than an sshd, which mpirun's daemons come by."""
        places = [(*container, key) for key in ("command", "args") if self.at((*container, key)) is not None]
        words = [(*place, index) for place in places for index, _word in enumerate(self._words(place))]
        before = mpi_pod.before_sshd([str(self.at(word)) for word in words]) if words else ()
        if before is None:
            problem = "would run on the workers before any rank, but taco-launch does not run it"
            self.faults.add(words[-1], problem, "prepare the hosts, or the image, and omit it")
        elif before:
            self.notes.append(f"{path_of(words[-1])}: what comes before its sshd: {'; '.join(before)}")

    def _command(self, container: Loc) -> None:
        """Take the launcher's line apart."""
        places = [
            ((*container, key, index), word)
            for key in ("command", "args")
            for index, word in enumerate(self._words((*container, key)))
        ]
        if not places:
            self.faults.add((*container, "command"), "must be the mpirun line", value="missing")
            return
        expanded = next((place for place, word in places if _EXPANDED.search(word)), None)
        if expanded is not None:
            problem = "Kubernetes would insert the value of a variable here, but taco-launch does not"
            self.faults.add(expanded, problem, "write the value")
            return
        variables = self._variables(container)
        try:
            places, assigned = shell_line.without_a_shell(places)
            line = mpi_line.read(
                [word for _place, word in places], {**variables, **assigned}, hydra="launcher" in self._document
            )
        except UnclearError as error:
            self.faults.add(places[error.index][0], error.problem, error.hint)
            return
        self.put(("command",), line.program, places[line.begin][0][:-1])
        for index, (place, _word) in enumerate(places[line.begin :]):
            self.origin["command", index] = place
        for part in line.parts:
            self._use_part(part, places[part.index + (len(part.words) > 1)][0], f"{line.kind}'s {shell(part.words)}")
        self._launchers_variables(container, line, variables)

    def _use_part(self, part: Part, place: Loc, shown: str) -> None:
        if part.use in (table.ENV, table.MCA):
            self._set(part.use, part.name, part.value, place)
        elif part.use in (table.OMITTED, table.BARE, table.HOSTS, table.HOSTFILE):
            self.notes.append(f"{shown}: {part.why or 'the inventory has the hosts'}")
        elif part.use == table.EACH:
            self._each(int(part.value), place)
            self.notes += [f"{shown}: {part.why}"] if part.why else []
        elif part.use == table.RANKS:
            self._ranks(int(part.value), place)
        elif part.name == "--workdir":
            self.put(("workingDir",), part.value, place)
        elif part.name == "--timeout" and "activeDeadlineSeconds" not in self._document.get("runPolicy", {}):
            self.put(("runPolicy", "activeDeadlineSeconds"), int(part.value.rstrip("s")), place)
        elif part.use == table.OPTION:
            self.notes.append(f"{shown}: add {part.name} {part.value} to the command line")

    def _launchers_variables(self, container: Loc, line: LauncherLine, known: Mapping[str, str]) -> None:
        """Take the launcher's own variables: those of mpirun itself, and those that its line passes on."""
        set_there = {part.name for part in line.of(table.ENV, table.MCA)}
        bare = {part.name for part in line.of(table.BARE)}
        for index, entry in enumerate(self._entries(container)):
            name, at = entry.get("name"), (*container, "env", index)
            if name in bare and name not in known:
                problem = "mpirun would pass this variable on to the ranks, but its value is not written here"
                self.faults.add(at, problem, "write the value")
            elif not isinstance(name, str) or name not in known or name in set_there:
                continue
            elif name.startswith(_MCA):
                if name.removeprefix(_MCA) not in set_there:  # the line goes before
                    self._set("mca", name.removeprefix(_MCA), known[name], at)
            else:
                self.notes.append(f"{path_of(at)}: {name}, which mpirun does not pass on without -x")

    def _workers_variables(self, container: Loc) -> None:
        """Take the workers' variables: before v2beta1 `kubectl exec` starts the ranks, which have those of their container.

        From v2beta1 on an sshd starts them, and does not pass its own on.
        """
        document = self._document
        for name, value in self._variables(container).items():
            at = next(
                (*container, "env", index)
                for index, each in enumerate(self._entries(container))
                if each.get("name") == name
            )
            parameter = launcher_line.parameter(name)
            key, known = ("mca", parameter) if parameter else ("env", name)
            if known not in document.get(key, {}):  # mpirun's line goes before
                self._set(key, known, value, at)

    def _set(self, key: str, name: str, value: str, at: Loc) -> None:
        """Take a variable (`key` env) or a parameter (mca), unless it means something in Kubernetes alone."""
        if why := mpi_pod.unused(key, name, value):
            self.notes.append(f"{path_of(at)}: {name}: {why}")
            return
        if reference(name, value):
            self.faults.add(at, "no shell expands its $, so the ranks would get it literally", "write the value")
        self.put((key, name), value, at)

    def _each(self, ranks: int, place: Loc) -> None:
        """Take how many ranks the line has on each host."""
        slots = self._document["slotsPerWorker"]
        if isinstance(slots, int) and ranks > slots:
            self.faults.add(place, f"more ranks on each host than slotsPerWorker, which is {slots}")
            return
        self.put(("slotsPerWorker",), ranks, place)

    def _ranks(self, np: int, place: Loc) -> None:
        """Take the line's number of ranks: fewer than all slots of the workers are so many ranks, on any hosts."""
        workers, slots = self._document.get("workers"), self._document["slotsPerWorker"]
        if not isinstance(workers, int) or not isinstance(slots, int):
            return
        if np > workers * slots:
            self.faults.add(place, f"more ranks than Worker.replicas x slotsPerWorker, which are {workers * slots}")
        elif np < workers * slots:
            del self._document["workers"], self._document["slotsPerWorker"]
            self.put(("np",), np, place)
        self.line_np = np

    def _variables(self, container: Loc) -> dict[str, str]:
        """Return the container's variables whose values stand there."""
        found: dict[str, str] = {}
        for index, entry in enumerate(self._entries(container)):
            name, value = entry.get("name"), entry.get("value")
            if isinstance(name, str) and isinstance(value, str) and not _EXPANDED.search(value):
                found[name] = value
                self._taken.add((*container, "env", index))
        return found

    def _entries(self, container: Loc) -> list[dict[str, Any]]:
        """Return the container's variables as they stand there, an empty one for what is none."""
        entries = self.at((*container, "env"))
        return [entry if isinstance(entry, dict) else {} for entry in (entries if isinstance(entries, tuple) else ())]

    def _words(self, loc: Loc) -> Iterator[str]:
        value = self.take(loc)
        if value is not None and not isinstance(value, tuple):
            self.faults.add(loc, f"must be a list, and this is {kind_of(value)}")
            return
        for index, word in enumerate(value or ()):
            number = isinstance(word, int) and not isinstance(word, bool)
            if not isinstance(word, str) and not number:
                self.faults.add((*loc, index), f"must be text, and this is {kind_of(word)}")
            yield str(word)

    def _keep(self, loc: Loc, at: Loc) -> None:
        if (value := self.take(at)) is not None:
            self.put(loc, value, at)

    def put(self, loc: Loc, value: Any, at: Loc) -> None:
        """Put a value into the job file that stands `at` a place of the manifest."""
        *folders, last = map(str, loc)
        functools.reduce(lambda section, step: section.setdefault(step, {}), folders, self._document)[last] = value
        self.origin[loc] = at

    def take(self, loc: Loc) -> Any:
        """Return a value, which is used."""
        self._taken.add(loc)
        return self.at(loc)

    def at(self, loc: Loc) -> Any:
        """Return a value, None where there is none."""
        value: Any = self._value
        for step in loc:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, tuple) and isinstance(step, int):
                value = value[step]
            else:
                return None
        return value

    def _shown(self, loc: Loc) -> str:
        """Return the path of what is not used, of a variable with its name."""
        name = self.at((*loc, "name")) if loc[-2:-1] == ("env",) else None
        return f"{path_of(loc)}: {name}" if isinstance(name, str) else path_of(loc)

    def _left(self, value: Any, loc: Loc) -> Iterator[Loc]:
        """Yield the places that nothing was taken from."""
        steps = value.items() if isinstance(value, dict) else enumerate(value)
        for step, inner in steps:
            at = (*loc, step)
            if at in self._taken or step in _SILENT:
                continue
            if isinstance(inner, (dict, tuple)) and any(taken[: len(at)] == at for taken in self._taken):
                yield from self._left(inner, at)
            else:
                yield at
