"""Manifests of the Training Operator (PyTorchJob) and of Kubeflow Trainer (TrainJob) -> the document of a job file.

A pod is a worker here. What torchrun has from the operators' PET_ variables is the job's size; any other program has RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which count pods, so `launcher: env` starts it (kubeflow/training-operator,
pytorch/envvar.go; kubeflow/trainer, plugins/torch/torch.go).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import NestedLauncher, inner
from taco_launch.hosts.inventory.schema.faults import Loc, path_of
from taco_launch.jobs.command_lines import launcher_line, shell_line, shell_script
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, UnclearError
from taco_launch.jobs.command_lines.launcher_options import ELASTIC
from taco_launch.jobs.command_lines.translation import remarks
from taco_launch.jobs.documents import pods
from taco_launch.jobs.documents.manifest import BEFORE, PREPARE, SPEC, Manifest, Started, left_out

_ROLES: tuple[Loc, ...] = tuple(("spec", "pytorchReplicaSpecs", role) for role in ("Master", "Worker"))
_ELASTIC: Loc = ("spec", "elasticPolicy")
_RESTARTS = ("Never", "OnFailure", "ExitCode", "Always")
_VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v1beta2", "kubeflow.org/v1beta1")
_TRAINER: Loc = ("spec", "trainer")
_TRAINERS = ("trainer.kubeflow.org/v1alpha1", "trainer.kubeflow.org/v2alpha1", "kubeflow.org/v2alpha1")
# Runtimes that start a program by something else than torchrun's variables (kubeflow/trainer, manifests/base/runtimes).
_OTHER_RUNTIMES = re.compile(r"(?:^|-)(?:mpi|deepspeed|mlx|flux|jax|xgboost|torchtune)(?=-|$)")
_PATCHES = ("runtimePatches", "podTemplateOverrides", "podSpecOverrides")
_OF_PODS = ("volumes", "initContainers", "containers")
# What leaves the number of ranks in a pod to torchrun.
_AUTOMATIC = ("auto", "gpu", "cpu")
_PET = re.compile(r"\b(?:PET|VC|VK)_[A-Z_]+")
# Options of torchrun that the operators' variables stand for.
_MEETS = {"nnodes": "$WORLD_SIZE", "node-rank": "$RANK", "master-addr": "$MASTER_ADDR", "master-port": "$MASTER_PORT"}


class _Pods(Manifest):
    """Reads pods that all start one program."""

    # Whether a line of mpirun starts ranks in all pods, as it does where the runtime has a hostfile for it.
    has_hostfile = False
    # Where a container has its resources, and the manifest how many ranks a pod has.
    resources = "resources"
    own: Loc = ("spec", "nprocPerNode")

    def is_version(self, *versions: str) -> bool:
        """Return whether the manifest is of a known version."""
        version = self.at(("apiVersion",))
        if version not in (None, *versions):
            self.faults.add(("apiVersion",), "is not known", f"write it in the form of {versions[0]}")
        return version in (None, *versions)

    def start(self, containers: Sequence[Loc], count: int) -> None:
        """Take the program, and how many ranks of it each of the `count` pods has."""
        first, *others = containers
        env = self.variables(first)
        places = self.command(first, env)
        if not places or places[0][0][-2] != "command":
            problem = "must be the program: what the image or the runtime starts is not known here"
            hint = "write it there: docker inspect IMAGE shows the ENTRYPOINT of an image"
            self.faults.add((*first, "command"), problem, hint, value="missing")
            return
        for other in others:
            self._same(first, other, env)
        gpus = pods.gpus(self, (*first, self.resources))
        each = 0 if self.take(self.own) in _AUTOMATIC else pods.number(self, self.own, 1)
        words = [word for _place, word in places]
        places, assigned = self.started(places)
        launcher = inner([word for _place, word in places])
        if launcher is None:
            self._plain(places, words, max(each, gpus), count)
        else:
            each = self._line(places, launcher, each, count)
        at = {str(entry.get("name")): (*first, "env", index) for index, entry in enumerate(self.entries(first))}
        for name, value in {**env, **assigned}.items():
            if name not in self.document.get("env", {}):  # the launcher's line goes before
                self.set("env", name, value, places[0][0] if name in assigned else at[name])
        for name, place in at.items():
            if name not in env:
                self.take(place)
                self.notes.append(f"{path_of(place)}: {name}: its value comes from Kubernetes: add -x {name}=VALUE")
        self.document["workers"] = count
        self.document["gpus" if gpus else "slotsPerWorker"] = max(each, 1 if launcher else gpus, 1)
        if launcher is not None:
            pods.gpus(self, (*first, self.resources), each)
        pods.take(self, containers, containers)

    def started(self, places: list[tuple[Loc, str]]) -> Started:
        """Return the words of the program that a shell's line starts, each with its place, and the variables that it sets."""
        try:
            return shell_line.without_a_shell(places)
        except UnclearError:
            return places, {}

    def _default(self, container: Loc, kind: str) -> int:
        """Return how many ranks a pod has where neither its manifest nor its launcher's line has a number of them."""
        resources = (*container, self.resources)
        if not (self.has_hostfile and kind in table.OF_MPI):  # for which its runtime has a number
            gpus = 0 if self.at(self.own) == "cpu" else pods.gpus(self, resources)
            if each := gpus or self.cpus(resources):
                return each
        self.notes.append(
            f"{path_of(self.own)}: each pod runs 1 rank: write the number if the operator would start more"
        )
        return 1

    def cpus(self, _resources: Loc) -> int:
        """Return for how many CPUs a pod has a rank each, 0 where that is not known."""
        return 0

    def _same(self, first: Loc, other: Loc, env: dict[str, str]) -> None:
        """Refuse pods of another program, or with other variables or GPUs."""
        if self.take((*other, "workingDir")) != self.at((*first, "workingDir")):
            place = path_of((*first, "workingDir"))
            self.faults.add((*other, "workingDir"), f"all ranks run in one folder, and {place} differs")
        one, another = self._what_counts(first), self._what_counts(other)
        if one != another:
            words = sorted({*one} ^ {*another}, key=[*one, *another].index) or [*one]
            problem = f"all ranks run one program, and {path_of((*first, 'command'))} differs in {shell(tuple(words))}"
            self.faults.add((*other, "command"), problem)
        resources, others = (*first, self.resources), (*other, self.resources)
        if pods.gpus(self, resources) != pods.gpus(self, others):
            self.faults.add(others, f"all pods have as many GPUs, and {path_of(resources)} differs")
        here = self.variables(other)
        differ = {name for name, value in {*here.items()} ^ {*env.items()} if not left_out("env", name, value)}
        if differ:
            names = ", ".join(sorted(differ))
            self.faults.add(
                (*other, "env"),
                f"all ranks have the same variables, and {path_of((*first, 'env'))} differs in {names}: write these in both, or in none",
            )

    def _what_counts(self, container: Loc) -> tuple[str, ...]:
        """Return the words of a container's program, without those of a launcher's options that taco-launch sets itself."""
        words = tuple(word for key in ("command", "args") for word in self.words((*container, key)))
        launcher = inner(words)
        if launcher is None:
            return words
        try:
            line = launcher_line.read(words[launcher.begin :], launcher)
        except UnclearError:
            return words
        set_here = [part for part in line.of(table.OMITTED) if part.why == table.MEETS]
        places = {launcher.begin + part.index + at for part in set_here for at in range(len(part.words))}
        return tuple(word for at, word in enumerate(words) if at not in places)

    def _plain(self, places: list[tuple[Loc, str]], words: Sequence[str], each: int, count: int) -> None:
        """Take a program that no launcher starts: once in each pod."""
        if self.is_expanded(places):
            return
        if pet := _PET.search("\n".join(words)):
            names = ", ".join(value[1:] for value in _MEETS.values())
            hint = f"leave out torchrun's sizes, which taco-launch sets; elsewhere the pod's variables are {names}"
            self.faults.add(places[-1][0], f"{pet[0]} is a variable that only the operator sets", hint)
        elif lacking := _lacking(words, count, each):
            self.faults.add(
                places[-1][0], "only the operator gives torchrun its hosts and ranks", f"write them: {lacking}"
            )
        self.put(("launcher",), "env", places[0][0])
        if each > 1:  # else every GPU would have a process of its own
            self.put(("perHost",), True, places[0][0])
        self._program(places, 0, ())

    def _program(self, places: Sequence[tuple[Loc, str]], begin: int, before: Sequence[str]) -> None:
        words = [word for _place, word in places[begin:]]
        self.put(("command",), (*before, *words), places[begin][0][:-1])
        for index, (place, _word) in enumerate([*[places[begin]] * len(before), *places[begin:]]):
            self.origin["command", index] = place

    def _line(self, places: list[tuple[Loc, str]], launcher: NestedLauncher, each: int, count: int) -> int:
        """Take a launcher's line apart; return how many ranks each pod has."""
        places = places[launcher.begin :]
        try:
            line = launcher_line.read([word for _place, word in places], launcher)
        except UnclearError as error:
            self.faults.add(places[error.index][0], error.problem, error.hint)
            return each
        for part in line.parts:
            place = places[part.index + (len(part.words) > 1)][0]
            shown = f"{launcher.name}'s {shell(tuple(map(shell_script.shown, part.words)))}"
            if part.use == table.REFUSED:
                self.faults.add(place, f"{shell(part.words)}: {part.why}")
            elif (part.name, part.value) != ("--backoff-limit", "0"):
                self.use_part(part, place, shown)
        self.notes += [f"{row.original}: {row.why}" for row in remarks(line, launcher.name)]
        unread = {at for part in line.of(table.OMITTED) for at in range(part.index, part.index + len(part.words))}
        if self.is_expanded([word for at, word in enumerate(places) if at not in unread]):
            return each
        if line.kind not in table.OF_MPI:
            self.put(("launcher",), "torchrun", places[0][0])
        elif line.kind == "hydra":
            self.put(("launcher",), "hydra", places[0][0])
        self._program(places, line.begin, line.before)
        return self._ranks(places, line, each, count)

    def _ranks(self, places: list[tuple[Loc, str]], line: LauncherLine, each: int, count: int) -> int:
        """Return how many ranks of a line each pod has, and refuse a line that starts a job in each of them."""
        nodes, own, ranks = (line.last(use) for use in (table.NODES, table.EACH, table.RANKS))
        finds_all = line.kind == "torch" or (line.kind in table.OF_MPI and self.has_hostfile)
        alone = any("standalone" in part.words[0] for part in line.parts)
        least, _colon, most = (nodes.value if nodes else str(count) if finds_all and not alone else "1").partition(":")
        if not int(least) <= count <= int(most or least):
            problem = f"would start a job of {least} host{'s' * (least != '1')} in each of {count} pods"
            self.faults.add(
                places[nodes.index if nodes else 0][0], problem, f"omit the number of hosts, or make it {count}"
            )
        if ranks is None:
            each = int(own.value) if own else each or self._default(places[0][0][:-2], line.kind)
        else:
            each, rest = divmod(int(ranks.value), count)
            if rest or not each:
                self.faults.add(
                    places[ranks.index][0], f"{ranks.value} ranks cannot be divided evenly among {count} pods"
                )
        return max(each, 1)


class PyTorchJob(_Pods):
    """Reads a manifest of the Training Operator (kubeflow.org/v1)."""

    managers: tuple[str, ...] = ("kubeflow.org/training-operator",)

    def read(self) -> bool:
        """Read all of it."""
        roles = [role for role in _ROLES if self.at(role) is not None]
        if not roles:
            self.faults.add(_ROLES[0][:-1], "must have a Master, a Worker or both", value="missing")
        if not self.is_version(*_VERSIONS) or not roles or self.is_state((*roles[0], "template")):
            return False
        self.policy()
        self.keep(("runPolicy", "backoffLimit"), (*_ELASTIC, "maxRestarts"))
        for role in roles:
            self._restart((*role, "restartPolicy"))
        containers = [self.container(role) for role in roles]
        counts = [self.count(role) for role in roles]
        found = [place for place in containers if place is not None]
        if self.at(self.own) is None and self.at((*_ELASTIC, "nProcPerNode")) is not None:
            self.own = (*_ELASTIC, "nProcPerNode")
        if len(found) == len(roles):
            self.start(found, sum(counts))
        self._elastic()
        self.name()
        return True

    def count(self, role: Loc) -> int:
        """Take the number of pods of a role."""
        loc = (*role, "replicas")
        count = self.take(loc)
        if count is not None and (not isinstance(count, int) or count < 1):
            self.faults.add(loc, "must be the number of pods, at least 1")
        return count if isinstance(count, int) and count > 0 else 1

    def _restart(self, loc: Loc) -> None:
        policy = self.take(loc)
        if policy not in (None, *_RESTARTS):
            self.faults.add(loc, f"must be {', '.join(_RESTARTS[:-1])} or {_RESTARTS[-1]}")
        elif policy is not None:
            self.put(("runPolicy", "restartPolicy"), "OnFailure" if policy == "Always" else policy, loc)
        if policy == "Never" and self.document["runPolicy"].pop("backoffLimit", None):
            self.notes.append(f"{path_of(loc)}: Never: the job is not tried again, whatever backoffLimit is")

    def _elastic(self) -> None:
        """Take a range of pods under torchrun as one of hosts, each with the ranks of a pod."""
        least, most = (self.take((*_ELASTIC, key)) for key in ("minReplicas", "maxReplicas"))
        if least is None and most is None:
            return
        self.taken |= {(*_ELASTIC, key) for key in ("metrics", "rdzvBackend")}
        is_range = isinstance(least, int) and isinstance(most, int) and 0 < least < most
        if not is_range or self.document.get("launcher") != "torchrun":
            self.notes.append(f"{path_of(_ELASTIC)}: {ELASTIC}")
            return
        each = self.document.pop("gpus", None) or self.document.pop("slotsPerWorker")
        del self.document["workers"]
        for key, value in {"elastic": True, "hosts": f"{least}:{most}", "slotsPerHost": each}.items():
            self.put((key,), value, _ELASTIC)


class TrainJob(_Pods):
    """Reads a manifest of Kubeflow Trainer."""

    managers = ("trainer.kubeflow.org/trainjob-controller",)
    resources = "resourcesPerNode"
    own = (*_TRAINER, "numProcPerNode")

    def read(self) -> bool:
        """Read all of it."""
        if not self.is_version(*_TRAINERS):
            return False
        self.policy()
        self.refuse((*SPEC, "initializer"), BEFORE, PREPARE)
        for key in _PATCHES:
            if any(key_of in _OF_PODS for key_of in _keys(self.at((*SPEC, key)))):
                self.refuse(
                    (*SPEC, key),
                    "has volumes or containers of the pods, which are not read here",
                    "write a job file with data: instead",
                )
        runtime = self.take((*SPEC, "runtimeRef", "name"))
        for key in ("apiGroup", "kind"):
            self.take((*SPEC, "runtimeRef", key))
        other = _OTHER_RUNTIMES.search(str(runtime))
        self.has_hostfile = other is not None
        self.start([_TRAINER], pods.number(self, (*_TRAINER, "numNodes"), 1) or 1)
        if other and self.document.get("launcher") == "env":
            self.faults.add(
                (*SPEC, "runtimeRef", "name"),
                "what this runtime starts the program by is not known here",
                "write a job file",
            )
        elif runtime not in (None, "torch-distributed") and not other:
            self.notes.append(
                f"spec.runtimeRef.name: {runtime}: read as torch-distributed; what else is in it is not known here"
            )
        if runtime is not None and self.at((*_TRAINER, "image")) is None:
            self.notes.append(f"spec.runtimeRef.name: {runtime}: its image is not known here: add --image NAME")
        self.name()
        return True

    def cpus(self, resources: Loc) -> int:
        """Return the number of the pod's CPUs."""
        places = [(*resources, kind, "cpu") for kind in ("requests", "limits")]
        return next((int(count) for place in places if pods.NUMBER.fullmatch(count := str(self.take(place)))), 0)


def _keys(value: Any) -> Iterator[str]:
    """Yield the keys within a value."""
    for key, inside in (
        value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, tuple) else ())
    ):
        yield str(key)
        yield from _keys(inside)


def _lacking(words: Sequence[str], count: int, each: int) -> str:
    """Return the options that torchrun in a shell's script has from the operator, "" where it needs none of them."""
    for command in shell_script.read(shell_script.of_line(words)).commands:
        launcher = inner(command.words)
        if launcher is None or launcher.kind != "torch":
            continue
        try:
            line = launcher_line.read(command.words[launcher.begin :], launcher)
        except UnclearError:
            continue
        given = {part.words[0].lstrip("-").replace("_", "-").partition("=")[0] for part in line.parts}
        meets = {} if count == 1 else {"nnodes": _MEETS["nnodes"]} if "rdzv-endpoint" in given else _MEETS
        needed = {**meets, **({"nproc-per-node": str(each)} if each > 1 else {})}
        return " ".join(f"--{name}={value}" for name, value in needed.items() if name not in given)
    return ""
