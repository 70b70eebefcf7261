"""Help texts with options in titled groups: --help fits on a page, --help-all has every option in full.

No line ends within an option name, or within a word with hyphens.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import click

from taco_launch.cli.options.common import TacoOption, add_option, settings_of
from taco_launch.core.command import BARE, shell

F = TypeVar("F", bound=Callable[..., Any])
# In a context's `meta`: --help-all was given.
_ALL = "taco_launch.help_all"
# What --help shows, in this order: the usual options, each in one line.
USUAL = {
    "Job": {
        "--file": "Read the job from a job file or an MPIJob.",
        "--name": "Name of the job.",
        "-x": "Environment variable for the ranks. Repeatable.",
        "--sync": "Copy code to every host, and start there.",
        "--image": "Image that the job runs in.",
        "--data": "Host folder that the ranks see. Repeatable.",
        "--workdir": "Folder that the ranks start in.",
        "--tensorboard": "Start a TensorBoard beside the job.",
        "--each": "Start a job for each value of a name. Repeatable.",
        "--array": "Start a job for each number, such as 0-3.",
        "--suspend": "Queue the job suspended, until `resume`.",
        "--schema": "Print the JSON Schema of a job file.",
    },
    "Size, hosts and launcher": {
        "--np": "Number of ranks.",
        "--hosts": "Number of hosts.",
        "--slots-per-host": "Ranks on each host.",
        "--gpus": "GPUs per worker.",
        "--host": "Hosts to use, with slots.",
        "--launcher": "mpirun, hydra, torchrun or env.",
        "--transport": "auto, tcp or rdma.",
        "--knob": "Tuning variable; see `taco-launch knobs`.",
    },
    "Measurement": {
        "--repeats": "How many times each number is measured.",
        "--pattern": "Regular expression that finds the number.",
        "--unit": "Unit of that number, such as tokens/s.",
        "--chart": "Print the rates as bars as well.",
        "--db": "The history to use.",
    },
    "Queue and limits": {
        "--priority": "Jobs with a higher number start first.",
        "--queue-timeout": "Fail if no slots are free within this time.",
        "--no-wait": "Fail if slots are not free now.",
        "--timeout": "Stop the job after this time, such as 90s or 3h.",
        "--stall-timeout": "Fail the job if no rank makes progress this long.",
        "--restart": "When to retry: never, on-failure, always, exit-code.",
        "--backoff-limit": "Number of retries.",
    },
    "General": {
        "--dry-run": "Print the command line and start nothing.",
        "--explain": "With --dry-run: show the reason of each part.",
        "--inventory": "Inventory of hosts, a hostfile, or `lab`.",
        "--output": "table, wide, json or yaml.",
        "--json": "Same as -o json.",
        "--quiet": "Print only errors.",
        "--verbose": "Print each decision; -vv: each message.",
        "--help-all": "Show every option, with the defaults.",
        "--help": "Show this page.",
    },
}
# Click's wrapping breaks a line behind a hyphen; it knows no other meaning of this one, which is as wide.
_UNBREAKABLE = "\u2011"
# So many lines of examples does --help show.
_EXAMPLES = 5
# The width of its first column.
_COLUMN = 25


class _HelpLines(click.HelpFormatter):
    """A formatter that breaks lines at blanks only."""

    def write(self, string: str) -> None:
        """Write a piece, with the hyphens that wrapping was not to see."""
        super().write(string.replace(_UNBREAKABLE, "-"))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line of usage."""
        super().write_usage(prog, _in_one_piece(args), prefix)

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(_in_one_piece(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names in a first column, and what they mean in a second."""
        super().write_dl([(name, _in_one_piece(text)) for name, text in rows], col_max, col_spacing)


class HelpContext(click.Context):
    """The context of our commands."""

    formatter_class = _HelpLines


class LateCommand(click.Command):
    """A placeholder for a command that is imported when it is used."""

    def load(self) -> click.Command:
        """Import the command."""
        raise NotImplementedError


def _in_one_piece(text: str) -> str:
    return text.replace("-", _UNBREAKABLE)


class OptionGroup(enum.Enum):
    """The titles of the groups, in their order."""

    JOB = "Job"
    CODE = "Code and files"
    SIZE = "Size"
    HOSTS = "Hosts and GPUs"
    CONTAINER = "Image and data"
    LAUNCHER = "Launcher"
    TUNING = "Network and tuning"
    QUEUE = "Queue"
    SLURM = "Slurm"
    LIMITS = "Limits and retries"
    LOGS = "Records and logs"
    DRY_RUN = "Dry run"
    GENERAL = "General"


def options_of_group(group: OptionGroup, options: Iterable[tuple[tuple[str, ...], dict[str, Any]]], function: F) -> F:
    """Add options of one group, in the order in which they are listed.

    Args:
        group: The group of all of them.
        options: Names and settings of each, as `option` returns them.
        function: What they are added to.
    """
    for names, settings in reversed(tuple(options)):
        function = add_option(*names, group=group.value, **settings)(function)
    return function


def option(*names: str, **settings: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names and settings of an option."""
    return names, settings


class GroupedCommand(click.Command):
    """A command whose help has its options in groups."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, --help-all among them."""
        return with_help_all(super().get_params(ctx))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description; for --help its first paragraph and some examples."""
        text = self.help
        if not ctx.meta.get(_ALL):
            first, *others = (self.help or "").split("\n\n")
            examples = next((each for each in others if "Examples:" in each), "")
            self.help = "\n\n".join((first, *filter(None, ("\n".join(examples.splitlines()[: 2 + _EXAMPLES]),))))
        super().format_help_text(ctx, formatter)
        self.help = text

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group with its title."""
        everything = ctx.meta.get(_ALL)
        for title, records in self._in_full(ctx) if everything else self._in_brief(ctx):
            with formatter.section(title):
                formatter.write_dl(records)
        if not everything:
            formatter.write_paragraph()
            formatter.write_text(f"{ctx.command_path} --help-all lists every option.")

    def _in_full(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        for title, options in _grouped(self.get_params(ctx)):
            yield title, [record for each in options if (record := each.get_help_record(ctx)) is not None]

    def _in_brief(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        options = {name: each for each in self.get_params(ctx) if isinstance(each, click.Option) for name in each.opts}
        for title, texts in USUAL.items():
            found = [(_typed(options[name]), text) for name, text in texts.items() if name in options]
            if found:
                yield title, [(typed.ljust(_COLUMN), text) for typed, text in found]


def _typed(option: click.Option) -> str:
    """Return how an option is typed: its short name, its first long one, and what it requires."""
    short = next((name for name in option.opts if len(name) == 2), None)
    long = next((name for name in option.opts if name.startswith("--")), None)
    value = option.metavar or ("N" if isinstance(option.type, click.types.IntParamType) else "NAME")
    names = ", ".join(filter(None, (short, long)))
    return names if option.is_flag or option.count else f"{names} {value}"


def _grouped(params: Iterable[click.Parameter]) -> Iterator[tuple[str, list[click.Option]]]:
    options = [param for param in params if isinstance(param, click.Option) and not param.hidden]
    for group in OptionGroup:
        found = [each for each in options if _title(each) == group.value]
        if found:
            yield group.value, found


def _title(option: click.Option) -> str:
    return option.group if isinstance(option, TacoOption) and option.group else OptionGroup.GENERAL.value


def _show_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo("\n\n\n".join(_pages(ctx)), color=ctx.color)
        ctx.exit()


def _pages(ctx: click.Context) -> Iterator[str]:
    """Yield the help of a command, and behind that of a group the help of each of its commands."""
    yield ctx.get_help()
    commands = ctx.command.commands if isinstance(ctx.command, click.Group) else {}
    for name, command in commands.items():
        if not command.hidden:
            loaded = command.load() if isinstance(command, LateCommand) else command
            yield from _pages(HelpContext(loaded, info_name=name, parent=ctx))


_HELP_ALL = TacoOption(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show every option of the command, or of each command of the group, and exit.",
)


def with_help_all(params: Sequence[click.Parameter]) -> list[click.Parameter]:
    """Return a command's parameters with --help-all before the last one, --help."""
    return [*params[:-1], _HELP_ALL, *params[-1:]]


class SeparatedCommand(click.Command):
    """A command with an argument `command`, another program's, which is put after `--`."""

    def refuse_options_behind(self, ctx: click.Context, args: list[str]) -> None:
        """Refuse an option after a command without `--`: whose it is, ours or the program's, nobody can tell."""
        if not self.words(ctx, args, lax=True)[1]:
            return
        at = self._command_at(ctx, args)
        option = next((word for word in args[at:] if word.startswith("-") and word != "-"), None)
        if option is not None:
            own, program = shell(args[:at]), shell(args[at:])
            verb = f"{settings_of(ctx).typed}{ctx.command_path.removeprefix(BARE)}"
            line = " ".join(filter(None, (verb, own, "--", program)))
            raise click.UsageError(
                f"{option} comes after the command {args[at]}, but -- is missing before the command.\n"
                f"  if {option} belongs to the program: {line}\n  if it is an option of {ctx.command_path}, put it before --",
                ctx,
            )

    def _command_at(self, ctx: click.Context, args: list[str]) -> int:
        """Return the place of the first word that is not an option and no option's value."""
        for at in range(len(args)):
            try:
                if self.words(ctx, args[: at + 1], lax=True)[1]:
                    return at
            except click.UsageError:  # an option whose value comes next
                continue
        return len(args)

    def words(
        self, ctx: click.Context, args: list[str], *, lax: bool = False, without: str = ""
    ) -> tuple[list[str], tuple[str, ...]]:
        """Return the options, and the words that are not an option's; with `lax` also options that there are not.

        `without` names one to leave out.
        """
        parser = self.make_parser(ctx)
        parser.ignore_unknown_options = lax
        found, _, _ = parser.parse_args(list(args))
        words = found.get("command")  # or click's own word for nothing
        found.pop(without, None)
        return list(self._typed(found)), tuple(words) if isinstance(words, (tuple, list)) else ()

    def _typed(self, found: Mapping[str, Any]) -> Iterator[str]:
        """Yield options as they are typed, of the parser's values."""
        for each in self.params:
            if not isinstance(each, click.Option) or each.name not in found:
                continue
            value = found[each.name]
            for one in value if each.multiple else (value,):
                yield each.secondary_opts[0] if one is False else each.opts[0]
                if not each.is_flag:
                    yield from one if each.nargs > 1 else (one,)
