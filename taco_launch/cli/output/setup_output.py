"""Operations on hosts as setup and teardown show them: the plan, the question, the progress, how every host ended."""

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from taco_launch.cli.options.common import Settings, add_option
from taco_launch.cli.options.completion import complete_host_list
from taco_launch.cli.output import host_errors, render
from taco_launch.core.command import shell
from taco_launch.core.errors import DRIFT, HOST_FAILED, INTERRUPTED, OK, HostError, TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.slots import Drain
from taco_launch.hosts.fanout import Answer
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.setup.apply.findings import Findings
from taco_launch.setup.apply.host_ops import SetupEvent
from taco_launch.setup.apply.rolling import Rolled
from taco_launch.setup.apply.setup_run import SetupResult
from taco_launch.setup.model.ops import ProofFailure, Stage
from taco_launch.setup.plan.host_plan import HostPlan
from taco_launch.setup.plan.stage_rules import STAGES

# How a host stands to which all was done, and of which something is broken all the same.
_FAULT = "fault"
# Where there is no terminal, a step that tells how far it is gets a line no more often than this, on each host.
_QUIET_SECONDS = 10
_STOPS = {
    "nothing": "",
    "container": "the training container stops",
    "docker": "every container of the host stops",
    "host": "the host reboots",
}


def hosts_option(function: Any) -> Any:
    """Add -H."""
    return add_option(
        "-H",
        "--host",
        "hosts",
        metavar="HOSTS",
        shell_complete=complete_host_list,
        help="Only these hosts or groups: names and ranges, separated by commas, such as gpu[1-3],gpu7.",
    )(function)


def names(hosts: Sequence[str]) -> str:
    """Return hosts' names folded."""
    return fold(hosts)


def folded(plans: Sequence[HostPlan], stages: Sequence[Stage] = STAGES, sign: str = "") -> list[dict[str, Any]]:
    """Return each different operation once, in the order of `stages`, with all hosts that it is for.

    `sign` is `+` for what is new, `~` for what changes something, else the one that is given.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for stage in stages:
        for plan in plans:
            for op in plan.ops:
                if op.stage == stage:
                    own = "~" if op.old or op.disrupts != "nothing" else "+"
                    key = (sign or own, op.stage, op.name, op.why, op.disrupts)
                    found.setdefault(key, []).append(plan.host)
    keys = ("sign", "stage", "what", "why", "disrupts")
    return [{"hosts": hosts, **dict(zip(keys, key, strict=True))} for key, hosts in found.items()]


def show_plan(rows: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[str]] = ()) -> None:
    """Print what is to be done, a line for each operation: `gpu[1-2]: + docker: install docker.io (distribution)`.

    With `groups` also the order in which they are changed.
    """
    for line in plan_lines(rows):
        click.echo(line)
    if groups:
        click.echo(f"one after another: {'; '.join(map(names, groups))}")


def plan_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield these lines."""
    for row in rows:
        name = row["what"].removeprefix(f"{row['stage']}: ")
        why = f" ({row['why']})" if row["why"] else ""
        stops = f"; {_STOPS[row['disrupts']]}" if _STOPS[row["disrupts"]] else ""
        yield render.printable(f"{names(row['hosts'])}: {row['sign']} {row['stage']}: {name}{why}{stops}")


def show_errors(
    failed: Mapping[str, TacoLaunchError], plans: Sequence[HostPlan], inventory: Inventory, *, problems: bool = True
) -> None:
    """Print the errors of hosts; with `problems`, also why hosts cannot be set up."""
    answers: list[Answer[None]] = [Answer(host, error=error) for host, error in failed.items()]
    if problems:
        answers += [
            Answer(plan.host, error=HostError(f"{plan.host}: {problem.stage}: {problem.message}", problem.hint or None))
            for plan in plans
            for problem in plan.problems
            if plan.host not in failed
        ]
    host_errors.show(answers, {host.name: host.address for host in inventory.hosts})


def show_findings(findings: Findings) -> None:
    """Print remarks on hardware, and the hosts that differ; nothing where there are none."""
    if findings.verdicts:
        click.echo("Remarks on what set-up does not change:")
    for each, hosts in findings.verdicts:
        hint = f" ({render.with_inventory_option(each.hint)})" if each.hint else ""
        click.echo(render.printable(f"  {names(hosts)}: {each.level}: {each.name}: {each.text}{hint}"))
    if findings.odd:
        click.echo("Hosts that differ:")
    for line in findings.odd:
        click.echo(render.printable(f"  {line}"))


def findings_document(findings: Findings) -> dict[str, Any]:
    """Return remarks and differences as JSON shows them, with hints as they are typed."""
    document = findings.document()
    for remark in document["remarks"]:
        remark["hint"] = render.with_inventory_option(remark["hint"])
    return document


def agreed(plans: Sequence[HostPlan], *, yes: bool) -> bool:
    """Ask whether to continue.

    Raises:
        UsageError: stdin is not a terminal, so the question cannot be asked.
    """
    if yes:
        return True
    hosts = [plan.host for plan in plans if plan.ops]
    count = sum(len(plan.ops) for plan in plans)
    what = f"{render.counted(count, 'operation')} on {render.counted(len(hosts), 'host')}"
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"{what} to do, but stdin is not a terminal, so you cannot confirm", hint="look at the plan, then add --yes"
        )
    return click.confirm(f"{what}: continue?", err=True)


def error_document(error: TacoLaunchError) -> dict[str, Any]:
    """Return why a host failed as JSON shows it."""
    return {"error": error.message, "hint": error.hint and render.with_inventory_option(error.hint)}


def flaws_document(flaws: Sequence[ProofFailure]) -> list[dict[str, Any]]:
    """Return what a proof found as JSON shows it."""
    return [
        {
            "hosts": list(flaw.hosts),
            "what": flaw.what,
            "evidence": flaw.evidence,
            "hint": render.with_inventory_option(flaw.hint),
        }
        for flaw in flaws
    ]


def show_done(
    settings: Settings,
    done: SetupResult,
    inventory: Inventory,
    seconds: float,
    states: tuple[str, str],
    found: Findings | None = None,
    told: Collection[str] = (),
) -> int:
    """Show how every host ended, in the words `states` of one that is right and one that failed; give the exit code.

    A host with a fault, of which `found` tells or the proof, is neither. Why the hosts `told` failed was shown before.
    """
    broken = found.faults if found else ()
    faults = [flaw for flaw in done.found if flaw.is_fault]
    faulty = {*broken, *(host for flaw in faults for host in flaw.at or flaw.hosts)}
    state = {
        host.host: states[1] if host.error else _FAULT if host.host in faulty else states[0] for host in done.hosts
    }
    if settings.output in ("json", "yaml"):
        hosts = [
            {"host": host.host, "state": state[host.host], "changes": host.changes}
            | (error_document(host.error) if host.error else {})
            for host in done.hosts
        ]
        document = {"hosts": hosts, "found": flaws_document(done.found), "logs": done.logs}
        render.data(document | (findings_document(found) if found else {}), settings.output)
    else:
        rows = [[host.host, state[host.host], str(host.changes)] for host in done.hosts]
        render.table(["HOST", "STATE", "CHANGES"], rows, numbers=("CHANGES",))
    failed = {host.host: host.error for host in done.hosts if host.error}
    show_errors({host: error for host, error in failed.items() if host not in told}, (), inventory)
    for flaw in faults:
        render.error(str(flaw), flaw.hint)
    logs = f"; logs in {done.logs}" if done.logs else ""
    right = list(state.values()).count(states[0])
    flaws = len(faults)
    more = f", and {flaws} fault{'s were' if flaws != 1 else ' was'} found" if flaws else ""
    more += f"; fault that set-up did not fix: {names(broken)}, see above" if broken else ""
    wrong = names(list(dict.fromkeys((*failed, *(host for flaw in faults for host in flaw.at or flaw.hosts)))))
    again = f"; fix {wrong} (see the errors above) and rerun the command: completed steps are skipped" if wrong else ""
    settings.talk(
        f"{right} of {render.counted(len(done.hosts), 'host')} {states[0]} after {seconds:.0f} s{more}{logs}{again}"
    )
    for flaw in done.found:
        if not flaw.is_fault:
            settings.talk(f"{flaw}; next: {render.with_inventory_option(flaw.hint)}")
    return HOST_FAILED if failed or done.found else DRIFT if broken else OK


def interrupted(settings: Settings, inventory: Inventory) -> int:
    """Show what Ctrl-C has ended, and what to type to continue with what was chosen; give the exit code."""
    settings.talk(
        f"interrupted: each host still finishes the step that it has started; to continue: {again(inventory)}"
    )
    return INTERRUPTED


def again(inventory: Inventory) -> str:
    """Return what to type to continue with what was chosen."""
    context = click.get_current_context()
    chosen = context.params
    words = ["taco-launch", "-i", inventory.source, str(context.info_name)]
    words += ["-H", chosen["hosts"]] if chosen["hosts"] else []
    words += ["--only", ",".join(chosen["stages"])] if chosen.get("stages", STAGES) != STAGES else []
    words += ["--disrupt", chosen["disrupt"]] if chosen.get("disrupt") else []
    words += [f"--{flag.replace('_', '-')}" for flag in ("pull", "images", "rotate_keys") if chosen.get(flag)]
    words += ["--rolling", str(chosen["rolling"])] if chosen.get("rolling") else []
    return shell(tuple(words))


def show_rolled(
    settings: Settings,
    rolled: Rolled,
    others: Mapping[str, Drain],
    inventory: Inventory,
    more: Sequence[TacoLaunchError],
) -> int:
    """Show how a rolling set-up ended; `others` are drains of people, `more` errors of no single host. Give the exit code."""
    states = (("done", rolled.done), ("stays drained", rolled.drained), ("not touched", rolled.untouched))
    if settings.output in ("json", "yaml"):
        failed = [{"host": host} | error_document(error) for host, error in rolled.errors.items()]
        hosts = [{"host": host, "state": state} for state, group in states for host in group]
        render.data(
            {"hosts": hosts, "failed": failed, "errors": [error_document(each) for each in more]}, settings.output
        )
    show_errors(rolled.errors, (), inventory)
    for error in more:
        render.error(error.message, error.hint)
    for host in rolled.done:
        if host in others:
            settings.talk(f"{host}: changed, and stays drained: by {others[host].by}: {others[host].reason}")
    told = "; ".join(f"{state}: {names(group)}" for state, group in states if group)
    if rolled.is_interrupted:
        settings.talk(f"interrupted; {told}; to continue: {again(inventory)}")
        return INTERRUPTED
    stopped = f"; once the error is fixed, continue: {again(inventory)}" if rolled.errors else ""
    settings.talk(told + stopped)
    return HOST_FAILED if rolled.errors or more else OK


class SetupProgress:
    """Shows what happens on the hosts: a line for each on a terminal, else one for each step that is done or takes long."""

    def __init__(self, settings: Settings, stages: Sequence[Stage] = STAGES) -> None:
        """Show nothing yet; `stages` are those that are gone through, in their order."""
        self._settings = settings
        self._stages = stages
        self._begun: dict[str, float] = {}  # of the step that runs, or is waited for
        self._told: dict[str, float] = {}  # when a line was printed of it
        self._now: dict[str, str] = {}
        self._left: dict[Stage, dict[str, int]] = {}  # how many operations each host has yet to do in a stage
        self._stage: Stage | None = None  # the one that any host has come to
        self._proof = ""
        self._shown = False

    @contextmanager
    def live(self, hosts: Sequence[str], plans: Sequence[HostPlan] = ()) -> Iterator[None]:
        """Show the hosts' lines for as long as the block lasts; of `plans`, on how many hosts a stage is done."""
        self._now = dict.fromkeys(hosts, "waits")
        for plan in plans:
            for op in plan.ops:
                left = self._left.setdefault(op.stage, {})
                left[plan.host] = left.get(plan.host, 0) + 1
        with render.host_lines(self._settings, self._lines) as self._shown:
            yield

    def _lines(self) -> list[str]:
        now = time.monotonic()
        begun = self._begun.copy()
        took = {host: f" ({now - begun[host]:.0f} s)" for host in begun}
        lines = [f"{host}:{took.get(host, '')} {what}" for host, what in self._now.items()]
        if self._proof:
            return [*lines, self._proof]
        return [*lines, *self._hosts_done()]

    def _hosts_done(self) -> Iterator[str]:
        """Yield on how many hosts the present stage is done, of those where it has something to do."""
        if self._stage is not None and (left := self._left.get(self._stage)):
            done = list(left.values()).count(0)
            yield f"{self._numbered(self._stage)}: done on {done} of {render.counted(len(left), 'host')}"

    def _numbered(self, stage: Stage) -> str:
        """Return which stage it is of how many: `stage 4 of 7, image`."""
        if stage not in self._stages:
            return stage
        return f"stage {self._stages.index(stage) + 1} of {len(self._stages)}, {stage}"

    def proof(self, what: str) -> None:
        """Show what is being proved: below the hosts' lines, which would draw over a line that is only printed."""
        self._proof = what
        if not self._shown:
            self._settings.talk(what)

    def step(self, step: SetupEvent) -> None:
        """Show a step."""
        now = time.monotonic()
        what = step.what.removeprefix(f"{step.stage}: ")
        if step.kind == "waits":
            what = "waits for another set-up that is running there"
        ended = step.kind in ("done", "failed", "interrupted")
        if ended:
            what += f": {step.kind} ({now - self._begun.pop(step.host, now):.0f} s)"
            self._told.pop(step.host, None)
            left = self._left.get(step.stage, {})
            if step.host in left:
                left[step.host] = 0 if step.kind != "done" else max(left[step.host] - 1, 0)
        else:
            self._begun.setdefault(step.host, now)  # it may tell how far it is
        self._stage = step.stage
        self._now[step.host] = f"{self._numbered(step.stage)}: {what}"
        late = not ended and now - self._told.setdefault(step.host, now) >= _QUIET_SECONDS
        if late:
            self._told[step.host] = now
        if not self._shown and (ended or late or step.kind == "waits"):
            self._settings.talk(render.printable(f"{step.host}: {self._now[step.host]}"))
