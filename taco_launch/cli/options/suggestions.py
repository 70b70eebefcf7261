"""Groups that answer an unknown command with the right one, also for the names that other tools have."""

import copy
from collections.abc import Iterable

import click

from taco_launch.cli.options.option_groups import HelpContext, with_help_all
from taco_launch.core.errors import UsageError

# Commands of docker, kubectl, Slurm, Arena and Ray, by what does the same here.
_OTHERS = {
    **dict.fromkeys(("ps", "ls", "jobs", "squeue", "queue"), "list"),
    **dict.fromkeys(("status", "show", "describe", "inspect", "info"), "get"),
    **dict.fromkeys(("cancel", "kill", "scancel", "abort", "terminate"), "stop"),
    **dict.fromkeys(("start", "sbatch", "create", "apply"), "submit"),
    **dict.fromkeys(("srun", "launch", "mpirun"), "run"),
    **dict.fromkeys(("ssh", "shell", "attach"), "exec"),
    **dict.fromkeys(("rm", "remove", "del"), "delete"),
    **dict.fromkeys(("log", "tail", "output"), "logs"),
    **dict.fromkeys(("sinfo", "nodes", "node", "gpus"), "top node"),
    **dict.fromkeys(("hosts", "config", "hostfile"), "inventory"),
    **dict.fromkeys(("install", "bootstrap", "provision"), "setup"),
    **dict.fromkeys(("uninstall", "destroy"), "teardown"),
    "probe": "facts",
    **dict.fromkeys(("health", "healthcheck", "nhc"), "check"),
    **dict.fromkeys(("gc", "cleanup", "clean"), "prune"),
    **dict.fromkeys(("benchmark", "sweep"), "bench"),
    **dict.fromkeys(("diagnose", "why"), "explain"),
    "list": "status",  # in a group without one of its own
}


def hidden_alias(command: click.Command, name: str) -> click.Command:
    """Return a command under another name, which help does not list."""
    alias = copy.copy(command)
    alias.name, alias.hidden = name, True
    return alias


# No first sentence has as many letters.
_WHOLE = 1000


class SuggestingGroup(click.Group):
    """A group whose errors name the command that was meant, and whose help shows whole sentences."""

    context_class = HelpContext

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, whose help is wrapped as that of the group."""
        cmd.context_class = HelpContext
        super().add_command(cmd, name)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, --help-all among them."""
        return with_help_all(super().get_params(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command.

        Raises:
            UsageError: it does not exist; with the nearest one that does.
        """
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            meant = self._meant(args[0])
            hint = f"did you mean: {ctx.command_path} {meant}" if meant else f"all commands: {ctx.command_path} --help"
            raise UsageError(f"{ctx.command_path} has no command {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with the whole first sentence of each, which click would cut to one line."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(_WHOLE)) for name, command in commands if not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _meant(self, name: str) -> str:
        other = _OTHERS.get(name.lower(), "")
        if other.partition(" ")[0] in self.commands:
            return other
        return nearest(name, self.commands)


def nearest(word: str, words: Iterable[str], alike: float = 0.6) -> str:
    """Return the known word that is most like a word, "" where none is `alike` enough (difflib's ratio)."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, words, n=1, cutoff=alike)), "")
