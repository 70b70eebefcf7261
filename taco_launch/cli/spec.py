"""The options that describe a job, and the JobSpec that they amount to."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from taco_launch.cli import arena, foreign, nested
from taco_launch.cli.completion import complete_host_list
from taco_launch.cli.gpu_options import gpu_options, narrowed
from taco_launch.cli.options import Settings, add_option, complete_file, local_names
from taco_launch.cli.person import person
from taco_launch.cli.policy import ending_options, policy_of
from taco_launch.cli.sizes import sizes_of
from taco_launch.errors import UsageError, quoted
from taco_launch.model.jobs import LAUNCHERS

if TYPE_CHECKING:
    from taco_launch.model.hosts import Host, Inventory
    from taco_launch.model.jobs import JobSpec
    from taco_launch.model.profiles import Profile

# Of a line in quotes, no more letters than these.
_MOST_SHOWN = 60
F = TypeVar("F", bound=Callable[..., Any])


class JobCommand(click.Command):
    """A command whose arguments behind `--` are another program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse what stands before `--` and is no option: it would be taken for the program."""
        split = args.index("--") if "--" in args else len(args)
        before, behind = [flag for word in args[:split] if (flag := self._flag(word)) is not None], args[split + 1 :]
        args = [*before, *args[split:]]
        if not ctx.resilient_parsing:
            foreign.refuse(ctx, before)
            ctx.meta[nested.OWN] = self._words(ctx, before, lax=True, without="inventory")[0]
        if any(param.name == "host_count" for param in self.params) and not ctx.resilient_parsing:
            slip = arena.slip(ctx.command_path, *self._words(ctx, before, lax=True), behind, alone=len(args) == 1)
            if slip is not None:
                raise click.UsageError(slip, ctx)
        if split < len(args):
            own, stray = self._words(ctx, before)
            if stray and "" in own:
                raise click.BadParameter("the value is empty", ctx, param_hint=f"'{own[own.index('') - 1]}'")
            if stray:
                raise click.UsageError(
                    f"{stray[0]!r} stands before --, and belongs to no option. The program stands behind --; "
                    "hosts are joined by commas (-H h1:8,h2:8), variables by = (-x NAME=VALUE).",
                    ctx,
                )
        return super().parse_args(ctx, args)

    def _flag(self, word: str) -> str | None:
        """Give a flag without the value that Arena's flags take (--gputopology=true); None where that leaves none."""
        name, _sign, value = word.partition("=")
        flag = next((one for one in self.params if isinstance(one, click.Option) and name in one.opts), None)
        if flag is None or not flag.is_flag or value not in ("true", "false"):
            return word
        return name if value == "true" else next(iter(flag.secondary_opts), None)

    def _words(
        self, ctx: click.Context, args: list[str], *, lax: bool = False, without: str = ""
    ) -> tuple[list[str], tuple[str, ...]]:
        """Give the options, and the words that are no option's; with `lax` also options that there are not.

        `without` names one to leave out.
        """
        parser = self.make_parser(ctx)
        parser.ignore_unknown_options = lax
        found, _, _ = parser.parse_args(list(args))
        words = found.get("command")  # or click's own word for nothing
        found.pop(without, None)
        return list(self._typed(found)), tuple(words) if isinstance(words, (tuple, list)) else ()

    def _typed(self, found: Mapping[str, Any]) -> Iterator[str]:
        """Give options as they are typed, of the parser's values."""
        for option in self.params:
            if not isinstance(option, click.Option) or option.name not in found:
                continue
            value = found[option.name]
            for one in value if option.multiple else (value,):
                yield option.secondary_opts[0] if one is False else option.opts[0]
                if not option.is_flag:
                    yield from one if option.nargs > 1 else (one,)


def job_options(function: F) -> F:
    """Add the options that describe a job, whatever its number of ranks."""
    options = (
        add_option("--name", help="Name of the job. Default: from its command, and four random characters."),
        add_option(
            "-H",
            "--host",
            "hosts",
            multiple=True,
            metavar="H1:8,H2:8",
            shell_complete=complete_host_list,
            help="Hosts and groups of hosts to use, and slots on each.",
        ),
        add_option(
            "-x",
            "env",
            multiple=True,
            metavar="NAME[=VALUE]",
            help="Environment variable for the ranks; without a value the caller's. Repeatable.",
        ),
        add_option(
            "--knob",
            "knobs",
            multiple=True,
            metavar="NAME=VALUE",
            shell_complete=_complete_knob,
            help="A knob of NCCL, Horovod, LightCC, UCX or Open MPI, its value as people write it (64MiB, true): "
            "`taco-launch knobs`. Repeatable.",
        ),
        add_option(
            "--mca",
            "mca",
            multiple=True,
            type=(str, str),
            metavar="NAME VALUE",
            help="Open MPI's MCA parameter; goes in the place of ours. Repeatable.",
        ),
        add_option(
            "--allow-unknown-knobs", is_flag=True, help="Let NCCL_*, HOROVOD_* and LIGHT_* pass that no table has."
        ),
        add_option(
            "--launcher",
            type=click.Choice(LAUNCHERS),
            default="mpirun",
            show_default=True,
            help="What starts the ranks: mpirun; torchrun on each host; or env: nothing but the variables that "
            "torch.distributed reads (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; mpirun's ranks have them, too).",
        ),
        add_option(
            "--per-host",
            is_flag=True,
            help="With --launcher env: start COMMAND once on each host, for all of the job's slots there. RANK and WORLD_SIZE "
            "count hosts, MASTER_PORT is 23456.",
        ),
        add_option(
            "--profile",
            metavar="NAME|FILE",
            shell_complete=_complete_profile,
            help="Which options the mpirun line has: auto, taco-bare-metal, ack, or a file. Default: the inventory's.",
        ),
        add_option(
            "--transport",
            type=click.Choice(["auto", "tcp", "rdma"]),
            help="How hosts exchange data. Default: the inventory's network.rdma.",
        ),
        add_option("--interface", metavar="NAME", help="Network interface between hosts. Default: the inventory's."),
        add_option("--gdr/--no-gdr", default=None, help="GPUDirect RDMA. Default: the inventory's network.gdr."),
        add_option("--light/--no-light", default=False, help="LightCC's 2D all-reduce and top-k compression (lossy)."),
        gpu_options,
        ending_options,
        click.argument(
            "command",
            nargs=-1,
            type=click.UNPROCESSED,
            shell_complete=complete_file,
            metavar="-- COMMAND...",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def spec_of(settings: Settings, command: tuple[str, ...], options: dict[str, Any]) -> "JobSpec":
    """Build the JobSpec of a job from its options.

    Raises:
        UsageError: there is no command, it is a line in quotes, or options contradict each other.
        SpecError: an option, the inventory or the profile is wrong.
    """
    from taco_launch.flows import job_names
    from taco_launch.inventory import names
    from taco_launch.model.jobs import Asked, JobSpec

    if not command:
        raise click.UsageError("Missing the command: -- COMMAND...", click.get_current_context(silent=True))
    _refuse_a_line(command)
    size = sizes_of(options)
    try:
        folder = os.getcwd()  # noqa: PTH109 - bytes that are no UTF-8 stay as they are
    except FileNotFoundError:
        raise UsageError("the current folder is gone", hint="cd to one that exists") from None
    inventory = settings.load()
    name = job_names.default_name(command) if options["name"] is None else names.job_name(options["name"], "--name")
    interface = options["interface"]
    env, mca = _knobs(options)
    hosts = narrowed(inventory, _hosts(inventory, ",".join(options["hosts"]) if options["hosts"] else None), options)
    spec = JobSpec(
        name=name,
        command=command,
        hosts=hosts,
        launcher=_launcher(options),
        per_host=options["per_host"],
        head=_head(inventory, hosts),
        env=env,
        mca=mca,
        asked=Asked(
            transport=options["transport"],
            interface=interface if interface is None else names.interface(interface),
            gdr=options["gdr"],
            light=options["light"],
        ),
        profile=profile_of(inventory, options["profile"]),
        network=inventory.network,
        container=inventory.container,
        versions=inventory.versions,
        cwd=folder,
        mpirun=inventory.mpirun,
        cluster=inventory.cluster,
        owner=person(),
        policy=policy_of(options, inventory.host_loss_timeout),
        exclusive=bool(options.get("exclusive")),
        **size,
    )
    context = click.get_current_context()
    verb = context.command_path.partition(" ")[2]
    nested.refuse(spec, f"{settings.typed} {verb}", context.meta[nested.OWN], options)
    return spec


def _refuse_a_line(command: tuple[str, ...]) -> None:
    """Refuse a whole command line as one word, as ranks would: no program has such a name."""
    program, *words = command
    if words or len(program.split()) < 2:
        return
    import shutil

    # Path.is_file raises where no file can have such a name: a line in quotes may be longer than any.
    if shutil.which(program) is None and not os.path.isfile(program):  # noqa: PTH113
        raise UsageError(f"no program has the name {_in_short(program)}", hint=quoted(program))


def _in_short(program: str) -> str:
    return repr(program if len(program) <= _MOST_SHOWN else f"{program[:_MOST_SHOWN]}...")


def _launcher(options: Mapping[str, Any]) -> str:
    name: str = options["launcher"]
    if options["per_host"] and name != "env":
        hint = "add --launcher env, or leave it out"
        raise UsageError(f"--per-host: --launcher {name} starts a process for each rank", hint=hint)
    return name


def _knobs(options: dict[str, Any]) -> tuple[tuple[tuple[str, str | None], ...], tuple[tuple[str, str], ...]]:
    """Give the variables and MCA parameters that were asked for; the table of knobs is loaded only for some."""
    given = options["env"], options["knobs"], options["mca"]
    if not any(given):
        return (), ()
    from taco_launch.inventory import asked

    found = asked.parse(*given, os.environ, allow_unknown=options["allow_unknown_knobs"])
    return found.env, found.mca


def _hosts(inventory: "Inventory", wanted: str | None) -> "tuple[Host, ...]":
    from taco_launch.inventory import select
    from taco_launch.inventory.load import SHIPPED

    if wanted is None:
        return inventory.hosts
    if inventory.source == SHIPPED:
        return select.hosts_of(wanted, local_names())
    return select.choose(inventory, wanted)


def profile_of(inventory: "Inventory", wanted: str | None) -> "Profile":
    """Read the profile that was asked for, or the inventory's, a path in which counts from the inventory's folder."""
    from taco_launch.inventory import names, profile

    name = wanted or inventory.profile
    if wanted is None and names.is_profile_path(name):
        name = str(Path(inventory.source).parent / Path(name).expanduser())
    return profile.load(name, inventory.source, os.environ)


def _head(inventory: "Inventory", hosts: "tuple[Host, ...]") -> str:
    """Name the host that mpirun runs on; this machine may go under another name that -H gave it."""
    if inventory.container is not None or any(host.name == inventory.head for host in hosts):
        return inventory.head
    return next((host.name for host in hosts if host.connection == "local"), inventory.head)


def _complete_knob(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from taco_launch.launch import knobs

    return [CompletionItem(f"{knob.name}=") for knob in knobs.TABLE if knob.name.startswith(incomplete)]


def _complete_profile(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from taco_launch.inventory import profile

    known = [name for name in profile.known_names("", os.environ) if name.startswith(incomplete)]
    return [CompletionItem(name) for name in known] or [CompletionItem(incomplete, type="file")]
