"""Take values out of a manifest of Kubeflow, and record what becomes of each: shared by the readers of all kinds."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from taco_launch.core.command import shell
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.remarks import reference
from taco_launch.hosts.inventory.schema.document import kind_of
from taco_launch.hosts.inventory.schema.faults import Faults, Loc, path_of
from taco_launch.hosts.inventory.variable_names import OF_A_RANK
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines import shell_line, shell_script
from taco_launch.jobs.command_lines.launcher_line import NOT_KNOWN, Part
from taco_launch.jobs.command_lines.script_translation import launched
from taco_launch.jobs.command_lines.shell_words import UNKNOWN

SPEC: Loc = ("spec",)
_POLICY: Loc = ("spec", "runPolicy")
_SCHEDULING: Loc = (*_POLICY, "schedulingPolicy")
_POLICY_KEYS = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend")
_SCHEDULING_KEYS = ("queue", "scheduleTimeoutSeconds")
_MULTIKUEUE = "kueue.x-k8s.io/multikueue"
# What says nothing about the job itself, or nothing that is not so here anyway.
_SILENT = (
    *("apiVersion", "kind", "metadata", "status", "name", "imagePullPolicy"),
    *("sshAuthMountPath", "mpiImplementation", "launcherCreationPolicy"),
)
# RFC 1035's label, which a Service's name has to be.
_LABEL = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")
_LABEL_CHARACTERS = 63
# What Kubernetes puts a variable's value in for, where it has one, and a doubled dollar sign, of which it leaves one.
_EXPANDED = re.compile(r"\$\$|\$\(([^)]*)\)")
# Options here that a launcher's line sets in a manifest: their keys in a job file.
_KEYS: dict[str, Loc] = {
    "--workdir": ("workingDir",),
    "--timeout": ("runPolicy", "activeDeadlineSeconds"),
    "--backoff-limit": ("runPolicy", "backoffLimit"),
}

_PLACE = (*OF_A_RANK, "MASTER_ADDR", "MASTER_PORT")
# How mpirun reaches the hosts, which are pods there, and set-up's matter here.
_REACHES = re.compile(
    r"plm(?:_[rs]sh_(?:agent|args))?|(?:orte|prte)_(?:default_hostfile|launch_agent|keep_fqdn_hostnames)"
)
# What a script does for the sshd of its own pod.
_OF_SSHD = re.compile(r"line \d+: (?:\S*/)?(?:(?:mkdir|service|cat)\b.*ssh|sshd\b)")
_SERVICE = re.compile(r"\.svc(?=[.:/]|$)")
BEFORE = "would run before the ranks, but taco-launch does not run them"
PREPARE = "prepare the hosts, or the image, and leave them out"


def _put_in(text: str, variables: Mapping[str, str]) -> str:
    return _EXPANDED.sub(lambda found: variables.get(found[1], found[0]) if found[0] != "$$" else "$", text)


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


# The words of a program with their places, and the variables that it is given.
Started = tuple[list[tuple[Loc, str]], Mapping[str, str]]


class Manifest:
    """Takes values out of a manifest and remembers which; each kind has its own `read`."""

    managers: tuple[str, ...] = ()

    def __init__(self, value: dict[str, Any], faults: Faults) -> None:
        """Start with a manifest that nothing was taken from."""
        self._value = value
        self.faults = faults
        self.taken: set[Loc] = set()
        self.notes: list[str] = []
        self.document: dict[str, Any] = {}
        self.origin: dict[Loc, Loc] = {}
        self.line_np: int | None = None

    def converted(self) -> ConvertedManifest:
        """Return what was read; what is wrong with it, or cannot be a job here, goes to the faults."""
        if not self.read():
            return ConvertedManifest({}, {}, ())
        unused = [self._shown(loc) for loc in self._left(self._value, ())]
        return ConvertedManifest(self.document, self.origin, (*self.notes, *unused), self.line_np)

    def read(self) -> bool:
        """Read all of it; return whether it is a manifest of this kind."""
        raise NotImplementedError

    def is_state(self, template: Loc) -> bool:
        """Refuse what `taco-launch get NAME -o yaml` prints, which has a status and lacks the pods' `template`."""
        if "status" not in self._value or self.at(template) is not None:
            return False
        problem = "this is the state of a job, as `taco-launch get NAME -o yaml` prints it, not a job file"
        self.faults.add(("status",), problem, f"to run it again: {self._again()}")
        return True

    def _again(self) -> str:
        """Return the line that submits a job again of which `get` told: its size and its command, as far as they are there."""
        words = ["taco-launch", "submit", "--name", "NEW"]
        for option, key in (("--np", "np"), ("--hosts", "host_count"), ("--slots-per-host", "slots_per_host")):
            number = self.at(("spec", key))
            words += [option, str(number)] if isinstance(number, int) else []
        return shell((*words, "--", *(tuple(self.words(("spec", "command"))) or ("COMMAND",))))

    def policy(self) -> None:
        """Take how the job ends, and in which order it gets its slots."""
        for key in _POLICY_KEYS:  # forms before that of v2beta1, and TrainJobs, have them in spec
            self.keep(("runPolicy", key), (*SPEC, key))
            self.keep(("runPolicy", key), (*_POLICY, key))
        managers = (*self.managers, _MULTIKUEUE)
        for section in (SPEC, _POLICY):
            if self.take((*section, "managedBy")) not in (None, *managers):
                self.faults.add((*section, "managedBy"), f"must be {' or '.join(managers)}")
        for key in _SCHEDULING_KEYS:
            self.keep(("runPolicy", "schedulingPolicy", key), (*_SCHEDULING, key))

    def name(self) -> None:
        """Take the job's name, of which the operator makes those of its workers."""
        loc: Loc = ("metadata", "name")
        name, workers = self.take(loc), self.document.get("workers", 1)
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

    def container(self, replica: Loc) -> Loc | None:
        """Return the place of the one container of a replica; none where there is another number of them."""
        loc = (*replica, "template", "spec", "containers")
        containers = self.at(loc)
        self.refuse((*loc[:-1], "initContainers"), BEFORE, PREPARE)
        if isinstance(containers, tuple) and len(containers) == 1 and isinstance(containers[0], dict):
            self.taken.add((*loc, 0, "name"))
            problem = "would run beside the ranks, but taco-launch does not run it"
            self.refuse((*loc, 0, "lifecycle", "postStart"), problem, "do it in the job's own program")
            return (*loc, 0)
        self.faults.add(loc, "must be exactly one container", value="" if containers is not None else "missing")
        return None

    def refuse(self, loc: Loc, problem: str, hint: str) -> None:
        """Refuse what the manifest has at a place."""
        if self.take(loc):
            self.faults.add(loc, problem, hint)

    def command(self, container: Loc, variables: dict[str, str]) -> list[tuple[Loc, str]]:
        """Return each word of a container's command with its place, the variables that stand there put in.

        A command that runs as another user is as that user types it.
        """
        places = [
            ((*container, key, index), _put_in(word, variables))
            for key in ("command", "args")
            for index, word in enumerate(self.words((*container, key)))
        ]
        as_user = shell_line.as_user([word for _place, word in places])
        if as_user:
            self.notes.append(f"{path_of(places[0][0])}: {places[0][1]}: {shell_line.OWN_USER}")
        return [(places[at][0], word) for at, word in as_user] or places

    def of_script(self, places: list[tuple[Loc, str]]) -> Started | None:
        """Return the words of the one launcher in a shell's script, with its place, and the variables that it sets; else None."""
        words = [word for _place, word in places]
        if shell_line.script_at(words) != len(words) - 1:
            return None
        place = places[-1][0]
        given = {**self.variables(place[:-2]), **self.given()}
        script = shell_script.read(words[-1])
        inside = launched(script, given, "-", home="", line=1)
        rows = [row for row in inside.rows if not _OF_SSHD.match(row.original)] if inside else []
        if inside is None or not self.keeps([row.original for row in rows]):
            return None
        self.notes += [f"{path_of(place)}: {row.original.removeprefix('line 1: ')}: {row.why}" for row in rows]
        if inside.folder:
            self.put(("workingDir",), inside.folder, place)
        own = {name: value for name, value in inside.env.items() if given.get(name) != value}
        self.notes += [f"{path_of(place)}: {name}: {NOT_KNOWN}" for name, value in own.items() if UNKNOWN in value]
        known = {name: value for name, value in own.items() if UNKNOWN not in value}
        return [(place, word) for word in inside.words], known

    def given(self) -> Mapping[str, str]:
        """Return the variables that the operator gives a pod, as far as they are known."""
        return {}

    def keeps(self, rows: Sequence[str]) -> bool:
        """Return whether a launcher is taken out of a script that does `rows` besides."""
        return not rows

    def is_expanded(self, places: list[tuple[Loc, str]]) -> bool:
        """Refuse a command that has the value of a variable which only Kubernetes knows."""
        expanded = next((place for place, _word in places if self._lacks(place[:-2], self.at(place))), None)
        if expanded is not None:
            problem = "Kubernetes would insert the value of a variable here, but taco-launch does not"
            self.faults.add(expanded, problem, "write the value")
        return expanded is not None

    def _lacks(self, container: Loc, text: Any, values: Mapping[str, str] | None = None) -> bool:
        """Return whether Kubernetes, or an operator, would put the value of a variable into a text that is not among `values`."""
        values = self.variables(container) if values is None else values
        given = {*_PLACE, *(entry.get("name") for entry in self.entries(container))}
        has_more = self.at((*container, "envFrom")) is not None
        names = {match[1] for match in _EXPANDED.finditer(str(text)) if match[1]} - {*values}
        return any(name in given or name.startswith("PET_") or (has_more and name.isidentifier()) for name in names)

    def use_part(self, part: Part, place: Loc, shown: str) -> None:
        """Take a part of a launcher's line that does not count ranks."""
        key = _KEYS.get(part.name) if part.use == table.OPTION else None
        if part.use in (table.ENV, table.MCA):
            self.set(part.use, part.name, part.value, place)
        elif part.use in (table.OMITTED, table.BARE, table.HOSTS, table.HOSTFILE):
            self.notes.append(f"{shown}: {part.why or 'the inventory has the hosts'}")
        elif key is not None:
            if key not in self.origin or key == ("workingDir",):
                value = part.value.removesuffix("s")
                self.put(key, int(value) if value.isdecimal() else part.value, place)
        elif part.use == table.OPTION:
            self.notes.append(
                f"{shown}: add {shell((part.name, part.value)) if part.value else part.name} to the command line"
            )

    def set(self, key: str, name: str, value: str, at: Loc) -> None:
        """Take a variable (`key` env) or a parameter (mca), unless it means something in Kubernetes alone."""
        if why := left_out(key, name, value):
            self.notes.append(f"{path_of(at)}: {name}: {why}")
            return
        if reference(name, value):
            self.faults.add(at, "no shell expands its $, so the ranks would get it literally", "write the value")
        self.put((key, name), value, at)

    def variables(self, container: Loc) -> dict[str, str]:
        """Return the container's variables whose values stand there, also by way of another one."""
        found: dict[str, str] = {}
        for index, entry in enumerate(self.entries(container)):
            value = entry.get("value")
            if isinstance(value, str) and not self._lacks(container, value, found):
                found[entry["name"]] = _put_in(value, found)
                self.taken.add((*container, "env", index))
        return found

    def entries(self, container: Loc) -> list[dict[str, Any]]:
        """Return the container's variables as they stand there, an empty one for what is none."""
        entries = self.at((*container, "env"))
        entries = entries if isinstance(entries, tuple) else ()
        return [entry if isinstance(entry, dict) and isinstance(entry.get("name"), str) else {} for entry in entries]

    def words(self, loc: Loc) -> Iterator[str]:
        """Yield the words of a list."""
        value = self.take(loc)
        if value is not None and not isinstance(value, tuple):
            self.faults.add(loc, f"must be a list, and this is {kind_of(value)}")
            return
        for index, word in enumerate(value or ()):
            number = isinstance(word, int) and not isinstance(word, bool)
            if not isinstance(word, str) and not number:
                self.faults.add((*loc, index), f"must be text, and this is {kind_of(word)}")
            yield str(word)

    def keep(self, loc: Loc, at: Loc) -> None:
        """Put a value into the job file as it stands at a place of the manifest."""
        if (value := self.take(at)) is not None:
            self.put(loc, value, at)

    def put(self, loc: Loc, value: Any, at: Loc) -> None:
        """Put a value into the job file that stands `at` a place of the manifest; a word of the program must be known."""
        for word in value if loc == ("command",) else ():
            if UNKNOWN in word:
                problem = f"{shell_script.shown(word)}: a shell would insert a value here"
                self.faults.add(at, problem, "write the value")
        *folders, last = map(str, loc)
        functools.reduce(lambda section, step: section.setdefault(step, {}), folders, self.document)[last] = value
        self.origin[loc] = at

    def take(self, loc: Loc) -> Any:
        """Return a value, which is used."""
        self.taken.add(loc)
        return self.at(loc)

    def at(self, loc: Loc) -> Any:
        """Return a value, None where there is none."""
        value: Any = self._value
        for step in loc:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, tuple) and isinstance(step, int) and step < len(value):
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
            if at in self.taken or step in _SILENT:
                continue
            if isinstance(inner, (dict, tuple)) and any(taken[: len(at)] == at for taken in self.taken):
                yield from self._left(inner, at)
            else:
                yield at


def left_out(key: str, name: str, value: str) -> str:
    """Return why a variable (`key` env) or a parameter (mca) is left out of the job, "" where it is not."""
    if key == "mca":
        return "it only sets how mpirun reaches pods" if _REACHES.fullmatch(name) else ""
    if name in _PLACE:
        return "taco-launch sets it for each rank"
    return "names a Service of Kubernetes" if _SERVICE.search(value) else ""
