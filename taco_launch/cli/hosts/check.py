"""check: whether hosts are healthy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_hosts
from taco_launch.cli.output import host_errors, render
from taco_launch.core.errors import DRIFT, HOST_FAILED, OK, TacoLaunchError, UsageError
from taco_launch.core.facts.reports.health import judge, report
from taco_launch.core.facts.reports.health.verdict import FAULT, folded
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts import check as hosts_check
from taco_launch.hosts import check_history, drain_policy
from taco_launch.hosts.fanout import Answer, connect
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.inventory.select import named
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.request.caller import person


@verb(access=True, output=True)
@click.argument("hosts", nargs=-1, metavar="[HOST]...", shell_complete=complete_hosts)
@add_option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML to FILE as well."
)
@add_option("--drain", is_flag=True, help="Drain hosts, and open them again, as `health` in the inventory says.")
def check(ctx: click.Context, /, *, hosts: tuple[str, ...], junit: Path | None, drain: bool, **access: Any) -> None:
    """Check whether hosts are healthy: GPUs, links, memory, disks.

    It only reads, puts no load on a host, and may run beside jobs. Counters of ports and interfaces are read twice, some seconds apart, and
    errors that come in between are reported. What cannot be read is "not possible", with the reason, and never "ok". Where DCGM or NHC is installed,
    its verdict is shown under its name. HOST is a name, a range or a group of the inventory; all hosts without one.

    With `--drain`, for cron: hosts get no new jobs when a check that `health` names has found a fault several times in a row,
    and those whose full disk has space again are opened. Every run of `check` counts.

    \b
    Examples:
      taco-launch -i hosts.yaml check
      taco-launch -i hosts.yaml check 'gpu[1-2]' -o wide
      taco-launch -i hosts.yaml check --junit health.xml --json > health.json
      taco-launch -i hosts.yaml check --drain

    \b
    Exit codes: 0 no fault (a warning does not change it), 3 a host has a fault, 5 a host did not answer, or not in full, 130 after Ctrl-C.
    """
    settings = settings_of(ctx)
    chosen = named(settings.load(), hosts)
    if junit is not None and not junit.absolute().parent.is_dir():
        raise UsageError(f"--junit {junit}: there is no folder {junit.absolute().parent}")
    if drain:
        _check_drain(settings, hosts)
    verdicts, answers = look(settings, chosen, access_of(access))
    acted = _drain(settings, verdicts, access_of(access)) if drain else None
    if settings.output in ("json", "yaml"):
        more = {} if acted is None else {"drains": to_json(acted.actions)}
        render.data(_document(verdicts, answers) | more, settings.output)
    elif verdicts:
        render.table(*report.table(verdicts, fold))
        show(verdicts, before="\n", wide=settings.output == "wide")
    if acted is not None:
        _show_drains(settings, acted)
    host_errors.show(answers, {host.name: host.address for host in chosen})
    if junit is not None:
        silent = [(answer.host, answer.error.message) for answer in answers if answer.error]
        junit.write_text(report.junit(verdicts, silent), "utf-8")
    _remember(settings, verdicts)
    if any(answer.error for answer in answers) or (acted is not None and acted.errors):
        ctx.exit(HOST_FAILED)
    ctx.exit(DRIFT if any(judge.worst(each) == FAULT for _, each in verdicts) else OK)


def look(
    settings: Settings, chosen: Sequence[Host], access: Credentials
) -> tuple[Sequence[judge.HostVerdicts], tuple[Answer[HostFacts], ...]]:
    """Check hosts; return the verdicts on those that answered, and the answers of all."""
    inventory = settings.load()
    with (
        connect(inventory, tuple(chosen), access) as fanout,
        render.progress(settings, "check", len(chosen)) as progress,
    ):
        sudo = access.sudo_password is not None
        return hosts_check.look(fanout, inventory, lambda _answer: progress(), sudo=sudo)


def show(verdicts: Sequence[judge.HostVerdicts], *, before: str = "", wide: bool = False) -> None:
    """Print what is not ok, with what to do next, and `before` it; hosts that are alike are one line."""
    for line in report.lines(folded(verdicts), fold, "\n  next: {}", wide=wide):
        click.echo(before + "\n".join(map(render.printable, line.split("\n"))))
        before = ""


def _check_drain(settings: Settings, hosts: Sequence[str]) -> None:
    """Refuse `--drain` for some of the hosts, and without a policy."""
    drain_policy.policy_of(settings.load())
    if hosts:
        raise UsageError("--drain: checks all hosts of the inventory", hint="leave out the hosts")


def _drain(settings: Settings, verdicts: Sequence[judge.HostVerdicts], access: Credentials) -> drain_policy.PolicyRun:
    inventory = settings.load()
    try:
        earlier = check_history.earlier(inventory.cluster)
    except OSError as error:
        raise TacoLaunchError(f"--drain: the history of checks cannot be read: {error}") from None
    answered = {name for name, _ in verdicts}
    with connect(inventory, tuple(each for each in inventory.hosts if each.name in answered), access) as fanout:
        return drain_policy.apply(fanout, inventory, verdicts, earlier, person())


def _show_drains(settings: Settings, acted: drain_policy.PolicyRun) -> None:
    """Print what the policy did, where it failed, and why its message was not delivered."""
    if settings.output not in ("json", "yaml"):
        for number, action in enumerate(acted.actions):
            lines = map(render.printable, drain_policy.describe(action).split("\n"))
            click.echo(("" if number else "\n") + "\n".join(lines))
    for error in acted.errors.values():
        render.error(error.message, error.hint)
    if acted.undelivered:
        render.warning(settings, f"health.notify: the message was not delivered: {acted.undelivered}")


def _remember(settings: Settings, hosts: Sequence[judge.HostVerdicts]) -> None:
    """Add the check to the history."""
    try:
        check_history.add(settings.load().cluster, hosts)
    except (OSError, TacoLaunchError) as error:
        render.warning(settings, f"this check is not in the history: {error}")


def _document(hosts: Sequence[judge.HostVerdicts], answers: Sequence[Answer[HostFacts]]) -> dict[str, Any]:
    return {
        "hosts": [
            {
                "host": host,
                "level": judge.worst(verdicts),
                "checks": [{**to_json(each), "group": judge.group_of(each.name).lower()} for each in verdicts],
            }
            for host, verdicts in hosts
        ],
        "failed": [
            {"host": answer.host, "error": answer.error.message, "hint": answer.error.hint}
            for answer in answers
            if answer.error
        ],
    }
