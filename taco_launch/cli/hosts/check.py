"""check: whether hosts are healthy."""

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from taco_launch.api.host_checks import (
    LEVELS,
    METRICS,
    NETWORK,
    HostCheckOptions,
    faulty_hosts,
    measure_drained,
    measure_hosts,
)
from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb, wait_option
from taco_launch.cli.options.completion import complete_hosts
from taco_launch.cli.output import host_errors, render, waiting
from taco_launch.core.command import shell
from taco_launch.core.errors import DRIFT, HOST_FAILED, OK, TacoLaunchError, UsageError
from taco_launch.core.facts.reports.health import judge, report
from taco_launch.core.facts.reports.health.verdict import FAULT, folded, with_typed_hints
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.fact_value import known_value
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.slots import Drain
from taco_launch.hosts import check as hosts_check
from taco_launch.hosts import check_history, drain_policy
from taco_launch.hosts.fanout import Answer, connect
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.inventory.select import named
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.backend import FollowListener
from taco_launch.jobs.request.caller import person


@verb(access=True, output=True)
@click.argument("hosts", nargs=-1, metavar="[HOST]...", shell_complete=complete_hosts)
@add_option(
    "--level",
    type=click.Choice(("quick", *LEVELS)),
    default="quick",
    help="quick reads only. full and pairs also run a job on the hosts: full measures CPUs, memory, disks and GPUs of each host, pairs the network "
    "of each pair. Default: quick.",
)
@add_option(
    "--bisect",
    is_flag=True,
    help="With --level pairs: find one slow host in about log2 N rounds of pairs. Without it, every pair of N hosts is measured, in N-1 rounds.",
)
@add_option(
    "--expect",
    "floors",
    multiple=True,
    metavar="NAME=GB/S",
    help="With --level full: a value below this, in GB/s, is a fault, such as 'memory copy=20'; check shows the names.",
)
@add_option(
    "--drained",
    is_flag=True,
    help="With --level full or pairs: measure drained hosts too. Hosts that you name are measured even without this option.",
)
@wait_option
@add_option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML to FILE as well."
)
@add_option("--drain", is_flag=True, help="Drain hosts, and open them again, as `health` in the inventory says.")
def check(
    ctx: click.Context,
    /,
    *,
    hosts: tuple[str, ...],
    junit: Path | None,
    level: str,
    drain: bool,
    **more: Any,
) -> None:
    """Check whether hosts are healthy: GPUs, links, memory, disks.

    The level quick only reads, puts no load on a host, and may run beside jobs. Counters of ports and interfaces are read twice, some seconds apart, and
    errors that come in between are reported. What cannot be read is "not possible", with the reason, and never "ok". Where DCGM, NHC or gcm is installed,
    on the host or in its container, its verdict is shown under its name. The levels full and pairs check the same first; then one job takes all slots of the hosts and measures them, so
    hosts with jobs are left out, or waited for with --wait-for-jobs. Drained hosts are left out unless their names are given one by one, or --drained. HOST is a name, a range or a group of the inventory; all hosts without one.

    With `--drain`, for cron: hosts get no new jobs when a check that `health` names has found a fault several times in a row,
    and those whose full disk has space again are opened. Every run of `check` counts.

    \b
    Examples:
      taco-launch -i hosts.yaml check
      taco-launch -i hosts.yaml check 'gpu[1-2]' -o wide
      taco-launch -i hosts.yaml check --junit health.xml --json > health.json
      taco-launch -i hosts.yaml check --drain
      taco-launch -i hosts.yaml check --level full --expect 'memory copy=20' --wait-for-jobs 2h
      taco-launch -i hosts.yaml check --level pairs 'gpu[1-8]'
      taco-launch -i hosts.yaml check --level pairs --bisect
      taco-launch -i hosts.yaml check --level full gpu3 gpu4 gpu5
      taco-launch -i hosts.yaml check --level full --drained

    \b
    Exit codes: 0 no fault (a warning does not change it), 3 a host has a fault, 5 a host did not answer, or not in full, 130 after Ctrl-C.
    """
    settings = settings_of(ctx)
    chosen = named(settings.load(), hosts)
    if junit is not None and not junit.absolute().parent.is_dir():
        raise UsageError(f"--junit {junit}: there is no folder {junit.absolute().parent}")
    options = _options(level, chosen, hosts, **more)
    if drain:
        _check_drain(settings, hosts)
    credentials = access_of(more)
    verdicts, answers = look(settings, chosen, credentials)
    failed: TacoLaunchError | None = None
    if level != "quick":
        silent_hosts = {answer.host for answer in answers if answer.error}
        able = [host for host in chosen if host.name not in silent_hosts]
        try:
            verdicts = _merged(verdicts, measure(settings, able, credentials, options))
        except TacoLaunchError as error:  # what was checked before is shown all the same
            failed = error
    shut = _shut(answers)
    acted = _drain(settings, verdicts, credentials) if drain else None
    _print(settings, verdicts, answers, acted, level, shut)
    host_errors.show(answers, {host.name: host.address for host in chosen})
    if junit is not None:
        silent = [(answer.host, answer.error.message) for answer in answers if answer.error]
        junit.write_text(report.junit(verdicts, silent), "utf-8")
    _remember(settings, verdicts)
    if failed is not None:
        render.error(failed.message, failed.hint)
        ctx.exit(failed.exit_code)
    if any(answer.error for answer in answers) or (acted is not None and acted.errors):
        ctx.exit(HOST_FAILED)
    ctx.exit(DRIFT if any(judge.worst(each) == FAULT for _, each in verdicts) else OK)


def _print(
    settings: Settings,
    verdicts: Sequence[judge.HostVerdicts],
    answers: Sequence[Answer[HostFacts]],
    acted: drain_policy.PolicyRun | None,
    level: str,
    shut: Mapping[str, Drain],
) -> None:
    """Print what was checked, what was measured, and what the policy did; `shut` are the hosts that are drained."""
    if settings.output in ("json", "yaml"):
        more = {} if acted is None else {"drains": to_json(acted.actions), "overrides": to_json(dict(acted.overrides))}
        render.data(_document(verdicts, answers, shut) | more, settings.output)
    elif verdicts:
        render.table(*report.table(verdicts, fold, shut))
        show(verdicts, before="\n", wide=settings.output == "wide")
        show_measured(settings, verdicts, level, shut)
        for host, record in shut.items():
            click.echo(render.printable(f"{host}: drained by {record.author}: {record.reason}"))
    if acted is not None:
        _show_drains(settings, acted)


def measure(
    settings: Settings,
    hosts: Sequence[Host],
    access: Credentials,
    options: HostCheckOptions,
    *,
    beside: bool = False,
) -> Sequence[judge.HostVerdicts]:
    """Measure hosts by a job, with `beside` also beside idle ones though they are drained; show on stderr how far that is."""
    cluster = settings.cluster(access)
    with waiting.waiting(settings.quiet, f"of --level {options.level}") as line:
        watch = FollowListener(
            state=line.state, waits=lambda words: render.waits(settings, "check", words), say=settings.talk
        )
        shown: set[str] = set()

        def step(words: str) -> None:
            line.state(words)
            if words not in shown and not sys.stderr.isatty():
                settings.talk(f"measuring: {words}")
            shown.add(words)

        run = measure_drained if beside else measure_hosts
        return _typed(settings, run(cluster, hosts, options, step, watch))


def _floors(words: Sequence[str]) -> dict[str, float]:
    """Read NAME=GB/S into bytes/s.

    Raises:
        UsageError: a word is not that, or nothing of this name is measured.
    """
    limits = {}
    for word in words:
        name, _sign, text = word.rpartition("=")
        if name not in METRICS and name != "all_reduce_perf" and not name.startswith("nvbandwidth "):
            names = ", ".join(METRICS)
            raise UsageError(
                f"--expect {word!r}: nothing is measured under the name {name!r}",
                hint=f"names: {names}, all_reduce_perf, nvbandwidth TEST",
            )
        try:
            limits[name] = float(text) * 1e9
        except ValueError:
            limits[name] = math.nan
        if not 0 < limits[name] < math.inf:
            raise UsageError(f"--expect {word!r}: {text!r} is not a rate in GB/s", hint=f"--expect '{name}=20'")
    return limits


def _options(
    level: str,
    chosen: Sequence[Host],
    typed: Sequence[str],
    *,
    bisect: bool,
    floors: Sequence[str],
    patience: float,
    drained: bool,
    **_access: object,
) -> HostCheckOptions:
    """Return what is measured; drained hosts are those that were typed by name, or all with `--drained`.

    Raises:
        UsageError: an option has no effect with this level, or a floor is wrong.
    """
    for option, given, levels in (
        ("--bisect", bisect, ("pairs",)),
        ("--expect", floors, ("full",)),
        ("--wait-for-jobs", patience, LEVELS),
        ("--drained", drained, LEVELS),
    ):
        if given and level not in levels:
            raise UsageError(f"{option} has no effect with --level {level}", hint=f"add --level {levels[-1]}")
    shut = frozenset(host.name for host in chosen if drained or host.name in typed)
    return HostCheckOptions(level, bisect, _floors(floors), patience, shut)


def _merged(
    verdicts: Sequence[judge.HostVerdicts], more: Sequence[judge.HostVerdicts]
) -> tuple[judge.HostVerdicts, ...]:
    added = dict(more)
    return tuple((host, (*each, *added.get(host, ()))) for host, each in verdicts)


def show_measured(
    settings: Settings, verdicts: Sequence[judge.HostVerdicts], level: str, shut: Collection[str] = ()
) -> None:
    """Print what was measured of each host, and how to leave out hosts with a fault; those in `shut` are drained already."""
    names = [
        name for name in (*METRICS, NETWORK) if any(each.name == name for _, results in verdicts for each in results)
    ]
    if not names:
        return
    rows = [
        [
            host,
            *(
                ", ".join(each.text.partition("; ")[0] for each in results if each.name == name) or "-"
                for name in names
            ),
        ]
        for host, results in verdicts
    ]
    click.echo()
    render.table(["HOST", *(name.upper() for name in names)], rows)
    faulty = faulty_hosts(verdicts)
    if faulty and len(faulty) < len(verdicts):
        without = shell(("--exclude", fold(faulty)))
        click.echo(f"\njobs without {'it' if len(faulty) == 1 else 'them'}: {without}")
    still_open = [host for host in faulty if host not in shut]
    if still_open and settings.load().container is not None:  # only hosts that were set up can be drained
        drain = shell(("host", "drain", fold(still_open), "--reason", f"check --level {level}"))
        click.echo(f"next: {settings.typed} {drain}")


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
        verdicts, answers = hosts_check.look(fanout, inventory, lambda _answer: progress(), sudo=sudo)
    return _typed(settings, verdicts), answers


def _typed(settings: Settings, hosts: Sequence[judge.HostVerdicts]) -> tuple[judge.HostVerdicts, ...]:
    return tuple((host, with_typed_hints(verdicts, settings.typed)) for host, verdicts in hosts)


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


def _shut(answers: Sequence[Answer[HostFacts]]) -> dict[str, Drain]:
    """Return the hosts that are drained; not those whose record only root may read, where `sudo` asks for a password."""
    health = {answer.host: known_value(answer.value.health) for answer in answers if answer.value is not None}
    return {host: each.drain for host, each in health.items() if each is not None and isinstance(each.drain, Drain)}


def _show_drains(settings: Settings, acted: drain_policy.PolicyRun) -> None:
    """Print what the policy did, where it failed, and why its message was not delivered."""
    if settings.output not in ("json", "yaml"):
        for number, action in enumerate(acted.actions):
            lines = map(render.printable, drain_policy.describe(action).split("\n"))
            click.echo(("" if number else "\n") + "\n".join(lines))
        for host, override in acted.overrides.items():
            click.echo(render.printable(drain_policy.describe_override(host, override)))
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


def _document(
    hosts: Sequence[judge.HostVerdicts], answers: Sequence[Answer[HostFacts]], shut: Mapping[str, Drain]
) -> dict[str, Any]:
    return {
        "hosts": [
            {
                "host": host,
                "level": judge.worst(verdicts),
                "drain": to_json(shut.get(host)),
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
