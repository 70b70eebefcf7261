"""facts: what hosts are, looked at over SSH or read from captured outputs."""

import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_hosts, complete_list
from taco_launch.cli.output import fact_changes, host_errors, render
from taco_launch.core.errors import FAILED, HOST_FAILED, INTERRUPTED, OK, HostError, UsageError
from taco_launch.core.facts import SUBJECTS
from taco_launch.core.facts.captures import captured
from taco_launch.core.facts.fabric import fabric
from taco_launch.core.facts.parse import only
from taco_launch.core.facts.reports.compare import FoldedFact, fold, outliers
from taco_launch.core.facts.reports.document import cluster, document
from taco_launch.core.facts.reports.health import report
from taco_launch.core.facts.reports.health.judge import judged
from taco_launch.core.facts.reports.health.system import Expected
from taco_launch.core.facts.reports.health.verdict import OK as RIGHT
from taco_launch.core.facts.reports.health.verdict import Judged
from taco_launch.core.facts.reports.summary import rows
from taco_launch.core.launch.fabric_facts import between
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Unknown, was_requested
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.hosts import read_captures
from taco_launch.hosts.fanout import Answer, connect
from taco_launch.hosts.gather_facts import gather, with_declared_values
from taco_launch.hosts.inventory.ranges import fold as short
from taco_launch.hosts.inventory.select import named
from taco_launch.hosts.remote.credentials import Credentials

# How many captures that are not understood are told of one by one.
_MOST_SAID = 10


def _subjects(_ctx: click.Context, _param: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for text in value for word in text.split(",")))
    for word in words:
        if word not in SUBJECTS:
            raise click.BadParameter(f"unknown subject {word!r}; subjects: {', '.join(SUBJECTS)}")
    return words or SUBJECTS


@verb(access=True, output=True)
@click.argument("hosts", nargs=-1, metavar="[HOST]...", shell_complete=complete_hosts)
@add_option(
    "--from",
    "sources",
    multiple=True,
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
    metavar="FILE|DIR",
    help="Read captured outputs instead of contacting hosts: nvidia-smi topo -m, --query-gpu, -L, -q -x, show_gids, "
    "ibdev2netdev, ibv_devinfo -v, ibstat, a copy of /sys/class/infiniband, a saved probe; - is standard input. May be repeated.",
)
@add_option(
    "--only",
    "subjects",
    multiple=True,
    callback=_subjects,
    metavar="SUBJECT",
    shell_complete=complete_list(SUBJECTS),
    help=f"Show only these subjects: {', '.join(SUBJECTS)}. Repeatable, or separate them with commas.",
)
@add_option(
    "--container",
    metavar="NAME",
    help="Look for the training software in this container of each host. Default: the cluster's own container.",
)
@add_option(
    "--compare",
    "earlier",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE|DIR",
    help="Show what has changed on each host since an earlier output of `facts --json` (a file, or a folder of .json files), such as after "
    "a reboot, an update or a repair. Values that always change (clocks, free memory, listening ports) are left out.",
)
def facts(
    ctx: click.Context,
    /,
    *,
    hosts: tuple[str, ...],
    sources: tuple[Path, ...],
    subjects: tuple[str, ...],
    container: str | None,
    earlier: Path | None,
    **access: Any,
) -> None:
    """Show the hardware and software of hosts.

    One script is run on each host, all side by side; it changes nothing there and needs no python. What hosts have in
    common is shown once, and the host that differs from the others is named. What could not be read is "unknown", with
    the reason. HOST is a name, a range or a group of the inventory; all hosts without one.

    \b
    Examples:
      taco-launch -i cluster.yaml facts
      taco-launch -i cluster.yaml facts 'gpu[1-2]' --only network,rdma -o wide
      taco-launch -i cluster.yaml facts --json > facts.json
      taco-launch -i cluster.yaml facts --compare facts.json
      taco-launch facts --from topo.txt --json

    \b
    Exit codes: 3 where something has changed since --compare, 5 where a host did not answer, or not in full (what came is shown), 1 where nothing of --from was
    understood, 130 after Ctrl-C (the hosts that had answered are shown).
    """
    settings = settings_of(ctx)
    _one_form(ctx)
    if sources:
        given = {"HOST": hosts, "--container": container, "-i": settings.inventory, "--compare": earlier}
        other = next((name for name, value in given.items() if value), None)
        if other:
            raise UsageError(
                f"{other} cannot be combined with --from, which reads captured outputs and contacts no host",
                hint="leave one out",
            )
        ctx.exit(_captured(settings, sources, subjects))
    if earlier is None:
        ctx.exit(_gathered(settings, hosts, subjects, container, access_of(access))[1])
    before = fact_changes.read(earlier)
    found, code = _gathered(settings, hosts, subjects, container, access_of(access), show=False)
    ctx.exit(fact_changes.show(settings, before, earlier, found, code))


def _one_form(ctx: click.Context) -> None:
    """Refuse -o and --json side by side, of which the last would win; behind the verb they overrule those before it."""
    for each in (ctx.find_root(), ctx):
        if all(each.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ("output", "as_json")):
            raise UsageError(
                "-o and --json cannot be combined", hint="--json already includes everything that -o wide shows"
            )


def _gathered(
    settings: Settings,
    words: Sequence[str],
    subjects: Sequence[str],
    container: str | None,
    access: Credentials,
    *,
    show: bool = True,
) -> tuple[list[HostFacts], int]:
    """Ask the hosts, and show what they say; give it, and the exit code."""
    inventory = settings.load()
    if container is None and inventory.container is not None:
        container = paths.container(inventory.cluster)
    chosen = named(inventory, words)
    came: dict[str, Answer[HostFacts]] = {}
    interrupted = False
    try:
        with connect(inventory, chosen, access) as fanout, render.progress(settings, "facts", len(chosen)) as progress:

            def note(answer: Answer[HostFacts]) -> None:
                came[answer.host] = answer
                progress()

            gather(fanout, subjects, note, sudo=access.sudo_password is not None, container=container)
    except KeyboardInterrupt:
        interrupted = True
    answers = [
        came.get(host.name) or Answer(host.name, error=HostError(f"{host.name}: interrupted")) for host in chosen
    ]
    found = [answer.value for answer in answers if answer.value is not None]
    if not show:
        pass
    elif settings.output in ("json", "yaml"):
        failed = [
            {"host": answer.host, "error": answer.error.message, "hint": answer.error.hint}
            for answer in answers
            if answer.error
        ]
        render.data({**cluster(found), "failed": failed}, settings.output)
    elif found:
        by_name = {host.name: host for host in chosen}
        to_judge = [with_declared_values(facts, by_name[facts.host]) for facts in found]
        wide = settings.output == "wide"
        _show(
            found,
            judged(to_judge, Expected(rdma=inventory.network.rdma, gdr=inventory.network.gdr)),
            wide=wide,
            several=len(chosen) > 1,
        )
        for title, hosts in (
            ("No answer", [answer.host for answer in answers if answer.value is None]),
            ("Incomplete", [answer.host for answer in answers if answer.value and answer.error]),
        ):
            if hosts:
                click.echo(f"\n{title}: {short(hosts)}")
    host_errors.show(answers, {host.name: host.address for host in chosen})
    if interrupted:
        return found, INTERRUPTED
    return found, HOST_FAILED if any(answer.error for answer in answers) else OK


def _captured(settings: Settings, sources: Sequence[Path], subjects: Sequence[str]) -> int:
    files, left_out = read_captures.read(sources, sys.stdin.buffer if sys.stdin else io.BytesIO())
    read = tuple(only(host, subjects) for host in captured.read(files))
    unread = [*left_out, *(entry for host in read for entry in host.unread)]
    understood = any(captured.understood(host) for host in read)
    if settings.output in ("json", "yaml"):
        if len(read) > 1:
            found = {**cluster(read), "failed": []}
        else:
            found = document(read[0]) if read else {"host": None, "unknown": []}
            found["unknown"] += [{"where": name, "reason": reason} for name, reason in left_out]
        render.data(found, settings.output)
    elif understood:
        _show(read, judged(read, Expected()), wide=settings.output == "wide", several=len(read) > 1)
        gid = document(read[0])["gid"] if len(read) == 1 else None
        if gid and gid["hca"]:
            click.echo(f"\nGID index: {gid['gid_index']} on {gid['hca']}:{gid['port']} ({gid['why']})")
    for name, reason in unread[:_MOST_SAID]:
        render.warning(settings, f"{name}: {reason}")
    if (more := len(unread) - _MOST_SAID) > 0:
        files_are = "file that is" if more == 1 else "files that are"
        render.warning(settings, f"and {more} more {files_are} not understood (--json lists all of them)")
    for host in read:
        # What a single device does not tell stands in the table.
        found = {
            entry["reason"]: entry["where"]
            for entry in reversed(document(host)["unknown"])
            if _is_whole(entry["where"])
        }
        for reason, where in reversed(found.items()):
            render.warning(settings, f"{f'{host.host}: ' if len(read) > 1 else ''}{where}: {reason}")
    if not understood:
        known = any(was_requested(getattr(host, subject)) for host in read for subject in SUBJECTS)
        render.error(
            f"none of the captured outputs {'could be read' if known else 'is of a known kind'}",
            "the known kinds are listed at --from in: taco-launch facts --help",
        )
    return OK if understood else FAILED


def _is_whole(where: str) -> bool:
    """Return whether a fact is of a host, and not of one of its devices or of a file."""
    return "[" not in where and where.partition(".")[0] in (*SUBJECTS, "gid")


def _folded(found: Sequence[HostFacts]) -> tuple[FoldedFact, ...]:
    return fold([(facts.host, rows(facts)) for facts in found])


def _show(found: Sequence[HostFacts], health: Judged, *, wide: bool, several: bool) -> None:
    # What may be simulated is not told as real.
    unsure = any(isinstance(facts.simulated, Unknown) for facts in found)
    simulated = {name for facts in found if isinstance(facts.simulated, tuple) for name in facts.simulated}
    folded = _folded(found)
    shown, subject = [], ""
    for row in folded:
        if row.wide and not wide and not row.differs:
            continue
        label = row.subject + (" (simulated)" if row.subject in simulated else " (simulated?)" if unsure else "")
        # the NUMA nodes of a lab host are made up, the rest of its system is not
        part = " (simulated)" if row.name.split()[0] in simulated - {row.subject} else ""
        lead = ["" if row.subject == subject else label, row.name + part]
        subject = row.subject
        for text, names in row.values:
            mark = "≠" if row.differs else ""
            shown.append([*lead, text, *([mark, short(names)] if several else [])])
            lead = ["", ""]
    render.table(["SUBJECT", "FACT", "VALUE", *(["", "HOSTS"] if several else [])], shown)
    _show_fabric(found)
    _show_health(health, wide=wide)
    told = tuple(outliers(folded, short))
    if told:
        click.echo("\nHosts that differ:")
    for line in told:
        click.echo(render.printable(f"  {line}"))


def _show_health(judged: Judged, *, wide: bool) -> None:
    """Show what is to be looked at, and in one line what is right; `wide` adds whose rule it is that was judged by."""
    if not judged:
        return
    click.echo("\nHealth:")
    for line in report.lines(judged, short, " ({})", wide=wide):
        click.echo(render.printable(f"  {render.with_inventory_option(line)}"))
    wrong = {verdict.name for verdict, _ in judged if verdict.level != RIGHT}
    right = dict.fromkeys(verdict.name for verdict, _ in judged if verdict.name not in wrong)
    if right:
        click.echo(f"  ok: {', '.join(right)}")


def _show_fabric(found: Sequence[HostFacts]) -> None:
    """Print what a job between the hosts would use; nothing where there is no RDMA device."""
    if any(facts.rdma == NOT_ASKED for facts in found):
        return
    made = fabric(tuple(found))
    if isinstance(made.hcas, (Absent, Unknown)) and not made.host_env:
        return
    click.echo("\nFor a job on these hosts:" if len(found) > 1 else "\nFor a job:")
    rows = []
    able = between(tuple(found)).rdma if len(found) > 1 else None
    if able is not None and able.able is False:
        rows.append(["  transport", "TCP", f"RDMA is not available on every host: {able.why}"])
        own = tuple(each for each in made.host_env if not each.name.startswith("NCCL_IB_"))
        made = replace(made, hcas=Absent(), gid_index=Absent(), address_range=Absent(), host_env=own)
    for name, choice in (
        ("interface", made.interface),
        ("NCCL_IB_HCA", made.hcas),
        ("NCCL_IB_GID_INDEX", made.gid_index),
        ("NCCL_IB_ADDR_RANGE", made.address_range),
    ):
        if isinstance(choice, (Absent, Unknown)):
            if choice.reason and NOT_ASKED.reason not in choice.reason:
                rows.append([f"  {name}", "-" if isinstance(choice, Absent) else "unknown", choice.reason])
        else:
            rows.append([f"  {name}", choice.value, choice.why])
    rows += [[f"  {entry.name}", f"{entry.value} on {entry.host}", entry.why] for entry in made.host_env]
    render.table(["  CHOICE", "VALUE", "WHY"], rows)
    for entry in (*made.odd, *made.left_out):
        click.echo(render.printable(f"  {entry.host}: {entry.what}"))
