"""host: keep jobs off a host for maintenance, and open it to them again."""

import socket
import time
from collections.abc import Sequence
from typing import Any

import click

from taco_launch.api.host_checks import LEVELS, HostCheckOptions, is_proven
from taco_launch.cli.hosts.check import look, measure, show, show_measured
from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb, wait_option
from taco_launch.cli.options.completion import complete_hosts
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.cli.output import host_errors, node_tables, render
from taco_launch.core.errors import DRIFT, FAILED, HOST_FAILED, OK, HostError, UsageError
from taco_launch.core.facts.reports.health.judge import worst
from taco_launch.core.facts.reports.health.overrides import override_of
from taco_launch.core.facts.reports.health.verdict import FAULT
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.slots import Override, describe_holders
from taco_launch.hosts import drains
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.inventory.select import named
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.backend import HostOccupancy
from taco_launch.jobs.request.caller import person

_LOOK_SECONDS = 5.0
_hosts_argument = click.argument("hosts", nargs=-1, required=True, metavar="HOST...", shell_complete=complete_hosts)


@click.group(cls=SuggestingGroup)
def host() -> None:
    """Drain hosts for maintenance, and open them to jobs again."""


@verb(group=host, access=True)
@_hosts_argument
@add_option("--reason", required=True, metavar="TEXT", help="Why; the jobs that wait for the host show it.")
@wait_option
def drain(ctx: click.Context, hosts: tuple[str, ...], *, reason: str, patience: float, **access: Any) -> int:
    """Keep new jobs off hosts; running jobs continue.

    The host itself keeps this, with who did it and when: for jobs that wait already, for every user and cluster, and after a
    reboot. `get`, `top node` and `host list` show the reason. A second drain replaces the first one and prints what it replaced.

    \b
    Examples:
      taco-launch -i hosts.yaml host drain gpu3 --reason 'NIC errors, ticket 1234'
      taco-launch -i hosts.yaml host drain gpu[3-4] --reason 'new driver' --wait-for-jobs 8h
      taco-launch -i hosts.yaml host resume gpu3

    \b
    Exit codes: 0 drained, 1 jobs were still running there when --wait-for-jobs ended, 5 a host failed.
    """
    settings = settings_of(ctx)
    chosen = _chosen(settings, hosts)
    record = drains.record(reason, person())
    credentials = access_of(access)
    with (
        connect(settings.load(), chosen, credentials) as fanout,
        render.progress(settings, "drain", len(chosen)) as progress,
    ):
        answers = drains.drain(fanout, record, progress)
    host_errors.show(answers, {each.name: each.address for each in chosen})
    for answer in answers:
        if old := answer.value:
            settings.talk(f"{answer.host}: replaced the drain by {old.author}: {old.reason}")
    done = [each for each in chosen if each.name in {answer.host for answer in answers if not answer.error}]
    failed = len(done) < len(chosen)
    try:
        held = _wait(settings, done, credentials, patience) if done else []
    except HostError as error:  # it is drained all the same
        settings.talk(
            f"{', '.join(each.name for each in done)}: drained; whether jobs run there is not known: {error.message}"
        )
        return HOST_FAILED if failed or patience else OK
    for node in held:
        settings.talk(f"{node.host.name} takes no new jobs; still there: {_holders(node)}")
    free = [each.name for each in done if each.name not in {node.host.name for node in held}]
    if free:
        settings.talk(f"{', '.join(free)}: drained, and no job runs there")
    if failed:
        return HOST_FAILED
    return FAILED if held and patience else OK


@verb(group=host, access=True)
@_hosts_argument
@add_option(
    "--level",
    type=click.Choice(("quick", *LEVELS)),
    default="quick",
    help="What the hosts have to pass, as with `check`: full and pairs also measure them by a job, beside two idle hosts. Default: quick.",
)
@add_option("--force", is_flag=True, help="Open hosts with faults too.")
def resume(ctx: click.Context, hosts: tuple[str, ...], *, level: str, force: bool, **access: Any) -> int:
    """Open a drained host to jobs again; those that wait for it start.

    The host is checked first, as by `check`, and stays drained while it has a fault. With --level full or pairs it is then measured while it is drained, and
    stays so unless the measurement judged it and found no fault. With --force it is opened all the same. Where the inventory has a
    policy (`health`), the faults are remembered: `check --drain` drains the host for the same fault only after the check was ok in between.

    \b
    Examples:
      taco-launch -i hosts.yaml host resume gpu3
      taco-launch -i hosts.yaml host resume gpu3 --level full
      taco-launch -i hosts.yaml host resume gpu3 --force

    \b
    Exit codes: 0 open to jobs, 3 a host has a fault and stays drained, 5 a host failed.
    """
    settings = settings_of(ctx)
    if force and level != "quick":
        raise UsageError(f"--level {level} and --force contradict each other", hint="leave out one of them")
    chosen = _chosen(settings, hosts)
    credentials = access_of(access)
    code = OK
    forced = _forced(settings, chosen, credentials) if force else {}
    if not force:
        sound, code = _sound(settings, chosen, credentials)
        if level != "quick" and sound:
            sound, code = _proven(settings, sound, credentials, level, code)
        _show_faulty(settings, tuple(each for each in chosen if each not in sound), credentials)
        chosen = sound
    with (
        connect(settings.load(), chosen, credentials) as fanout,
        render.progress(settings, "resume", len(chosen)) as progress,
    ):
        answers = drains.resume(fanout, progress, forced)
    host_errors.show(answers, {each.name: each.address for each in chosen})
    if opened := [answer.host for answer in answers if not answer.error]:
        settings.talk(f"{fold(opened)}: open to jobs")
    return HOST_FAILED if any(answer.error for answer in answers) else code


def _show_faulty(settings: Settings, hosts: tuple[Host, ...], access: Credentials) -> None:
    """Show which of the hosts that did not pass stay drained, and which were never closed to jobs."""
    if not hosts:
        return
    with connect(settings.load(), hosts, access) as fanout:
        answers = drains.read(fanout)
    if free := [answer.host for answer in answers if not answer.error and answer.value is None]:
        render.error(
            f"not sound, but open to jobs, as before: {fold(free)}",
            f"to keep jobs off: {settings.typed} host drain {fold(free)} --reason '...'",
        )
    if shut := [each.name for each in hosts if each.name not in free]:
        render.error(f"not opened to jobs: {fold(shut)}", "to open a host all the same: --force")


def _forced(settings: Settings, chosen: tuple[Host, ...], access: Credentials) -> dict[str, Override]:
    """Return in spite of which faults hosts are opened, and show these; without a policy nothing drains for them."""
    if settings.load().health is None:
        return {}
    verdicts, answers = look(settings, chosen, access)
    show(verdicts)
    for answer in answers:
        if answer.error is not None:
            render.warning(settings, f"{answer.host}: opened without a check: {answer.error.message}")
    who, now = f"{person()}@{socket.gethostname()}", float(int(time.time()))
    overrides = {host: override_of(each, who, now) for host, each in verdicts}
    return {host: each for host, each in overrides.items() if each is not None}


def _sound(settings: Settings, chosen: tuple[Host, ...], access: Credentials) -> tuple[tuple[Host, ...], int]:
    """Check hosts, and show what is wrong; return those without a fault, and the exit code for the others."""
    verdicts, answers = look(settings, chosen, access)
    faulty = {name: each for name, each in verdicts if worst(each) == FAULT}
    show(list(faulty.items()))
    host_errors.show(answers, {each.name: each.address for each in chosen})
    silent = {answer.host for answer in answers if answer.error}
    code = HOST_FAILED if silent else DRIFT if faulty else OK
    return tuple(each for each in chosen if each.name not in faulty and each.name not in silent), code


def _proven(
    settings: Settings, hosts: tuple[Host, ...], access: Credentials, level: str, code: int
) -> tuple[tuple[Host, ...], int]:
    """Measure hosts while they are drained, and show what was found; return those that passed, and the exit code."""
    measured = measure(settings, hosts, access, HostCheckOptions(level), beside=True)
    passed = {host for host, verdicts in measured if is_proven(verdicts)}
    show_measured(settings, [each for each in measured if each[0] in passed], level)
    show(measured)
    sound = tuple(each for each in hosts if each.name in passed)
    return sound, code if len(sound) == len(hosts) else code or DRIFT


@verb("list", group=host, access=True, output=True)
def list_(ctx: click.Context, /, **access: Any) -> int:
    """List hosts with their status, and who drained them and why.

    STATUS is ready, draining (drained, and jobs still run there), drained, or notready (it does not answer). A drain of KIND node ends by
    `host resume`; one of KIND user, which only the policy of `check --drain` sets, also by itself when its cause is gone.

    \b
    Example:
      taco-launch -i hosts.yaml host list

    \b
    Exit codes: 0 ok, 5 a host does not answer.
    """
    settings = settings_of(ctx)
    nodes = settings.backend(access_of(access)).nodes(settings.load())
    if settings.output in ("json", "yaml"):
        render.data({"hosts": [node_tables.node_data(node) for node in nodes]}, settings.output)
    else:
        click.echo(node_tables.drains(nodes, time.time()))
    for node in nodes:
        if node.problem and node.is_used:
            render.error(f"{node.host.name}: {node.problem}", None)
    return HOST_FAILED if any(node.problem and node.is_used for node in nodes) else OK


def _chosen(settings: Settings, words: Sequence[str]) -> tuple[Host, ...]:
    inventory = settings.load()
    drains.check(inventory)
    return named(inventory, words)


def _wait(settings: Settings, hosts: Sequence[Host], access: Credentials, patience: float) -> list[HostOccupancy]:
    """Return those of the hosts on which jobs run, after waiting for their end for at most `patience` seconds."""
    backend, end, told = settings.backend(access), time.monotonic() + patience, ""
    names = {each.name for each in hosts}
    while True:
        nodes = [node for node in backend.nodes(settings.load()) if node.host.name in names]
        held = [node for node in nodes if _holders(node)]
        now = "; ".join(f"{node.host.name}: {_holders(node)}" for node in held)
        if not held or time.monotonic() >= end:
            return held
        if now != told:
            settings.talk(f"waiting: {now}")
            told = now
        time.sleep(min(_LOOK_SECONDS, max(0.0, end - time.monotonic())))


def _holders(node: HostOccupancy) -> str:
    """Return the jobs on a host, or why they are not known; "" where there are none."""
    if node.occupancy is None:
        return node.problem
    return describe_holders(node.occupancy.only_held())
