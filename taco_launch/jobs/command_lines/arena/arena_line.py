"""A line of Arena, the command line of Kubernetes' training jobs -> the words of the same command here: pure.

The flags are those of arena_submit_mpijob.md and arena_submit_pytorchjob.md of kubeflow/arena, and the names in camel case
that its older versions had.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.hosts.inventory.schema.names import did_you_mean
from taco_launch.jobs.command_lines import launcher_line, shell_line
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.arena import arena_elastic, line_options
from taco_launch.jobs.command_lines.launcher_line import NOT_KNOWN, UnclearError
from taco_launch.jobs.command_lines.scripts import unread_launchers
from taco_launch.jobs.command_lines.shell_script import shown
from taco_launch.jobs.command_lines.shell_words import UNKNOWN
from taco_launch.jobs.command_lines.translation import Row, Translation

# Types of jobs whose command starts with a launcher, and those whose command each worker runs.
MPI, TORCH = ("mpi", "mpijob", "horovod", "horovodjob", "deepspeed", "deepspeedjob"), ("pytorch", "pytorchjob")
OTHER_TYPES = (
    *("tf", "tfjob", "volcano", "volcanojob", "standalone"),
    *("spark", "sparkjob", "ray", "rayjob", "kserve", "serving"),
)
SUBMIT = "arena submit"
_VERBS = ("submit", "list", "get", "logs", "top", "data", "delete", "prune", *arena_elastic.SCALES)
_SHORT = {"-a": "annotation", "-d": "data", "-e": "env", "-p": "priority", "-n": "namespace", "-l": "label"}
_SHORT |= {"-f": "follow", "-i": "instance", "-t": "tail", "-o": "output", "-A": "all-namespaces"}
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")
# Flags without a value, and what they are here.
_SWITCHES = {
    "tensorboard": ("--tensorboard",),
    "gputopology": ("--gputopology",),
    "rdma": ("--transport", "rdma"),
    "follow": ("-f",),
    "timestamps": ("--timestamps",),
}
# Flags with a value, which have another name or the same one here.
_SUBMIT = {
    **{name: f"--{name}" for name in ("name", "image", "worker-image", "workers", "data", "logdir")},
    **{name: f"--{name}" for name in ("sync-mode", "sync-source", "config-file", "selector", "priority")},
    "working-dir": "--workdir",
    "running-timeout": "--timeout",
    "starting-timeout": "--queue-timeout",
    "ttl-after-finished": "--ttl",
    "retry": "--backoff-limit",
    "job-backoff-limit": "--backoff-limit",
    "share-memory": "--shm-size",
    "shared-memory": "--shm-size",
    "clean-task-policy": "--clean-up",
}
_LOGS = {"instance": "--instance", "tail": "-t", "since": "--since", "since-time": "--since"}
# What changes nothing here, and why.
_UNLIMITED = "ranks have no limit of CPUs or memory of their own"
_NOTED = {
    "gang": table.AT_ONCE,
    "cpu": _UNLIMITED,
    "memory": _UNLIMITED,
    "annotation": "jobs have none",
    "label": "jobs have none",
    "sync-image": "the code is copied without a container",
    "tensorboard-image": "TensorBoard runs in the job's own image",
    "image-pull-secret": "the registry's login is in the inventory: container.registry",
    "image-pull-policy": "all hosts have the image with the same digest",
    "mounts-on-launcher": "all of a job runs with the same mounts",
    "loglevel": "-v shows each decision",
    "type": "",
    "model-name": "there is no registry of models",
    "model-source": "there is no registry of models",
    "nproc-per-node": "a worker has a process for each of its GPUs",
    "scheduler": "jobs have one queue",
    "shell": "the command is started without a shell, or by sh",
}
_OF_HOST = "ranks have the host's network, processes and shared memory where the inventory says so: container"
_NOTED |= dict.fromkeys(("host-network", "host-pid", "host-ipc"), _OF_HOST)
_NOTED |= dict.fromkeys(("use-host-network", "use-host-pid", "use-host-ipc"), _OF_HOST)
_GIVES_NO_VALUE = (
    *("gang", "mounts-on-launcher", "trace", "pprof", "all-namespaces", "host-network", "host-pid", "host-ipc"),
    *("use-host-network", "use-host-pid", "use-host-ipc"),
)
# What would have other programs run, or elsewhere: refused, with what is done here.
_REFUSED = {
    "toleration": "hosts here have no taints; use --exclude HOST to leave a host out",
    "device": "slots are NVIDIA GPUs, or cores on a machine without GPUs; omit it",
    "config": "hosts are in an inventory: taco-launch -i FILE arena ...",
    "arena-namespace": "there is no Arena service here; omit it",
}
# All that submit knows.
FLAGS = frozenset((*_SWITCHES, *_SUBMIT, *_NOTED, *_GIVES_NO_VALUE, *_REFUSED, "env", "gpus", "data-dir", "namespace"))
_GIT = "GIT_SYNC_"
_BOARD = "/training_logs"
# Go's durations: 1h30m.
_SPAN = re.compile(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
# A shell goes on in another folder where its `cd` fails; the wrapped line must not.
_CHANGES_FOLDER = re.compile(r"^(\s*cd\s+[^;&|\n]+);")
_BEFORE_COMMAND = 2  # words: submit, and the type of the job
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class ArenaLine:
    """The words of a command here, what of the line changes nothing, and variables that git needs on this machine."""

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()
    git: tuple[tuple[str, str], ...] = ()


def read(words: Sequence[str], clusters: Sequence[str]) -> ArenaLine:
    """Read a line without the word arena; `clusters` are the namespaces that are this cluster.

    Raises:
        UsageError: it asks for what cannot be had without Kubernetes, or is not known; with what is typed instead.
    """
    flags, rest = _split(words)
    if not rest or rest[0] not in _VERBS:
        known = f"arena {rest[0]} is not supported by taco-launch" if rest else "a command is missing"
        raise UsageError(f"{known}: {', '.join(_VERBS)}", hint="taco-launch arena --help")
    verb, *rest = rest
    if verb in arena_elastic.SCALES:
        notes = _checked([flag for flag in flags if flag[0] == "namespace"], clusters)
        return ArenaLine(arena_elastic.scaled(verb, flags, rest, notes), tuple(notes))
    notes = _checked(flags, clusters)
    if verb == "submit":
        return _submit(flags, rest, notes)
    own = [word for name, value in flags for word in _looked_at(verb, name, value)]
    return ArenaLine((verb, *rest, *own), tuple(notes))


def translation(words: Sequence[str]) -> Translation:
    """Return the job that a line without the word arena starts.

    Raises:
        UsageError: as read; or it starts none.
    """
    line = read(words, ("default",))
    if line.words[0] != "submit":
        raise UsageError(
            f"arena {line.words[0]} starts no job", hint=f"taco-launch arena {shell(tuple(words))} runs it"
        )
    at = line.words.index("--")
    rows = [Row(note.partition(": ")[0], "", note.partition(": ")[2]) for note in line.notes]
    return Translation(line.words[1:at], line.words[at + 1 :], "", tuple(rows))


def of_script(words: Sequence[str]) -> Translation:
    """Return the job that a line in a script starts; a flag whose value the script does not show is left out.

    Raises:
        UsageError: as read; or its command is a script that starts the launcher.
    """
    known: list[str] = []
    rows: list[Row] = []
    for word in words:
        if UNKNOWN in word and known[-1:] and known[-1].startswith("-") and "=" not in known[-1]:
            rows.append(Row(shown(f"{known.pop()} {word}"), "", NOT_KNOWN))
        elif UNKNOWN in word and word.startswith("-"):
            rows.append(Row(shown(word), "", NOT_KNOWN))
        else:
            known.append(word)
    script = shown(known[-1]) if known else ""
    if script.endswith(".sh") and len(script.split()) == 1:
        raise UsageError(
            f"its launcher is in {script}", hint=f"taco-launch translate {shell((posixpath.basename(script),))}"
        )
    for row in rows:
        if row.original.startswith(("--workers", "--gpus")):
            raise UsageError(f"{row.original}: {NOT_KNOWN}", hint="write the number")
    try:
        done = translation(known)
    except UsageError:  # its message is to show words as the script has them
        done = translation(tuple(map(shown, known)))
    rows += [Row(shown(word), "", "a shell would insert a value here: write it") for word in known if UNKNOWN in word]
    return replace(done, program=tuple(map(shown, done.program)), rows=(*done.rows, *rows))


def _split(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the flags by their long names in kebab case, each with its value, and the other words.

    Raises:
        UsageError: a flag has no value.
    """
    flags: list[tuple[str, str]] = []
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return flags, [*rest, *left]
        if not word.startswith("-") or word == "-":
            rest.append(word)
            if rest[0] == "submit" and len(rest) > _BEFORE_COMMAND and not any(map(str.isspace, word)):
                return flags, [*rest, *left]  # the command is not one text, so its options are in its own words
            continue
        name, is_set, value = word.partition("=")
        name = _SHORT.get(name) or _CAPITAL.sub(lambda found: f"-{found[1].lower()}", name.lstrip("-"))
        if name in _SWITCHES or name in _GIVES_NO_VALUE:
            value = value or "true"
        elif not is_set:
            if not left:
                raise UsageError(f"{word}: its value is missing")
            value = left.pop(0)
        flags.append((name, value))
    return flags, rest


def _checked(flags: Sequence[tuple[str, str]], clusters: Sequence[str]) -> list[str]:
    """Return what changes nothing here.

    Raises:
        UsageError: a flag asks for what only Kubernetes has.
    """
    notes = []
    for name, value in flags:
        if name in _REFUSED:
            raise UsageError(f"--{name} {value}: not supported: {_REFUSED[name]}")
        if name == "namespace" and value not in clusters:
            raise UsageError(
                f"--namespace {value}: there are no namespaces here; the accepted values are {' and '.join(clusters)}",
                hint="omit it, or name another inventory: taco-launch -i FILE arena ...",
            )
        if _NOTED.get(name):
            notes.append(f"--{name}: {_NOTED[name]}")
    return list(dict.fromkeys(notes))


def _submit(flags: Sequence[tuple[str, str]], rest: Sequence[str], notes: list[str]) -> ArenaLine:
    kind = rest[0] if rest else ""
    if kind not in (*MPI, *TORCH, *arena_elastic.KINDS):
        hint = f"arena submit {'|'.join((*MPI[::2], *TORCH[::2]))}; other programs: taco-launch submit --help"
        is_type = kind in OTHER_TYPES or kind.isidentifier()
        why = f"arena submit {kind} is not supported by taco-launch" if is_type else "the type of the job is missing"
        raise UsageError(why, hint=hint)
    of_kind = arena_elastic.FLAGS if kind in arena_elastic.KINDS else ()
    for name, value in flags:
        if name not in (*FLAGS, *of_kind):
            _refuse_flag(name, value)
    command = list(rest[1:])
    if not command:
        raise UsageError("the command is missing", hint='it goes last: "python train.py"')
    if command[0].startswith("-"):
        raise UsageError(
            f"{command[0]}: is an option, and the command is expected here", hint="taco-launch arena --help"
        )
    own: list[str] = []
    variables = [value.partition("=") for name, value in flags if name == "env"]
    git = {variable: text for variable, _equals, text in variables if variable.startswith(_GIT)}
    ref = next((git.pop(name) for name in (f"{_GIT}REV", f"{_GIT}BRANCH") if git.get(name)), "")
    given = dict(flags)
    if given.get("gpus") == "0":
        notes.append("--gpus 0: a slot is a GPU where its host has GPUs, else a core")
    for name, value in flags:
        if name == "env":
            own += [] if value.startswith(_GIT) else ["-x", value]
        elif name not in (*_NOTED, *of_kind, "namespace", *_GIVES_NO_VALUE):
            own += _asked(name, f"{value}@{ref}" if ref and name == "sync-source" else value)
    if given.get("tensorboard") == "true" and "logdir" not in given:
        own += ["--logdir", _BOARD]
    command = shell_line.joined(command, notes)
    if of_kind:
        words = _words(arena_elastic.computed(command, given))
        line = arena_elastic.submit(line_options.without(own, ("--workers", "--gpus")), words, given, notes)
    else:
        line = _mpi(own, command, given, notes) if kind in MPI else _torch(own, _words(command), given)
    return ArenaLine(line, tuple(notes), tuple(git.items()))


def _torch(own: list[str], words: tuple[str, ...], given: Mapping[str, str]) -> tuple[str, ...]:
    """Return a job whose program Arena would have started once for each worker, which has all of its GPUs."""
    is_one = int(given.get("gpus", "0")) > 1 and inner(words) is None
    return ("submit", "--launcher", "env", *(("--per-host",) if is_one else ()), *own, "--", *words)


def _refuse_flag(name: str, value: str) -> None:
    hint = did_you_mean(name, FLAGS) or "taco-launch arena --help"
    read_as = "" if value in ("true", "false") else f" (read with the value {value!r:.40})"
    raise UsageError(f"--{name}: is not a known flag of arena submit{read_as}", hint=hint)


def _asked(name: str, value: str) -> list[str]:
    """Return what a flag of submit is here.

    Raises:
        UsageError: it is not known, or its value is of no use here.
    """
    if name in _SWITCHES:
        return list(_SWITCHES[name]) if value == "true" else []
    if name in ("workers", "gpus") and not _COUNT.fullmatch(value):
        raise UsageError(f"--{name} {value}: must be a number", hint=f"--{name} 2")
    if name == "gpus":
        return ["--gpus", value] if value != "0" else []
    if name == "data-dir":
        return ["--data", value if ":" in value else f"{value}:{value}"]
    if name == "priority" and not value.lstrip("-").isdecimal():
        raise UsageError(f"--priority {value}: must be a number here, not a name of Kubernetes", hint="--priority 10")
    if name in ("running-timeout", "starting-timeout", "ttl-after-finished"):
        value = _seconds(name, value)
    return [_SUBMIT[name], value.lower() if name == "clean-task-policy" else value]


def _seconds(name: str, value: str) -> str:
    found = _SPAN.fullmatch(value)
    if not value or found is None:
        raise UsageError(f"--{name} {value}: is not a time such as 90s, 15m or 2h22m")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return f"{hours * 3600 + minutes * 60 + seconds}s"


def _mpi(own: list[str], command: Sequence[str], given: Mapping[str, str], notes: list[str]) -> tuple[str, ...]:
    """Return a job whose launcher Arena would have started: its line of mpirun, as options here.

    Raises:
        UsageError: the command does not start with mpirun, or contradicts the flags.
    """
    words = _words(command)
    found = inner(words)
    if script := unread_launchers.script_of(words):
        job = f"; add {shell(others)}" if (others := tuple(line_options.without(own, ("--workers", "--gpus")))) else ""
        size = f"{given.get('workers', '1')} workers" + (
            f" with {gpus} GPUs each" if (gpus := given.get("gpus")) else ""
        )
        raise UsageError(
            f"{script}: may start ranks itself, and is read on its own",
            hint=f"translate the script: taco-launch translate {shell((script,))}. Its ranks run on {size}{job}",
        )
    if found is None or found.kind not in table.OPTIONS:
        is_script = words != tuple(command) and shell_line.script_at(words)
        begins = f"is a script of a shell: {command[0]!r:.60}" if is_script else f"starts with {words[0]!r:.60}"
        each = "a program that is started once for each worker: arena submit pytorch ..."
        raise UsageError(
            f"the command of such a job must start with a launcher, mpirun for example; this one {begins}",
            hint="write the line of the launcher alone" if is_script else each,
        )
    try:
        line = launcher_line.read(words[found.begin :], found)
    except UnclearError as error:
        word = words[found.begin + error.index]
        raise UsageError(f"{word!r} of {found.name}: {error.problem}", error.hint) from None
    own = line_options.carried(line, own, found.name, notes)
    slots = int(given.get("workers", "1")) * max(int(given.get("gpus", "0")), 1)
    ranks = line.last(table.RANKS)
    asked = ranks.value if ranks else str(slots)
    if int(asked) > slots:
        many = "1 slot" if slots == 1 else f"{slots} slots"
        gpus = " --gpus 1" if "gpus" in given else ""
        raise UsageError(f"{found.name} -np {asked}: the workers have {many}", hint=f"--workers {asked}{gpus}")
    if int(asked) < slots:
        own = [*line_options.without(own, ("--workers", "--gpus")), "--np", asked]
    launcher = ("--launcher", "torchrun") if found.kind in table.OF_PYTHON else ()
    return ("submit", *launcher, *own, "--", *line.before, *line.program)


def _words(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that is one text as its words; one that a shell does more with is left to a shell, as Arena does."""
    if len(command) > 1:
        return tuple(command)
    try:
        found = shell_line.read(("sh", "-c", command[0]))
    except UnclearError:
        return ("sh", "-c", _CHANGES_FOLDER.sub(r"\1 || exit;", command[0]))
    assert found is not None
    program, variables = found
    return program if not variables else ("env", *(f"{name}={value}" for name, value in variables.items()), *program)


def _looked_at(verb: str, name: str, value: str) -> list[str]:
    """Return what a flag of another command than submit is here.

    Raises:
        UsageError: the flag is unknown.
    """
    if name in (*_NOTED, "namespace", *_GIVES_NO_VALUE):
        return []
    if verb == "logs" and name in _SWITCHES:
        return list(_SWITCHES[name]) if value == "true" else []
    if verb == "logs" and name in _LOGS:
        return [_LOGS[name], value]
    if verb == "prune" and name == "since":
        return ["--older-than", value]
    if name == "output":
        return ["-o", value]
    raise UsageError(f"--{name}: is not a known flag of arena {verb}", hint=f"taco-launch {verb} --help")
