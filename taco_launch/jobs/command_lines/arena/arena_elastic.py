"""Arena's elastic jobs of Horovod (`arena submit etjob`) as elastic jobs here: pure."""

import re
from collections.abc import Mapping, Sequence

from taco_launch.core.errors import UsageError
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines import launcher_line
from taco_launch.jobs.command_lines.arena import line_options
from taco_launch.jobs.command_lines.launcher_line import UnclearError

KINDS = ("et", "etjob")
# The verbs that change the number of an elastic job's workers, and in which direction.
SCALES = {"scalein": -1, "scaleout": 1}
# Their flags that have no effect here, and why.
_WITHOUT_EFFECT = {
    "timeout": "the command does not wait for the change",
    "retry": "a script is not run",
    "script": "the job's ranks learn of the change by themselves",
    "env": "the job's ranks keep their variables",
}
FLAGS = LEAST, MOST = "min-workers", "max-workers"
# What Arena's operator sets for the command: $((${workers}*${gpus})) is a number of ranks.
_VARIABLES = {"workers": "workers", "gpus": "gpus", "minWorkers": LEAST, "maxWorkers": MOST}
_PRODUCT = re.compile(r"\$\(\(\s*\$\{?(\w+)\}?\s*\*\s*\$\{?(\w+)\}?\s*\)\)")
_COUNT = re.compile("[1-9][0-9]{0,5}")


def computed(command: Sequence[str], given: Mapping[str, str]) -> tuple[str, ...]:
    """Return a command with the products of Arena's own variables as numbers, where the flags set them."""

    def product(match: re.Match[str]) -> str:
        counts = [given.get(_VARIABLES.get(name, ""), "") for name in match.groups()]
        return str(int(counts[0]) * int(counts[1])) if all(map(_COUNT.fullmatch, counts)) else match[0]

    return tuple(_PRODUCT.sub(product, word) for word in command)


def submit(own: Sequence[str], words: Sequence[str], given: Mapping[str, str], notes: list[str]) -> tuple[str, ...]:
    """Return the words of the job; `own` are its options but for its size, `words` its command, without a shell.

    Raises:
        UsageError: the range of workers is not there, or the command is no line of horovodrun that is understood.
    """
    least, most, gpus = (given.get(name, "") for name in (LEAST, MOST, "gpus"))
    if not (_COUNT.fullmatch(least) and _COUNT.fullmatch(most)):
        raise UsageError(f"--{LEAST} and --{MOST}: an elastic job requires both", hint=f"--{LEAST} 1 --{MOST} 4")
    launcher = inner(words)
    if launcher is not None and launcher.kind == "horovodrun":
        try:
            line = launcher_line.read(words[launcher.begin :], launcher)
        except UnclearError as error:
            raise UsageError(
                f"{words[launcher.begin + error.index]!r} of horovodrun: {error.problem}", error.hint
            ) from None
        own = line_options.carried(line, own, launcher.name, notes)
        words = (*line.before, *line.program)
    elif launcher is not None or words[:2] == ("sh", "-c"):
        raise UsageError(
            f"the command of an elastic job is a line of horovodrun or a program; this one starts with {words[0]!r:.60}",
            hint="python train.py, for a program that uses hvd.elastic",
        )
    size = ("--hosts", f"{least}:{most}", "--slots-per-host", gpus if _COUNT.fullmatch(gpus) else "1")
    return ("submit", "--launcher", "horovod", "--elastic", *size, *own, "--", *words)


def scaled(verb: str, flags: Sequence[tuple[str, str]], rest: Sequence[str], notes: list[str]) -> tuple[str, str, str]:
    """Return the verb, a job's name, and how many workers a line of scalein or scaleout adds: fewer than 0 for scalein.

    Raises:
        UsageError: the type, the name or the number is missing or not understood.
    """
    example = f"arena {verb} etjob --name NAME --count 1"
    if not rest or rest[0] not in KINDS:
        raise UsageError(f"arena {verb}: the type of the job must be etjob", hint=example)
    given = dict(flags)
    for name, value in flags:
        if name in _WITHOUT_EFFECT:
            notes.append(f"--{name}: {_WITHOUT_EFFECT[name]}")
        elif name not in ("name", "count", "namespace", "type"):
            raise UsageError(f"--{name} {value}: is not a known flag of arena {verb}", hint=example)
    name = given.get("name", "") or "".join(rest[1:2])
    if not name:
        raise UsageError("--name is missing", hint=example)
    count = given.get("count", "1")
    if not _COUNT.fullmatch(count):
        raise UsageError(f"--count {count}: must be a number, at least 1", hint=example)
    return verb, name, str(SCALES[verb] * int(count))
