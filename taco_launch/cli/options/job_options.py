"""The options that describe a job, and the request that they amount to."""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from taco_launch.cli.options.common import Settings, add_option, complete_file, settings_of
from taco_launch.cli.options.job_field_options import OF_EACH_JOB, options_of, values_of
from taco_launch.cli.options.option_groups import (
    GroupedCommand,
    OptionGroup,
    SeparatedCommand,
    option,
    options_of_group,
)
from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.request import job_fields
from taco_launch.jobs.request.caller import here

# In a context's `meta`: the options of the command line, but for the inventory.
_OWN = "taco_launch.own"
_SIZES = ("np", "hosts", "slots_per_host", "workers", "gpus", "slots_per_worker")
F = TypeVar("F", bound=Callable[..., Any])


class JobCommand(SeparatedCommand, GroupedCommand):
    """A command whose arguments behind `--` are another program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse what stands before `--` and is not an option: it would be taken for the program."""
        split = args.index("--") if "--" in args else len(args)
        before, behind = [flag for word in args[:split] if (flag := self._flag(word)) is not None], args[split + 1 :]
        args = [*before, *args[split:]]
        if not ctx.resilient_parsing:
            self._refuse_others(ctx, before, behind, alone=len(args) == 1)
            if split == len(args):
                self.refuse_options_behind(ctx, before)
            ctx.meta[_OWN] = self.words(ctx, before, lax=True, without="inventory")[0]
        if split < len(args):
            own, stray = self.words(ctx, before)
            if stray and "" in own:
                raise click.BadParameter("the value is empty", ctx, param_hint=f"'{own[own.index('') - 1]}'")
            if stray:
                raise click.UsageError(
                    f"{stray[0]!r} is before --, and belongs to no option. The program goes after --; "
                    "separate hosts by commas (-H h1:8,h2:8), and set a variable with = (-x NAME=VALUE).",
                    ctx,
                )
        return super().parse_args(ctx, args)

    def _refuse_others(self, ctx: click.Context, before: list[str], behind: list[str], *, alone: bool) -> None:
        """Refuse what other tools take: mpirun's long options with one dash, and Arena's words and options."""
        words = self.words(ctx, before, lax=True)[1]
        has_dash = any(word.startswith("-") and not word.startswith("--") and len(word) > 2 for word in before)
        is_stray = words and any(param.name == "hosts" for param in self.params)
        if not has_dash and not is_stray:
            return
        from taco_launch.cli.options import foreign_options

        foreign_options.refuse(ctx, before)
        if is_stray:
            hint = foreign_options.arena_hint(settings_of(ctx).typed, before, words, behind, alone=alone)
            if hint is not None:
                raise click.UsageError(hint, ctx)

    def _flag(self, word: str) -> str | None:
        """Return a flag without the value that Arena's flags take (--gputopology=true); None where that leaves none."""
        name, _sign, value = word.partition("=")
        flag = next((one for one in self.params if isinstance(one, click.Option) and name in one.opts), None)
        if flag is None or not flag.is_flag or value not in ("true", "false"):
            return word
        return name if value == "true" else next(iter(flag.secondary_opts), None)


file_option = add_option(
    "-f",
    "--file",
    metavar="FILE",
    group=OptionGroup.JOB.value,
    shell_complete=complete_file,
    help="Read the job from FILE (YAML; - for standard input): a job file (`submit --schema`) or an MPIJob of the Kubeflow MPI "
    "Operator. Command-line options override the file.",
)
_ARENAS = (
    option(
        "--sync-mode",
        type=click.Choice(["git", "rsync"]),
        hidden=True,
        help="Arena's: what --sync-source is, a repository or a folder.",
    ),
    option(
        "--sync-source",
        metavar="URL|DIR",
        hidden=True,
        help="Arena's: a repository or a folder, which is put at code/NAME below --workdir.",
    ),
)


def job_options(function: F) -> F:
    """Add the options that describe a job, whatever its number of ranks."""
    function = click.argument(
        "command",
        nargs=-1,
        type=click.UNPROCESSED,
        shell_complete=complete_file,
        metavar="-- COMMAND...",
    )(function)
    function = options_of_group(OptionGroup.CODE, _ARENAS, function)
    return options_of(*OF_EACH_JOB)(function)


def request_of(settings: Settings, command: tuple[str, ...], options: Mapping[str, Any]) -> JobRequest:
    """Return what the command line asks for, over what the job file of -f does.

    Raises:
        UsageError: there is no command.
        SpecError: a selector or the file is wrong.
    """
    request = JobRequest(command=command, **values_of(options), written=job_fields.OPTIONS)
    if options.get("sync_mode") is not None or options.get("sync_source") is not None:
        from taco_launch.cli.options.foreign_options import with_arena_source

        request = with_arena_source(request, options)
    if options.get("file") is not None:
        from taco_launch.cli.options.job_file_option import over_file

        request = over_file(settings, options["file"], request)
    if not request.command:
        key = f", or the key command to {options['file']}" if options.get("file") is not None else ""
        raise click.UsageError(f"The command is missing: add -- COMMAND{key}", click.get_current_context(silent=True))
    return request


def spec_of(settings: Settings, request: JobRequest, *, sized: bool = True) -> JobSpec:
    """Return the job of a request; `sized` says that the command line may say how many ranks it has.

    Raises:
        UsageError: parts of it contradict each other, or the command is a launcher: then with the line to type.
        SpecError: something in it, the inventory or the profile is wrong.
    """
    from taco_launch.jobs.request import nested, remarks, resolve

    caller = here(os.environ, settings.note)
    try:
        spec = resolve.resolve(request, settings.load(), caller)
    except nested.NestedLauncherError as error:
        from taco_launch.cli.options import nested_launcher

        context = click.get_current_context()
        verb = context.command_path.partition(" ")[2]
        said = not sized or any(getattr(request, name) is not None for name in _SIZES)
        own = context.meta.get(_OWN, ())
        if error.script:
            raise UsageError(
                error.message, hint=nested_launcher.of_script(settings.typed, verb, error.script)
            ) from None
        typed, rows = nested_launcher.line(
            f"{settings.typed} {verb}", own, request.command, sized=said, launcher=error.spec.launcher
        )
        raise UsageError(error.message + nested_launcher.remarks(rows), hint=typed) from None
    for remark in remarks.remarks(spec, caller):
        settings.talk(remark)
    return spec
