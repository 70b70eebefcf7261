"""The options that describe a job, and the request that they amount to."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from taco_launch.cli.options.common import Settings, add_option, complete_file, settings_of
from taco_launch.cli.options.container_options import code_options, container_options
from taco_launch.cli.options.gpu_options import gpu_options
from taco_launch.cli.options.option_groups import (
    GroupedCommand,
    OptionGroup,
    SeparatedCommand,
    option,
    options_of_group,
)
from taco_launch.cli.options.policy_options import ending_options
from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import CleanUp, JobSpec, Restart
from taco_launch.core.model.launchers import LAUNCHERS, what_starts_ranks
from taco_launch.jobs.request import job_fields

_STDIN = "-"
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
        if any(word.startswith("-") and not word.startswith("--") and len(word) > 2 for word in before):
            from taco_launch.cli.options import foreign_options

            foreign_options.refuse(ctx, before)
        words = self.words(ctx, before, lax=True)[1]
        if words and any(param.name == "host_count" for param in self.params):
            from taco_launch.cli.options import foreign_options

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


def _complete_knob(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from taco_launch.core.launch import knobs

    return [CompletionItem(f"{knob.name}=") for knob in knobs.TABLE if knob.name.startswith(incomplete)]


def _complete_profile(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from taco_launch.hosts.inventory import profile

    known = [name for name in profile.known_names("", os.environ) if name.startswith(incomplete)]
    return [CompletionItem(name) for name in known] or [CompletionItem(incomplete, type="file")]


file_option = add_option(
    "-f",
    "--file",
    metavar="FILE",
    group=OptionGroup.JOB.value,
    shell_complete=complete_file,
    help="Read the job from FILE (YAML; - for standard input): a job file (`submit --schema`) or an MPIJob of the Kubeflow MPI "
    "Operator. Command-line options override the file.",
)
_JOB = (
    option("--name", help="Name of the job. Default: from its command, with four random characters."),
    option("--replace", is_flag=True, help="Delete a job of yours with this name first, if it has ended."),
    option(
        "-x",
        "env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Environment variable for the ranks; without =VALUE, the value in your environment. Repeatable.",
    ),
)
_LAUNCHER = (
    option(
        "--launcher",
        type=click.Choice(list(LAUNCHERS)),
        help=what_starts_ranks(),
    ),
    option(
        "--per-host",
        is_flag=True,
        help="With --launcher env: start COMMAND once per host for all of the job's slots there. RANK and WORLD_SIZE then count "
        "hosts, and MASTER_PORT is 23456.",
    ),
    option(
        "--profile",
        metavar="NAME|FILE",
        shell_complete=_complete_profile,
        help="Profile with options of the mpirun command line: auto, taco-bare-metal, ack, or a file. Default: the inventory's.",
    ),
)
_TUNING = (
    option(
        "--transport",
        type=click.Choice(["auto", "tcp", "rdma"]),
        help="How hosts exchange data. Default: network.rdma in the inventory.",
    ),
    option("--interface", metavar="NAME", help="Network interface between hosts. Default: the inventory's."),
    option("--gdr/--no-gdr", default=None, help="GPUDirect RDMA. Default: network.gdr in the inventory."),
    option("--light/--no-light", default=None, help="LightCC's 2D all-reduce and top-k compression (lossy)."),
    option(
        "--knob",
        "knobs",
        multiple=True,
        metavar="NAME=VALUE",
        shell_complete=_complete_knob,
        help="Tuning variable of NCCL, Horovod, LightCC, UCX or Open MPI with a readable value (64MiB, true); see "
        "`taco-launch knobs`. Repeatable.",
    ),
    option(
        "--mca",
        "mca",
        multiple=True,
        type=(str, str),
        metavar="NAME VALUE",
        help="MCA parameter of Open MPI; replaces the one that taco-launch would set. Repeatable.",
    ),
    option(
        "--allow-unknown-knobs",
        is_flag=True,
        help="Accept names of variables and parameters that look like misspelled known ones.",
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
    function = container_options(code_options(gpu_options(ending_options(function))))
    for group, options in ((OptionGroup.TUNING, _TUNING), (OptionGroup.LAUNCHER, _LAUNCHER), (OptionGroup.JOB, _JOB)):
        function = options_of_group(group, options, function)
    return function


def request_of(settings: Settings, command: tuple[str, ...], options: Mapping[str, Any]) -> JobRequest:
    """Return what the command line asks for, over what the job file of -f does.

    Raises:
        UsageError: there is no command.
        SpecError: a selector or the file is wrong.
    """
    same: dict[str, Any] = {name: options.get(option) for name, option in job_fields.parameters("value").items()}
    flags: dict[str, Any] = {name: bool(options.get(name)) for name in job_fields.parameters("flag")}
    clean_up, restart, selectors = (options.get(name) for name in ("clean_up", "restart", "selectors"))
    request = JobRequest(
        command=command,
        **same,
        **flags,
        host=",".join(options["hosts"]) if options["hosts"] else None,
        gpu_models=tuple(options.get("gpu_models") or ()),
        exclude=tuple(options.get("exclude") or ()),
        data=tuple(options.get("data") or ()),
        selectors=_selectors(selectors or ()),
        env=_pairs(options["env"]),
        knobs=_pairs(options["knobs"]),
        mca=tuple(options["mca"]),
        clean_up=None if clean_up is None else CleanUp(clean_up),
        restart=None if restart is None else Restart(restart),
        config_files=tuple(options.get("config_files") or ()),
        env_files=tuple(options.get("env_files") or ()),
        written=job_fields.OPTIONS,
    )
    if options.get("sync_mode") is not None or options.get("sync_source") is not None:
        from taco_launch.cli.options.foreign_options import with_arena_source

        request = with_arena_source(request, options)
    if options.get("file") is not None:
        request = _over_file(settings, options["file"], request)
    if not request.command:
        raise click.UsageError("The command is missing: add -- COMMAND", click.get_current_context(silent=True))
    return request


def _pairs(texts: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    if not texts:
        return ()
    from taco_launch.jobs.request.variables import pairs

    return pairs(texts)


def _selectors(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    if not texts:
        return ()
    from taco_launch.jobs.request.selection import selector

    return tuple(map(selector, texts))


def _over_file(settings: Settings, path: str, request: JobRequest) -> JobRequest:
    from taco_launch.hosts.inventory import load
    from taco_launch.jobs.documents import job_file
    from taco_launch.jobs.request.overlay import over

    lax = request.allow_unknown_knobs
    if path != _STDIN:
        file = job_file.parse(load.read_file(path, job_file.OPTION), path, os.environ, allow_unknown=lax)
    else:
        data = b"" if sys.stdin is None else sys.stdin.buffer.read(load.MAX_BYTES + 1)
        file = job_file.parse(data, "standard input", os.environ, allow_unknown=lax)
    if file.is_manifest and settings.load().container is None:
        file = job_file.without_container(file)
    if file.notes:
        settings.talk("\n  ".join((f"{file.request.source}: not used here:", *file.notes)))
    return over(file.request, request)


def spec_of(settings: Settings, request: JobRequest, *, sized: bool = True) -> JobSpec:
    """Return the job of a request; `sized` says that the command line may say how many ranks it has.

    Raises:
        UsageError: parts of it contradict each other, or the command is a launcher: then with the line to type.
        SpecError: something in it, the inventory or the profile is wrong.
    """
    from taco_launch.jobs.request import nested, resolve
    from taco_launch.jobs.request.caller import here

    try:
        return resolve.resolve(request, settings.load(), here(os.environ))
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
