"""What people bring from other tools -> the jobs that it asks for here, and what became of each part of it."""

import itertools
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from taco_launch.core.command import shell
from taco_launch.core.errors import SpecError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import bare, elsewhere, inner
from taco_launch.hosts.inventory.schema import document
from taco_launch.hosts.inventory.schema.faults import Faults
from taco_launch.jobs.command_lines import containers, launcher_line, shell_line, shell_script
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.arena import arena_line
from taco_launch.jobs.command_lines.launcher_line import UnclearError
from taco_launch.jobs.command_lines.script_translation import translate_script
from taco_launch.jobs.command_lines.scripts import other_systems, redirections
from taco_launch.jobs.command_lines.scripts.unread_launchers import HINT, not_read, on_each_host
from taco_launch.jobs.command_lines.sizes import total
from taco_launch.jobs.command_lines.translation import Row, Translation, translate
from taco_launch.jobs.documents import horovod_config, job_file, job_writer, manifests, other_files, pods, sky_task
from taco_launch.jobs.documents.sky_task import SkyTask

_LAUNCHERS = "mpirun, mpiexec.hydra, horovodrun, torchrun, deepspeed, accelerate launch, composer, colossalai run, srun, jsrun, lrun, aprun, ibrun, flux run, mpirun_rsh, mpiexec_mpt"
_SET_UP = "several hosts require an image and set-up first: taco-launch init HOST... --image IMAGE --to hosts.yaml"
# A key of an object of Kubernetes, where its file has several documents, or is no YAML.
_KIND = re.compile(r"""^["']?kind["']?\s*:""", re.MULTILINE)


_COMMANDS = ("command", "args", "entrypoint", "run", "script", "cmd")


@dataclass(frozen=True)
class TranslatedJob:
    """A job here: its options and its program, the hostfile for `-i` ("" if none), and where it was found ("" if the whole)."""

    options: tuple[str, ...]
    program: tuple[str, ...]
    rows: tuple[Row, ...]
    hostfile: str = ""
    place: str = ""


@dataclass(frozen=True)
class Translated:
    """What was brought (`kind`), its jobs, and rows for what belongs to none of them."""

    kind: str
    jobs: tuple[TranslatedJob, ...]
    rows: tuple[Row, ...] = ()


def of_line(words: Sequence[str]) -> Translated:
    """Translate a command line of a launcher or of Arena.

    Raises:
        UsageError: it starts no ranks, or it is not known where its program begins.
    """
    if posixpath.basename(words[0]) == "arena":
        return _of_arena(words[1:])
    words = shell_script.with_computed(words)
    launcher = inner(words)
    if launcher is None:
        words = tuple(map(shell_script.shown, words))
        script = shell_script.of_line(words)
        if script:
            return _of_script(script, shell(words))
        other = elsewhere(words)
        inside = shell_script.shell_at(words)
        is_wrapped = other is not None and any(word.startswith("--wrap") for word in words)  # sbatch's, a script
        is_wrapped |= (
            other is not None and other[0] in other_systems.SCHEDULERS and bool(redirections.of_command(words))
        )
        is_wrapped |= bool(shell_line.as_user(words)) or (0 < inside < len(words) and not bare(words[:inside])[2])
        if is_wrapped or containers.script(words) or containers.outside(tuple(words))[1]:
            return _of_script(shell(words), shell(words))
        if other is not None:
            name, what = other
            raise UsageError(
                f"{name} is not translated: it would {what}", hint=other_systems.instead(name, what, words)
            )
        if why := not_read(words) or on_each_host(words):
            raise UsageError(why, hint=HINT)
        raise UsageError(
            f"{shell(words):.80}: starts no ranks by a launcher that is known here",
            hint=f"known launchers: {_LAUNCHERS}, arena; without one: taco-launch run --np N -- {shell(words[:1])} ...",
        )
    try:
        done = translate(words, launcher)
    except UnclearError as error:
        raise UsageError(
            f"{shell_script.shown(words[launcher.begin + error.index])!r} of {launcher.name}: {error.problem}",
            error.hint,
        ) from None
    return Translated(launcher.name, (_job(done),))


def of_file(data: bytes, source: str) -> Translated:
    """Translate a script, a manifest or a configuration of horovodrun.

    Raises:
        UsageError: it is none of them, or it starts no ranks.
        SpecError: a manifest has a part that no job can have.
    """
    text = data.decode("utf-8", "replace")
    if other_files.is_python(text, source):
        hint = f"taco-launch run --np N -- python3 {shell((source,))}; for the line that starts it: taco-launch translate -- LINE"
        raise UsageError(f"{source}: is a program in Python, and no script of a shell", hint=hint)
    if other_files.is_hostfile(text):
        hint = f"it is the inventory of a job: taco-launch -i {shell((source,))} run -- COMMAND"
        raise UsageError(f"{source}: is a hostfile, and starts nothing", hint=hint)
    if not shell_script.is_script(text):
        value = _document(text)
        if isinstance(value, dict) and not manifests.is_read(value) and (inside := next(_commands(value), None)):
            key, name, line = inside
            problem = f"is a {value['kind']}, and the only Kubernetes object that can be read is {manifests.KINDS}; its {key} starts {name}"
            raise UsageError(f"{source}: {problem}", hint=f"taco-launch translate -- {line}")
        if _KIND.search(text) or (isinstance(value, dict) and "kind" in value):
            return _of_manifest(data, source)
        if isinstance(value, dict) and horovod_config.is_config(value):
            return _of_config(value)
        if isinstance(value, dict) and sky_task.is_task(value):
            return _of_task(sky_task.read(value), source)
        if isinstance(value, dict) and (inside := next(_commands(value), None)):
            key, name, line = inside
            problem = f"is a YAML file of another service; its {key} starts {name}"
            raise UsageError(f"{source}: {problem}", hint=f"taco-launch translate -- {line}")
        if isinstance(value, dict) and not _starts_ranks(text):
            hint = f"taco-launch run -f {shell((source,))} --dry-run reads a job file, taco-launch inventory -i FILE an inventory"
            raise UsageError(f"{source}: is a YAML file without a job of another tool", hint=hint)
    return _of_script(text, source, posixpath.dirname(source) or ".")


def _commands(value: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the launchers in the commands of a document of another service, each with its key."""
    if isinstance(value, Mapping):
        for name, inside in value.items():
            yield from _commands(inside, str(name))
    elif isinstance(value, (list, tuple)) and not all(isinstance(word, str) for word in value):
        for inside in value:
            yield from _commands(inside, key)
    elif key.lower() in _COMMANDS and isinstance(value, (str, list, tuple)):
        words = [value] if isinstance(value, str) else value
        texts = [*words, " ".join(value.split()) if isinstance(value, str) else shell(tuple(words))]
        for each in (each for text in texts for each in shell_script.read(text).commands):
            if launcher := inner(each.words):
                yield f"{key}:", launcher.name, shell(tuple(map(shell_script.shown, each.words)))


def _starts_ranks(text: str) -> bool:
    """Return whether a text begins with a launcher: a colon in its line does not make it YAML."""
    first = next(iter(shell_script.read(text).commands), None)
    return first is not None and inner(first.words) is not None


def _of_script(text: str, source: str, folder: str = "") -> Translated:
    try:
        script = translate_script(text, os.path.expanduser("~"), folder)  # noqa: PTH111 - a home that is not known stays
    except UnclearError as error:
        raise UsageError(f"{source:.80}: line {error.index} {error.problem}", error.hint) from None
    if not script.jobs:
        found = "".join(f"\n  {row.original}: {row.why}" for row in script.rows if row.original.startswith("line "))
        problem = "no command in it starts ranks by a launcher that is known here"
        hint = f"known launchers: {_LAUNCHERS}"
        if script.launchers:
            problem, hint = (
                "no launcher in it can be a job here",
                "change what is named, or give the program of one of them: taco-launch run --np N -- PROGRAM",
            )
        raise UsageError(f"{source:.80}: {problem}{found}", hint=hint)
    jobs = tuple(_job(job, f"line {line}") for line, job in script.jobs)
    return Translated(f"a script for {script.scheduler}" if script.scheduler else "a script", jobs, script.rows)


def _of_task(task: SkyTask, source: str) -> Translated:
    done = _of_script(task.script, source)
    jobs = []
    for job in done.jobs:
        if line := task.by_hand(job.options, job.program):
            problem = f"each of {task.hosts} hosts runs {shell(job.program):.60}, and no launcher that is known here starts it"
            raise UsageError(f"{source}: {problem}", hint=line)
        rows = (*job.rows, *task.remarks(job.options))
        jobs.append(replace(job, options=(*task.options, *job.options), rows=rows))
    return Translated("a task of SkyPilot", tuple(jobs), (*done.rows, *task.rows))


def _job(done: Translation, place: str = "") -> TranslatedJob:
    several = "--hosts 1" not in shell(tuple(done.options)) and total(done.options) != 1
    rows = (
        (*done.rows, Row(f"-i {done.hostfile}", "", _SET_UP, is_remark=True))
        if done.hostfile and several
        else done.rows
    )
    return TranslatedJob(from_here(done.options), done.program, rows, done.hostfile, place)


def from_here(options: Sequence[str]) -> tuple[str, ...]:
    """Return a job's options with its folder as it counts from here, as it would for the launcher; with code, from there."""
    if "--sync" in options:
        return tuple(options)
    return tuple(
        os.path.abspath(os.path.expanduser(word)) if before == "--workdir" else word  # noqa: PTH100, PTH111 - links stay
        for before, word in zip(("", *options), options, strict=False)
    )


def _document(text: str) -> Any:
    try:
        return document.read(text, Faults(""))
    except SpecError:
        return None


def _of_arena(words: Sequence[str]) -> Translated:
    job = arena_line.translation(words)
    return Translated(arena_line.SUBMIT, (TranslatedJob(job.options, job.program, job.rows),))


def _of_manifest(data: bytes, source: str) -> Translated:
    file = job_file.parse(data, source, os.environ)
    rows = tuple(Row(note.partition(": ")[0], "", note.partition(": ")[2] or "is not used here") for note in file.notes)
    options = job_writer.options(file.request)
    if pods.GPUS.encode() in data and not any(pods.OF_SLOT in row.why for row in rows):
        here = shell(tuple(itertools.chain(*(each for each in itertools.pairwise(options) if each[0] == "--gpus"))))
        why = "" if here else f"each rank has one slot, {pods.OF_SLOT}"
        rows += (Row(pods.GPUS, here, why, is_remark=True),)
    job = TranslatedJob(options, file.request.command, rows)
    return Translated(file.kind, (job,))


def _of_config(value: Mapping[str, Any]) -> Translated:
    rows: list[Row] = []
    options: list[str] = []
    for key, option, setting in horovod_config.settings(value):
        meaning = table.OPTIONS["horovodrun"].get(option)
        part = launcher_line.setting("horovodrun", option, setting) if meaning else None
        here = ("-x", f"{part.name}={part.value}") if part is not None and part.use == table.ENV else ()
        options += here
        rows.append(
            Row(
                f"{key}: {setting}" if setting else key,
                shell(here) if here else "",
                part.why if part else "is no setting of horovodrun",
            )
        )
    return Translated("a configuration of horovodrun", (TranslatedJob(tuple(options), ("COMMAND",), tuple(rows)),))
