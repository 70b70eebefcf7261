"""setup: hosts as the inventory says; the plan first, then stage by stage, then the proof."""

import math
import time
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from taco_launch.api.setup import SetupOptions, open_setup
from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb, wait_option
from taco_launch.cli.options.completion import complete_host_list, complete_list
from taco_launch.cli.output import render, setup_output
from taco_launch.core.command import shell
from taco_launch.core.errors import DRIFT, FAILED, HOST_FAILED, OK, UsageError
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.jobs.request.caller import person
from taco_launch.setup.cluster_setup import ClusterSetup, SetupPlan
from taco_launch.setup.job_containers.prepare import SetupListener
from taco_launch.setup.model.ops import Stage
from taco_launch.setup.plan.stage_rules import RULES, STAGES

# Options that exclude each other, with what to do.
_CONFLICTS = (
    ("check", "dry_run", "--check sets the exit code; --dry-run shows the plan"),
    ("check", "rolling", "--rolling --dry-run shows the plan and the order"),
    ("rolling", "rotate_keys", "all hosts get the new key at once: omit --rolling"),
)


def _stages(_ctx: click.Context, _param: click.Parameter, value: Sequence[str]) -> tuple[Stage, ...]:
    words = {word.strip() for text in value for word in text.split(",")}
    if unknown := sorted(words - set(RULES)):
        raise click.BadParameter(f"unknown stage {unknown[0]!r}; stages: {', '.join(RULES)}")
    return tuple(stage for stage in RULES if stage in words) or STAGES


@verb(access=True, output=True)
@add_option(
    "--only",
    "stages",
    multiple=True,
    callback=_stages,
    metavar="STAGE",
    shell_complete=complete_list(tuple(RULES)),
    help=f"Run only these stages: {', '.join(RULES)}. Repeatable, or separate them with commas. Without it, all run but {', '.join(name for name in RULES if name not in STAGES)}.",
)
@setup_output.hosts_option
@add_option(
    "--exclude",
    multiple=True,
    metavar="HOSTS",
    shell_complete=complete_host_list,
    help="Leave out these hosts, such as one that is down, and do not contact them. Repeatable.",
)
@add_option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@add_option(
    "--check",
    is_flag=True,
    help="Change nothing; exit with 3 if something is left to do, a fault is found, or hosts differ in software. It does not check Xids or error counters; `taco-launch check` does.",
)
@add_option("--diff", "show_diff", is_flag=True, help="Show what would change in files; secrets are not shown.")
@add_option(
    "--pull",
    is_flag=True,
    help="Resolve the image's tag again and move all hosts to that digest. Default: keep the image that hosts have.",
)
@add_option("--yes", is_flag=True, help="Do not ask.")
@add_option(
    "--disrupt",
    type=click.Choice(["docker", "host"]),
    help="Allow disruption where containers run. docker: the engine may restart, which stops all containers of the host. "
    "host: a peer memory module may be replaced as well, where no job runs.",
)
@add_option(
    "--rolling",
    type=click.IntRange(min=1),
    is_flag=False,
    flag_value=1,
    metavar="[N]",
    help="Change N hosts at a time, 1 if N is omitted, the head last. Each is drained, changed once no job blocks the change "
    "(--wait-for-jobs TIME limits the wait), checked and opened again. The first host that fails or has a fault ends the change.",
)
@add_option(
    "--rotate-keys",
    is_flag=True,
    help="Make a new SSH key for the cluster and give it to all hosts, which no longer accept the old one. Open connections "
    "continue, but a job that starts or restarts meanwhile would fail, so set-up refuses while jobs run, unless you add "
    "--wait-for-jobs.",
)
@wait_option
def setup(
    ctx: click.Context,
    /,
    *,
    stages: tuple[Stage, ...],
    hosts: str | None,
    exclude: tuple[str, ...],
    dry_run: bool,
    check: bool,
    show_diff: bool,
    yes: bool,
    **more: Any,
) -> None:
    """Set up hosts for training, stage by stage, and verify it.

    docker, GPUs in containers (NVIDIA container toolkit), peer memory, image, container, SSH between them, agent.

    Settings that already match are unchanged, so it can be run again at any time: after a failure, for a new host, or
    with --check every night. One host that fails does not stop the set-up of the others. After -H with a new host, run
    `setup --only ssh_mesh` on all hosts.

    \b
    Examples:
      taco-launch -i cluster.yaml setup --dry-run --diff
      taco-launch -i cluster.yaml setup
      taco-launch -i cluster.yaml setup --check
      taco-launch -i cluster.yaml setup -H gpu5 --yes
      taco-launch -i cluster.yaml setup --exclude gpu3
      taco-launch -i cluster.yaml setup --yes --wait-for-jobs 2h
      taco-launch -i cluster.yaml setup --pull --dry-run
      taco-launch -i cluster.yaml setup --rolling 2 --dry-run
      taco-launch -i cluster.yaml setup --rotate-keys --only ssh_mesh --wait-for-jobs 2h
      taco-launch -i cluster.yaml setup --only docker --disrupt docker

    \b
    Exit codes: 0 all hosts are ready (with --check: nothing to do), 2 wrong usage or inventory, or --yes is needed (stdin is
    not a terminal), 3 a fault was found that set-up does not repair and that does not block it; with --check also:
    something is left to do, even if only after a job has ended, or hosts differ in driver, OFED, toolkit, image or MTU;
    5 a host failed or cannot be set up (its driver, OFED, a lost GPU), verification failed (with --check: the GPUs of the
    containers), or other hosts do not know a new host yet, 130 after Ctrl-C.
    """
    settings, rolling = settings_of(ctx), more["rolling"]
    for one, other, hint in _CONFLICTS:
        if ctx.params[one] and ctx.params[other]:
            raise UsageError(f"--{one} and --{other} cannot be combined".replace("_", "-"), hint=hint)
    access = access_of(more)
    options = SetupOptions(
        hosts,
        exclude,
        stages,
        more["disrupt"] or "nothing",
        more["pull"],
        registry_password=settings.registry_password,
        rotate_keys=more["rotate_keys"],
    )
    progress = setup_output.SetupProgress(settings, stages)
    listener = SetupListener(progress.step, progress.proof, settings.talk)
    with open_setup(settings.cluster(access), options, listener) as work:
        chosen, inventory = [host.name for host in work.chosen], settings.load()
        if exclude:  # for what is to be typed after Ctrl-C
            ctx.params["hosts"] = setup_output.names(chosen)
        with render.progress(settings, "facts", len(work.contacted)) as answered:
            work.refresh(lambda _answer: answered())
        plan = work.plan(patience=0 if check or dry_run or rolling else more["patience"], prove=check)
        looking = check or dry_run or plan.is_blocked
        roller = work.rolling(progress.live)
        groups: tuple[tuple[str, ...], ...] = ()
        if rolling:
            groups, plan = roller.groups(plan.plans, rolling), plan.without_jobs()
            # what is known to fail would leave the hosts in two states
            looking = dry_run or work.chosen_failed or any(each.problems for each in plan.plans)
        code = _show(settings, work, plan, inventory, groups, show_diff=show_diff, looking=looking, check=check)
        if looking or (not plan.plans and settings.output not in ("json", "yaml")):
            ctx.exit(code or (DRIFT if check and plan.has_drifted else OK))
        if plan.has_work and not setup_output.agreed(plan.plans, yes=yes):
            settings.talk("nothing was done")
            ctx.exit(code or FAILED)
        begun = time.monotonic()
        shown = {each.host for each in plan.plans if each.problems} | plan.failed.keys()
        try:
            if groups:
                limited = ctx.get_parameter_source("patience") is not ParameterSource.DEFAULT
                rolled = roller.run(groups, person(), more["patience"] if limited else math.inf)
                errors = () if rolled.errors or rolled.is_interrupted else work.finish()
                ctx.exit(setup_output.show_rolled(settings, rolled, roller.others, inventory, errors))
            with progress.live(chosen, plan.plans):
                end = work.apply()
        except KeyboardInterrupt:
            ctx.exit(setup_output.interrupted(settings, inventory))
    seconds = time.monotonic() - begun
    code = setup_output.show_done(settings, end.result, inventory, seconds, ("ready", "failed"), end.findings, shown)
    if all(flaw.is_fault for flaw in end.result.found):
        _show_left(settings, [host.name for host in inventory.hosts if host.name not in chosen])
    for error in end.errors:
        render.error(error.message, error.hint)
    ctx.exit(HOST_FAILED if end.errors else code)


def _show_left(settings: Settings, hosts: Sequence[str]) -> None:
    """Name the hosts that were left as they were."""
    if hosts:
        left = setup_output.names(hosts)
        typed = render.with_inventory_option(shell(("taco-launch", "setup", "-H", left)))
        settings.talk(
            f"{left}: not changed; jobs that also use these hosts need the same image and settings there: {typed}"
        )


def _show(
    settings: Settings,
    work: ClusterSetup,
    plan: SetupPlan,
    inventory: Inventory,
    groups: Sequence[tuple[str, ...]],
    *,
    show_diff: bool,
    looking: bool,
    check: bool,
) -> int:
    """Show the plan, folded over equal hosts, and what is wrong; the exit code says whether a host cannot be set up.

    With `check` what waits for a job alone is drift.
    """
    plans, findings = plan.plans, plan.findings
    told = work.diffs(plans) if show_diff else ()
    rows = setup_output.folded(plans)
    if settings.output not in ("json", "yaml"):
        setup_output.show_plan(rows, groups)
        same: dict[str, list[str]] = {}
        for host, texts in told:
            for text in texts:
                same.setdefault(text, []).append(host)
        for text, hosts in same.items():
            click.echo(f"\n{setup_output.names(hosts)}:")
            click.echo("\n".join(map(render.file_line, text.splitlines())))
        setup_output.show_findings(findings)
    elif looking:
        proof = {"found": setup_output.flaws_document(plan.flaws)}
        render.data(
            _document(plan, rows, told, groups) | setup_output.findings_document(findings) | proof, settings.output
        )
    setup_output.show_errors(plan.failed, plans, inventory)
    for flaw in plan.flaws:
        render.error(str(flaw), flaw.hint)
    wrong = (
        bool(plan.flaws)
        or work.chosen_failed
        or any(not (check and problem.passes) for each in plans for problem in each.problems)
    )
    if findings.faults and not wrong:
        besides = "in addition," if rows else "nothing to do for set-up, but"
        settings.talk(
            f"{besides} a fault was found that set-up does not fix: {setup_output.names(findings.faults)}, see above"
        )
    elif findings.unlike and not rows and not wrong:
        settings.talk(f"nothing to do for set-up, but hosts differ in {', '.join(findings.unlike)}, see above")
    elif not rows and not plan.flaws and (right := [each.host for each in plans if each.empty]):
        health = (
            f"; Xids, links and error counters are not read: {settings.typed} check reads them"
            if check and not wrong
            else ""
        )
        settings.talk(f"nothing to do: {setup_output.names(right)} already set up as in {inventory.source}{health}")
    rotates = bool(click.get_current_context().params["rotate_keys"])
    what = "replaces the key of" if rotates else "changes the containers of"
    if busy := [each.host for each in plans if each.stops("cluster")]:
        settings.talk(
            f"{setup_output.names(busy)}: see above; set-up {what} all hosts or of none, so it changes none now"
            + ("" if rotates else "; --rolling changes one host after another, while jobs run on the others")
        )
    if plan.failed and plan.plans and looking:
        gone = setup_output.names(list(plan.failed))
        settings.talk(f"to continue without {gone}: {shell(('--exclude', gone))}")
    return HOST_FAILED if wrong else OK


def _document(
    plan: SetupPlan,
    rows: Sequence[dict[str, Any]],
    told: Sequence[tuple[str, tuple[str, ...]]],
    groups: Sequence[tuple[str, ...]],
) -> dict[str, Any]:
    problems = [
        {
            "host": each.host,
            "stage": problem.stage,
            "message": problem.message,
            "hint": render.with_inventory_option(problem.hint),
        }
        for each in plan.plans
        for problem in each.problems
    ]
    failed = [{"host": host} | setup_output.error_document(error) for host, error in plan.failed.items()]
    document: dict[str, Any] = {"plan": list(rows), "problems": problems, "failed": failed}
    document |= {"groups": [list(each) for each in groups]} if groups else {}
    return document | ({"diffs": [{"host": host, "diffs": list(texts)} for host, texts in told]} if told else {})
