"""The command group, and how errors become messages and exit codes."""

import contextlib
import gc
import itertools
import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource
from click.shell_completion import get_completion_class

import taco_launch
from taco_launch.cli import verbs
from taco_launch.cli.options.common import (
    Settings,
    TacoOption,
    config_path,
    inventory_option,
    output_options,
    settings_of,
    talk_options,
    this_machine,
)
from taco_launch.cli.options.suggestions import SuggestingGroup, nearest
from taco_launch.cli.output import render
from taco_launch.core.command import GIT_SECRETS, as_typed
from taco_launch.core.errors import FAILED, INTERRUPTED, USAGE, TacoLaunchError, UsageError, write_hint

# click reads it: how a shell asks for completions.
_COMPLETE = "_TACO_LAUNCH_COMPLETE"
_STATE_VARIABLE = "TACO_LAUNCH_STATE"  # of agent/store/folders.py, which --help does not import
# How alike an option must be to one that is meant, without their dashes: difflib's ratio.
_ALIKE = 0.75
# In the context's `meta`: the words of the command.
_WORDS = "taco_launch.words"
_EPILOG = """\b
Examples:
  taco-launch run --np 2 -- python3 train.py
  taco-launch submit --name vgg16 -- python3 train.py
  taco-launch logs -f vgg16
  taco-launch bench run --np 1,2 -- python3 scripts/pytorch_synthetic_benchmark.py --model tiny
  taco-launch -i hosts.yaml bench ladder taco
  taco-launch -i hosts.yaml nightly install taco --at 02:30

\b
Exit codes: 0 ok, 1 failed or job not found, 2 wrong usage or inventory, 3 drift,
4 the job does not fit, 5 a host failed, 6 performance regression, 130 Ctrl-C.
run and wait exit with the job's own code (128+n for signal n), with 124 after
--timeout, --stall-timeout or --silence-timeout, and with 125 if no rank ever
ran or --strict ended the job.
"""


class _Verbs(SuggestingGroup):
    """The verbs; errors are printed with the inventory that was named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options that stand before the verb.

        Raises:
            UsageError: one of them is another tool's.
        """
        ctx.meta[_WORDS] = tuple(args)
        return list(_with_usage_errors(lambda: super(_Verbs, self).parse_args(ctx, args)))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, and load it: until then only its name and its help are here.

        Raises:
            TacoLaunchError: it is a launcher; with the line as it is typed here.
        """
        if args[0] != "doctor" and config_path(os.environ).exists():  # doctor reports what is wrong with it
            _use_config(ctx)
        if self.get_command(ctx, args[0]) is None:
            from taco_launch.cli.options import nested_launcher

            if nested_launcher.is_launcher(args):
                typed, rows = nested_launcher.line(f"{settings_of(ctx).typed} run", (), args)
                problem = f"{args[0]} is not a command; taco-launch starts the ranks itself"
                raise UsageError(problem + nested_launcher.remarks(rows), hint=typed)
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, verbs.Verb):
            op = verbs.operation_to_prestart(command.name or "", rest)
            if op and settings_of(ctx).source is None and not ctx.resilient_parsing:
                this_machine().backend.prestart(op)
            command = command.load()
            self.add_command(command)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs in groups, in the order of verbs.py."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            groups.setdefault(verbs.group_of(name), []).append(
                (name, command.get_short_help_str(ctx.max_content_width or 80))
            )
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click gives it
        """Return the names in the order of the help."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb.

        Raises:
            TacoLaunchError: it failed; what it says to type has the inventory in it.
        """
        try:
            with render.one_document(ctx):
                try:
                    return _with_usage_errors(lambda: super(_Verbs, self).invoke(ctx))
                except TacoLaunchError as error:
                    settings = settings_of(ctx)
                    error.hint = error.hint and as_typed(error.hint, settings.typed)
                    if form := _data_form(settings, ctx.meta[_WORDS]):
                        from taco_launch.cli.output import host_errors

                        host_errors.error_data(error, replace(settings, output=form))
                    raise
        except BrokenPipeError:
            if not _nobody_reads():
                raise
            # `| head` has seen enough. What is still in the buffer has to go somewhere at the interpreter's end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0


@click.group(
    cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}, epilog=_EPILOG
)
@click.version_option(taco_launch.__version__, prog_name="taco-launch")
@inventory_option("-i", "--inventory")
@output_options
@talk_options
def cli() -> None:
    """Launch distributed training on bare-metal hosts, track it, benchmark it."""


for verb in verbs.all_verbs():
    cli.add_command(verb)


@cli.command()
@talk_options
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell's completion script.

    Completes commands, options, jobs of this machine, hosts and groups of the inventory, profiles, knobs and files.

    \b
    Examples:
      mkdir -p ~/.local/share/bash-completion/completions
      taco-launch completion bash > ~/.local/share/bash-completion/completions/taco-launch
      mkdir -p ~/.zfunc && taco-launch completion zsh > ~/.zfunc/_taco-launch
      taco-launch completion fish > ~/.config/fish/completions/taco-launch.fish

    For zsh, ~/.zshrc needs these lines: fpath+=~/.zfunc; autoload -Uz compinit; compinit.
    """
    _register_shells()
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion script for {shell}")
    click.echo(kind(cli, {}, "taco-launch", _COMPLETE).source())


def _use_config(ctx: click.Context) -> None:
    """Take what the user's configuration file sets and no option or variable does.

    Raises:
        SpecError: something in it is wrong.
    """
    from taco_launch.cli.options import user_config

    try:
        config = user_config.read(config_path(os.environ), os.getuid())
    except TacoLaunchError:
        if ctx.resilient_parsing:  # completion has nowhere to report it
            return
        raise
    settings = replace(settings_of(ctx), default_inventory=config.inventory, slurm_containers=config.containers)
    if config.output and ctx.get_parameter_source("output") is click.core.ParameterSource.DEFAULT:
        settings = replace(settings, output=config.output)
    ctx.obj = settings


def _data_form(settings: Settings, words: Sequence[str]) -> str:
    """Return json or yaml if the words of a command ask for it, also where they could not be read; "" if they do not."""
    own = list(itertools.takewhile(lambda word: word != "--", words))
    named = [form for name, form in itertools.pairwise(own) if name in ("-o", "--output")]
    named += [
        word.removeprefix("--output").removeprefix("-o").removeprefix("=")
        for word in own
        if word.startswith(("-o", "--output"))
    ]
    forms = (settings.output, "json" if "--json" in own else "", *named)
    return next((form for form in forms if form in ("json", "yaml")), "")


def _with_usage_errors(act: Callable[[], Any]) -> Any:
    """Do something with click, whose errors become ours.

    Raises:
        UsageError: click has raised an error; one of an option that another tool has says what is typed here.
    """
    try:
        return act()
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.ClickException as error:
        raise _usage_error(_explained(error) if isinstance(error, click.NoSuchOption) else error) from None


def _usage_error(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    message, hint = _on_one_line(error) + _variable(error), context and f"{context.command_path} --help"
    jobs = [param.nargs for param in context.command.params if param.name == "name"] if context else []
    if context and jobs == [1] and message.startswith("Got unexpected extra argument"):
        hint = f"{context.command_path} works on one job at a time: call it once for each NAME"
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        message = error.message.removesuffix(".")
        params = context.command.params if context else ()
        old = {name for param in params if getattr(param, "hidden", False) for name in param.opts}
        # Without their dashes: these make any two short names alike.
        names = {name.lstrip("-"): name for name in error.possibilities if name not in old}
        near = nearest(error.option_name.lstrip("-"), names, _ALIKE)
        hint = f"did you mean: {names[near]}" if near else hint
    return UsageError(message, hint)


def _variable(error: click.ClickException) -> str:
    """Return the environment variable that a wrong value comes from, in parentheses; "" for what was typed."""
    param, context = getattr(error, "param", None), getattr(error, "ctx", None)
    if not isinstance(param, TacoOption) or context is None:
        return ""
    is_set = context.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT
    return f" (the value of ${param.variable(context)})" if is_set else ""


def _on_one_line(error: click.ClickException) -> str:
    """Return click's message, whose list of choices has a line for each."""
    return error.format_message().replace("\n\t", " ").removesuffix(".")


def _explained(error: click.NoSuchOption) -> click.UsageError:
    from taco_launch.cli.options import foreign_options

    return foreign_options.explained(error)


def script() -> None:
    """Run `main`, then os._exit: skipping the shutdown of the interpreter saves 20 ms."""
    gc.set_threshold(20000)  # as the agent does (hosts/remote/agent_bundle.py)
    try:
        main()
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else FAILED
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


def main() -> NoReturn:
    """Run the command line and exit with the code that design and --help promise."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`)
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for as long as the process lives
    sys.exit(_guarded())


def _guarded() -> int:
    passwords = _passwords()
    settings = Settings(
        sudo_password=passwords.pop("TACO_LAUNCH_SUDO_PASSWORD", None),
        registry_password=passwords.pop("TACO_LAUNCH_REGISTRY_PASSWORD", None),
        git_secrets=passwords,
    )
    if _COMPLETE in os.environ:
        _register_shells()
    try:
        code = _with_usage_errors(lambda: cli.main(prog_name="taco-launch", standalone_mode=False, obj=settings))
        sys.stdout.flush()
    except TacoLaunchError as error:
        return _say(error.message, error.hint, error.exit_code)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:  # a group without a verb
        click.echo(error.message)
        code = 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        # What could not be written is still in the buffer, and the interpreter would try again at its end.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if _is_folder_gone():
            return _say("the current folder is gone", "cd to one that exists", USAGE)
        return _say(f"{error.filename or 'output'}: {error.strerror or error}", _hint_of(error), FAILED)
    except Exception as error:  # noqa: BLE001 - a bug: one line for the user, the traceback into a file
        return _bug(error)
    return code if isinstance(code, int) else 0


def _hint_of(error: OSError) -> str | None:
    """Return what to do where the named state folder cannot be used; None for any other file."""
    own = os.environ.get(_STATE_VARIABLE)
    if not own or not isinstance(error.filename, str) or not Path(error.filename).is_relative_to(Path(own)):
        return None
    return write_hint(error, error.filename, f"name another folder with {_STATE_VARIABLE}")


def _is_folder_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - as in jobs/request/caller.py
    except FileNotFoundError:
        return True
    return False


def _register_shells() -> None:
    from taco_launch.cli.options import shell_scripts

    shell_scripts.register()


def _passwords() -> dict[str, str]:
    names = ("TACO_LAUNCH_SUDO_PASSWORD", "TACO_LAUNCH_REGISTRY_PASSWORD", *GIT_SECRETS)
    if not any(name in os.environ for name in names):
        return {}
    from taco_launch.cli import secrets

    return secrets.take(names)


def _nobody_reads() -> bool:
    """Return whether standard output is a pipe whose other end is closed (poll(2))."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _descriptor, event in poll.poll(0))
    except OSError:
        return False


def _say(message: str, hint: str | None, code: int) -> int:
    render.error(message, hint)
    return code


def _bug(error: Exception) -> int:
    from taco_launch.agent.store import bug_log

    path = bug_log.write(error, f"taco-launch {taco_launch.__version__}\n{sys.argv!r}\n")
    return _say(f"a bug in taco-launch: {type(error).__name__}: {error}", f"the details are in {path}", FAILED)
