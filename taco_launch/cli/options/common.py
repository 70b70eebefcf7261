"""Options that stand before or after the verb, and what they amount to."""

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from taco_launch.core import trace
from taco_launch.core.command import shell
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.engines import SLURM_PREFIX
from taco_launch.hosts.inventory import VARIABLE
from taco_launch.hosts.inventory.durations import parse_duration

if TYPE_CHECKING:
    from taco_launch.api.cluster import Cluster
    from taco_launch.core.model.host.hosts import Inventory
    from taco_launch.hosts.remote.credentials import Credentials
    from taco_launch.jobs.backend import Backend


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's configuration file: below $XDG_CONFIG_HOME, else ~/.config."""
    from taco_launch.agent.store.folders import config_folder

    return config_folder(environ) / "config.yaml"


class Seconds(click.types.FloatParamType):
    """A time from `least` seconds to some thirty years, written as 90, 90s, 15m, 3h or 2d."""

    name = "time"

    def __init__(self, least: float = 0, *, unit: bool = False) -> None:
        """Take no less than `least`; with `unit` a number without one is refused: where it is misread, something is lost."""
        self._least, self._unit = least, unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a time; a number is one already."""
        try:
            seconds = value if isinstance(value, float) else parse_duration(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)
        if self._unit and isinstance(value, str) and value.strip().replace(".", "", 1).isdecimal():
            self.fail(f"{value!r}: the unit is missing: {value}s, {value}m, {value}h or {value}d", param, ctx)
        if seconds < self._least:
            self.fail(f"{value!r}: must be at least {self._least:g}s", param, ctx)
        return seconds


F = TypeVar("F", bound=Callable[..., Any])
_THIS_MACHINE = "taco_launch.this_machine"
# Takes a status line away while a message is written to the terminal; waiting.waiting sets it.
aside: Callable[[], AbstractContextManager[None]] = nullcontext
FORMATS = ("table", "wide", "json", "yaml")
# Line ends, and the styles of our own messages: bold, colours, the end of both.
_OURS = re.compile(r"\n|\x1b\[(?:0|1|3[0-7])m")


class TacoOption(click.Option):
    """An option that refuses an empty value, and that an environment variable can set.

    `group` is its title in the help.
    """

    def __init__(self, *args: Any, group: str = "", **settings: Any) -> None:
        """Take what click.Option takes besides."""
        super().__init__(*args, **settings)
        self.group = group
        if isinstance(self.type, click.IntRange):
            self.type.name = "whole number"  # which errors and the help show

    def variable(self, ctx: click.Context) -> str:
        """Return the environment variable of this option in a command: TACO_LAUNCH_RUN_NP for --np of run."""
        long = [name.lstrip("-") for name in self.opts if name.startswith("--")]
        words = [*ctx.command_path.split()[1:], max(long, key=len, default=self.name or "")]
        return "_".join(("TACO_LAUNCH", *words)).replace("-", "_").upper()

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of the option's environment variable; none of options that act at once, such as --help-all."""
        if self.is_eager or self.hidden:
            return None
        name = self.variable(ctx)
        # Whether -i was typed decides what hints show: Settings.source has the variable of all commands.
        return None if name == VARIABLE else os.environ.get(name) or None

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert what was typed.

        Raises:
            BadParameter: it is empty, as that of a variable which is not set: `--name "$NAME"`.
        """
        values = value if isinstance(value, (list, tuple)) else (value,)
        words = (word for one in values for word in (one if isinstance(one, (list, tuple)) else (one,)))
        source = ctx.get_parameter_source(self.name or "")
        given = source in (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)
        if given and any(isinstance(word, str) and not word for word in words):
            raise click.BadParameter("the value is empty", ctx, self)
        return super().type_cast_value(ctx, value)


def add_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator that adds a TacoOption, as click.option does."""
    return click.option(*names, cls=TacoOption, **settings)


def again(ctx: click.Context, flag: str) -> str:
    """Return the present command as it was typed, with a flag more."""
    words = ctx.command_path.split()
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if ctx.get_parameter_source(param.name or "") is not click.core.ParameterSource.COMMANDLINE:
            continue
        if isinstance(param, click.Option) and param.is_flag:
            words.append((param.opts if value else param.secondary_opts)[-1])
        elif isinstance(param, click.Option):
            words += [param.opts[-1], str(value)]
        else:
            words += value or ()
    return shell(("taco-launch", *words[1:], flag))


def colour_wanted() -> bool:
    """Return whether the environment lets a terminal be coloured (no-color.org; a dumb terminal shows the codes)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def this_machine() -> "Cluster":
    """Return this machine as a cluster, the same for all of a command."""
    context = click.get_current_context(silent=True)
    meta: dict[str, Any] = {} if context is None else context.meta
    cluster: Cluster = meta.get(_THIS_MACHINE) or _new_cluster()
    meta[_THIS_MACHINE] = cluster
    return cluster


def _new_cluster(*args: Any, **settings: Any) -> "Cluster":
    from taco_launch.api.cluster import Cluster

    return Cluster(*args, **settings)


@dataclass(frozen=True)
class Settings:
    """What the options common to all verbs say."""

    inventory: str | None = None
    # That of the user's configuration file.
    default_inventory: str | None = None
    # What the configuration file says that a Slurm without an inventory has for containers.
    slurm_containers: str = ""
    output: str = "table"
    # How often -v was given.
    verbose: int = 0
    quiet: bool = False
    sudo_password: str | None = field(default=None, repr=False)
    registry_password: str | None = field(default=None, repr=False)
    git_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def load(self) -> "Inventory":
        """Return the inventory that was named, or the default; it is read once."""
        return self._inventory

    @functools.cached_property
    def _inventory(self) -> "Inventory":
        named = self.inventory
        source = self.source if named is None and os.environ.get(VARIABLE) is None else named
        return _new_cluster(source, slurm_containers=self.slurm_containers).inventory

    @property
    def source(self) -> str | None:
        """Which inventory is used: that of -i, of the environment, or of the configuration file; None for this machine."""
        if self.inventory is not None:
            return self.inventory
        found = os.environ.get(VARIABLE)
        return self.default_inventory if found is None else found or None

    @property
    def typed(self) -> str:
        """How the next call is typed so that it has the same inventory."""
        return "taco-launch" if self.inventory is None else shell(("taco-launch", "-i", self.inventory))

    @property
    def is_remote(self) -> bool:
        """Whether jobs are kept on another machine; True if the inventory cannot be read."""
        if self.source is None:
            return False
        if self.source.startswith(SLURM_PREFIX):
            return self.source != SLURM_PREFIX
        try:
            found = self.load()
        except TacoLaunchError:
            return True
        head = next(host for host in found.hosts if host.name == found.head)
        return found.container is not None or head.connection != "local"

    def cluster(self, access: "Credentials") -> "Cluster":
        """Return the cluster: the inventory's, else this machine. What is opened is closed at the command's end."""
        if self.source is None:
            cluster = this_machine()
            cluster.say, cluster.note, cluster.git_secrets = self.talk, self.note, self.git_secrets
            return cluster
        # What asks for jobs alone does not ask Slurm for its nodes.
        given = self.source if self.source.startswith(SLURM_PREFIX) else self.load()
        cluster = _new_cluster(
            given, access=access, typed=self.typed, say=self.talk, slurm_containers=self.slurm_containers
        )
        cluster.note, cluster.git_secrets = self.note, self.git_secrets
        click.get_current_context().call_on_close(cluster.close)
        return cluster

    def backend(self, access: "Credentials") -> "Backend":
        """Return what keeps the cluster's jobs."""
        return self.cluster(access).backend

    @functools.cached_property
    def note(self) -> "Callable[[str], None]":
        """Print as `talk` does, but the same words only once."""
        return functools.cache(self.talk)

    def talk(self, message: str) -> None:
        """Print on stderr unless -q; a line of a host's text cannot look like an error or a hint of ours."""
        if self.quiet:
            return
        lines = message.lstrip("\n").splitlines()
        # A line of its own could start as an error or a hint does.
        more = (line if line.startswith(" ") else f"  {line}" for line in lines[1:])
        begin = "\n" * (len(message) - len(message.lstrip("\n")))
        shown = begin + "\n".join((*lines[:1], *more))
        if not _OURS.sub("", shown).isprintable():
            from taco_launch.hosts.remote.terminal import safe

            shown = safe(shown)
        with aside():
            click.echo(shown, err=True, color=None if colour_wanted() else False)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is None or value is False:
        return
    settings = ctx.ensure_object(Settings)
    name = str(param.name)
    changed = {"output": "json"} if name == "as_json" else {name: value}
    # The innermost context is current; every context of one call shares the object of the outermost.
    ctx.find_root().obj = ctx.obj = replace(ctx.find_root().obj or settings, **changed)


def _keep_verbose(ctx: click.Context, param: click.Parameter, value: int) -> None:
    """Add up what is given before and behind the verb, and show on stderr what is traced from here on."""
    if not value:
        return
    _keep(ctx, param, settings_of(ctx).verbose + value)
    settings = settings_of(ctx)
    trace.start(min(settings.verbose, trace.MESSAGES), lambda at, text: settings.talk(f"{at} {text}"))


def complete_file(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Have the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def complete_inventory(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Have the shell complete `lab`, `lab:NAME` or the name of a file."""
    if not incomplete or not (incomplete.startswith("lab") or "lab".startswith(incomplete)):
        return complete_file(ctx, param, incomplete)
    try:
        from taco_launch.lab.inventory import words
    except ImportError:  # taco-launch-lab is not installed
        return complete_file(ctx, param, incomplete)
    found = [CompletionItem(word) for word in words() if word.startswith(incomplete)]
    return found + complete_file(ctx, param, incomplete)


def inventory_option(*names: str) -> Callable[[F], F]:
    """Return the decorator that adds -i by these names."""
    return add_option(
        *names,
        metavar="FILE",
        expose_value=False,
        callback=_keep,
        shell_complete=complete_inventory,
        help="Inventory of hosts (YAML, or one of Ansible), or a hostfile; `lab` or `lab:NAME` for the lab's hosts; "
        "`slurm:` on a login node, or `slurm:USER@LOGIN`, for a Slurm cluster. Default: $TACO_LAUNCH_INVENTORY, else this machine.",
    )


def output_options(function: F) -> F:
    """Add -o and --json."""
    function = add_option(
        "--json", "as_json", is_flag=True, expose_value=False, callback=_keep, help="Same as -o json."
    )(function)
    return add_option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        expose_value=False,
        callback=_keep,
        help="Output format. Default: table.",
    )(function)


def talk_options(function: F) -> F:
    """Add -v and -q."""
    function = add_option(
        "-v",
        "--verbose",
        count=True,
        expose_value=False,
        callback=_keep_verbose,
        help="Print each decision with its time on stderr; -vv: also each message to and from the agent.",
    )(function)
    return add_option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_keep, help="On stderr, print only errors."
    )(function)


def access_options(function: F) -> F:
    """Add --ask-sudo-password; `access_of` takes it from the options of the command."""
    return add_option(
        "--ask-sudo-password",
        is_flag=True,
        help="Ask once for the sudo password of the hosts. Without this option, $TACO_LAUNCH_SUDO_PASSWORD is used if it is set.",
    )(function)


def verb(
    name: str | None = None,
    *,
    group: click.Group | None = None,
    access: bool = False,
    inventory: bool | str | None = None,
    output: bool = False,
    **settings: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return the decorator of a command: it is given its context first, and has the options common to commands of its kind.

    All have -v and -q. `access` is for what reaches hosts: it adds --ask-sudo-password and -i. `inventory` decides on -i
    alone; as text it is the option's only name. `output` adds -o and --json. `settings` are those of click.command.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        function = click.pass_context(function)
        function = access_options(function) if access else function
        function = talk_options(function)
        function = output_options(function) if output else function
        if access if inventory is None else inventory:
            names = (inventory,) if isinstance(inventory, str) else ("-i", "--inventory")
            function = inventory_option(*names)(function)
        return (click if group is None else group).command(name, **settings)(function)

    return decorate


def access_of(options: Mapping[str, Any]) -> "Credentials":
    """Return the credentials that connections may need; ask for them on the terminal where `access_options` say so."""
    from taco_launch.hosts.remote.credentials import Credentials

    password = settings_of(click.get_current_context()).sudo_password
    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()
    if options.get("ask_sudo_password"):
        if not terminal:
            raise UsageError(
                "--ask-sudo-password: there is no terminal to ask on",
                hint="put the password into TACO_LAUNCH_SUDO_PASSWORD",
            )
        password = click.prompt("sudo password", hide_input=True, err=True)
    return Credentials(password, functools.cache(_ask) if terminal else None)


def _ask(prompt: str) -> str:
    return str(click.prompt(prompt, hide_input=True, err=True, default="", show_default=False, prompt_suffix=""))


def settings_of(ctx: click.Context) -> Settings:
    """Return the settings of the running command."""
    found = ctx.find_root().obj
    return found if isinstance(found, Settings) else Settings()


def wait_option(function: Any) -> Any:
    """Add --wait-for-jobs, by which setup, teardown, check and host drain wait for the jobs that block them."""
    return add_option(
        "--wait-for-jobs",
        "patience",
        type=Seconds(),
        default=0.0,
        is_flag=False,
        flag_value=float("inf"),
        metavar="[TIME]",
        help="Wait until the jobs that block this command have ended, for at most TIME, such as 2h (without TIME: forever). Default: do not wait.",
    )(function)
