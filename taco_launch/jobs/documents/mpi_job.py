"""A manifest of the MPI Operator (kind: MPIJob) -> the document of a job file, as far as it has a counterpart here.

The keys are those of kubeflow.org/v2beta1 (v1 has the same ones), and what the operator refuses (its validation.go) is
refused. What has no counterpart here is named where it says how and where pods run, and refused where other programs or
other ranks would run without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.hosts.inventory.schema.faults import Loc, path_of
from taco_launch.jobs.command_lines import launcher_line, shell_line, sizes
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, Part, UnclearError
from taco_launch.jobs.command_lines.translation import remarks
from taco_launch.jobs.documents import pods
from taco_launch.jobs.documents.manifest import Manifest, Started

_VERSIONS = ("kubeflow.org/v2beta1", "kubeflow.org/v1", "kubeflow.org/v1alpha2")
_V2 = _VERSIONS[0]
_OLD = "kubeflow.org/v1alpha1"
_RESTARTS = ("Never", "OnFailure")
_MCA = "OMPI_MCA_"
_LEAST_PODS = ("spec", "runPolicy", "schedulingPolicy", "minAvailable")
# Launchers whose line on the launcher's pod starts the ranks of all workers: deepspeed by the operator's hostfile.
_SOME_GPUS = ("--include", "--exclude", "-i", "-e")  # of deepspeed
_LAUNCHERS = (*table.OF_MPI, "deepspeed")
_HYDRAS = ("Intel", "MPICH")  # mpiImplementation of the MPI Operator, besides OpenMPI


class MpiJob(Manifest):
    """Reads a manifest of the MPI Operator."""

    managers: tuple[str, ...] = ("kubeflow.org/mpi-operator",)
    launcher: Loc = ("spec", "mpiReplicaSpecs", "Launcher")
    worker: Loc = ("spec", "mpiReplicaSpecs", "Worker")
    # Whether the ranks have the variables of their worker's container.
    passes_variables = False

    def read(self) -> bool:
        """Read all of it."""
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
            return False
        if self.is_state((*self.launcher, "template")):
            return False
        self.passes_variables = version != _V2
        implementation = self.take(("spec", "mpiImplementation"))
        if implementation in _HYDRAS:
            self.put(("launcher",), "hydra", ("spec", "mpiImplementation"))
        elif implementation not in (None, "OpenMPI"):
            self.faults.add(("spec", "mpiImplementation"), f"must be OpenMPI, {' or '.join(_HYDRAS)}")
        self.policy()
        self._restart()
        self.size()
        self.name()
        self.replicas()
        return True

    def replicas(self) -> None:
        """Take the line that starts the ranks, and what the workers are."""
        container, workers = self.container(self.launcher), self.container(self.worker)
        if container is not None:
            self._command(container)
        if workers is not None:
            self._workers_program(workers)
            if self.passes_variables:
                self._workers_variables(workers)
        pods.take(self, [place for place in (workers, container) if place], [container] if container else [])
        if workers is not None:
            pods.gpus(self, (*workers, "resources"), self.document.get("slotsPerWorker"))

    def _restart(self) -> None:
        """Take the launcher's restartPolicy; the operator's Never leaves the tries to backoffLimit."""
        for replica in (self.launcher, self.worker):
            loc = (*replica, "restartPolicy")
            policy = self.take(loc)
            if policy in (None, *_RESTARTS) or (policy == "ExitCode" and self.at(("apiVersion",)) != _V2):
                if replica is self.launcher and policy != "Never":
                    self.keep(("runPolicy", "restartPolicy"), loc)
            else:
                self.faults.add(loc, f"must be {' or '.join(_RESTARTS)}")

    def size(self) -> None:
        """Take the workers, and the ranks of each."""
        self.keep(("workers",), (*self.worker, "replicas"))
        self.keep(("slotsPerWorker",), ("spec", "slotsPerWorker"))
        self.document.setdefault("slotsPerWorker", 1)  # the operator's defaults
        workers = self.document.get("workers")
        if workers is None or (isinstance(workers, int) and workers < 1):
            self.document.pop("workers", None)
            value = "missing" if workers is None else ""
            self.faults.add((*self.worker, "replicas"), "must be the number of workers, at least 1", value=value)
        if self.take((*self.launcher, "replicas")) not in (None, 1):
            self.faults.add((*self.launcher, "replicas"), "a job has one launcher")
        for key in ("runLauncherAsWorker", "runLauncherAsNode"):
            if self.take(("spec", key)) is True:
                self.faults.add(("spec", key), "here the launcher runs no ranks", "add one worker instead")

    def _workers_program(self, container: Loc) -> None:
        """Refuse workers that are to run something else than an sshd, which mpirun's daemons come by."""
        places = [(*container, key) for key in ("command", "args") if self.at((*container, key)) is not None]
        words = [(*place, index) for place in places for index, _word in enumerate(self.words(place))]
        before = pods.before_sshd([str(self.at(word)) for word in words]) if words else ()
        if before is None:
            problem = "would run on the workers before any rank, but taco-launch does not run it"
            self.faults.add(words[-1], problem, "prepare the hosts, or the image, and omit it")
        elif before:
            self.notes.append(f"{path_of(words[-1])}: what comes before its sshd: {'; '.join(before)}")

    def _command(self, container: Loc) -> None:
        """Take the launcher's line apart."""
        variables = self.variables(container)
        places = self.command(container, variables)
        if not places:
            self.faults.add((*container, "command"), "must be the mpirun line", value="missing")
            return
        if self.is_expanded(places):
            return
        try:
            places, assigned = self._started(places)
            line = self._read([word for _place, word in places], {**variables, **assigned})
        except UnclearError as error:
            self.faults.add(places[error.index][0], error.problem, error.hint)
            return
        self.put(("command",), (*line.before, *line.program), places[line.begin][0][:-1])
        for index, (place, _word) in enumerate([*[places[line.begin]] * len(line.before), *places[line.begin :]]):
            self.origin["command", index] = place
        if line.kind in table.OF_PYTHON:
            self.put(("launcher",), "torchrun", places[0][0])
            self.notes += [f"{row.original}: {row.why}" for row in remarks(line, line.kind)]
        is_elastic = self._elastic(line, places[0][0])
        for part in line.parts:
            if not (is_elastic and part.use == table.RANKS):
                place = places[part.index + (len(part.words) > 1)][0]
                self._use_part(part, place, f"{line.kind}'s {shell(part.words)}")
        self._launchers_variables(container, line, variables)

    def _elastic(self, line: LauncherLine, place: Loc) -> bool:
        """Take the ranks that horovodrun needs at least and may have at most as hosts, if it has both; return whether so."""
        bounds = [*line.of(table.LEAST, table.MOST)]
        workers, slots = self.document.get("workers"), self.document["slotsPerWorker"]
        most = workers * slots if isinstance(workers, int) and isinstance(slots, int) else 0
        hosts = sizes.changing_hosts(line, str(slots), most)
        if hosts:
            del self.document["workers"], self.document["slotsPerWorker"]
            for key, value in {"launcher": "horovod", "elastic": True, "hosts": hosts, "slotsPerHost": slots}.items():
                self.put((key,), value, place)
        elif bounds:
            shown = shell([word for part in bounds for word in part.words])
            self.notes.append(f"{line.kind}'s {shown}: {table.ELASTIC}")
        if self.take(_LEAST_PODS) is not None:
            why = f"--hosts {hosts} has the least number of hosts" if hosts else table.AT_ONCE
            self.notes.append(f"{path_of(_LEAST_PODS)}: {why}")
        return bool(hosts)

    def _started(self, places: list[tuple[Loc, str]]) -> Started:
        """Return the words of the program that a shell's line starts, each with its place, and the variables that it sets.

        Raises:
            UnclearError: the shell would do more than that.
        """
        try:
            return shell_line.without_a_shell(places)
        except UnclearError:
            if (started := self.of_script(places)) is None:
                raise
            return started

    def _read(self, words: Sequence[str], variables: Mapping[str, str]) -> LauncherLine:
        """Read the line that starts the ranks, with `variables`, as far as all of it has a counterpart here.

        Raises:
            UnclearError: a part of it has none.
        """
        hydra = "launcher" in self.document
        launcher = inner((*words, "PROGRAM"))  # a line that lacks one is a launcher's all the same
        if launcher is None or launcher.begin or launcher.kind not in _LAUNCHERS:
            name = "mpiexec.hydra" if hydra else "mpirun"
            problem = f"is not {name}, so it is not known how it starts ranks on the workers"
            raise UnclearError(0, problem, f"write the line of {name}, horovodrun or deepspeed that starts them")
        if hydra and launcher.kind == "mpirun":
            launcher = replace(launcher, kind="hydra")
        line = launcher_line.read(words, launcher, variables)
        for part in line.of(table.REFUSED):
            if self.refused(part):
                raise UnclearError(part.index, part.why)
        return line

    def refused(self, _part: Part) -> bool:
        """Return whether a part of the launcher's line that has no counterpart is a fault of the manifest."""
        return True

    def _use_part(self, part: Part, place: Loc, shown: str) -> None:
        if part.use == table.EACH:
            self._each(int(part.value), place)
            self.notes += [f"{shown}: {part.why}"] if part.why else []
        elif part.use == table.RANKS:
            self.ranks(int(part.value), place)
        elif part.words[0].partition("=")[0] in _SOME_GPUS:
            self.faults.add(place, f"{shown}: chooses some GPUs of the workers", "omit it, and request as many workers")
        elif part.use == table.NODES and part.value != str(self.document.get("workers")):
            self.faults.add(place, f"{shown}: there are {self.document.get('workers')} workers", "make them equal")
        else:
            self.use_part(part, place, shown)

    def _launchers_variables(self, container: Loc, line: LauncherLine, known: Mapping[str, str]) -> None:
        """Take the launcher's own variables: those of mpirun itself, and those that its line passes on."""
        set_there = {part.name for part in line.of(table.ENV, table.MCA)}
        bare = {part.name for part in line.of(table.BARE)}
        for index, entry in enumerate(self.entries(container)):
            name, at = entry.get("name"), (*container, "env", index)
            if name in bare and name not in known:
                problem = "mpirun would pass this variable on to the ranks, but its value is not written here"
                self.faults.add(at, problem, "write the value")
            elif not isinstance(name, str) or name not in known or name in set_there:
                continue
            elif name.startswith(_MCA):
                if name.removeprefix(_MCA) not in set_there:  # the line goes before
                    self.set("mca", name.removeprefix(_MCA), known[name], at)
            else:
                self.notes.append(f"{path_of(at)}: {name}, which mpirun does not pass on without -x")

    def _workers_variables(self, container: Loc) -> None:
        """Take the workers' variables: before v2beta1 `kubectl exec` starts the ranks, which have those of their container.

        From v2beta1 on an sshd starts them, and does not pass its own on.
        """
        document = self.document
        for name, value in self.variables(container).items():
            at = next(
                (*container, "env", index)
                for index, each in enumerate(self.entries(container))
                if each.get("name") == name
            )
            parameter = table.parameter(name)
            key, own = ("mca", parameter) if parameter else ("env", name)
            if own not in document.get(key, {}):  # mpirun's line goes before
                self.set(key, own, value, at)

    def _each(self, ranks: int, place: Loc) -> None:
        """Take how many ranks the line has on each host."""
        slots = self.document["slotsPerWorker"]
        if isinstance(slots, int) and ranks > slots:
            self.faults.add(place, f"more ranks on each host than slotsPerWorker, which is {slots}")
            return
        self.put(("slotsPerWorker",), ranks, place)

    def ranks(self, np: int, place: Loc) -> None:
        """Take the line's number of ranks: fewer than all slots of the workers are so many ranks, on any hosts."""
        workers, slots = self.document.get("workers"), self.document["slotsPerWorker"]
        if not isinstance(workers, int) or not isinstance(slots, int):
            return
        if np > workers * slots:
            self.faults.add(place, f"more ranks than Worker.replicas x slotsPerWorker, which are {workers * slots}")
        elif np < workers * slots:
            del self.document["workers"], self.document["slotsPerWorker"]
            self.put(("np",), np, place)
        self.line_np = np
