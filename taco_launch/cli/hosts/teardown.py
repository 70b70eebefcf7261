"""teardown: what setup made is taken back."""

import time
from typing import Any

import click

from taco_launch.cli.options.common import access_of, add_option, settings_of, verb, wait_option
from taco_launch.cli.output import render, setup_output
from taco_launch.core.errors import FAILED, HOST_FAILED, OK
from taco_launch.core.model.host import paths
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.inventory.select import named
from taco_launch.setup.apply.teardown_run import Teardown
from taco_launch.setup.apply.wait_for_jobs import wait_for_jobs
from taco_launch.setup.model.ops import keep_all
from taco_launch.setup.plan.stage_rules import RULES

_ORDER = tuple(name for name in reversed(tuple(RULES)) if RULES[name].take_back is not keep_all)


@verb(access=True, output=True)
@setup_output.hosts_option
@add_option("--images", is_flag=True, help="Remove the training image from the hosts too.")
@add_option("--dry-run", is_flag=True, help="Show the plan, and do nothing.")
@add_option("--yes", is_flag=True, help="Do not ask.")
@wait_option
def teardown(
    ctx: click.Context, /, *, hosts: str | None, images: bool, dry_run: bool, yes: bool, patience: float, **access: Any
) -> None:
    """Remove what setup made on hosts.

    This is the container with its keys, settings and services. Packages (Docker, the NVIDIA container toolkit) with their package sources, images, records of jobs, and what setup did
    not make stay. Nothing is done to a host on which a job runs.

    \b
    Examples:
      taco-launch -i cluster.yaml teardown --dry-run
      taco-launch -i cluster.yaml teardown -H gpu5 --images --yes

    \b
    Exit codes: 0 ok, 2 wrong usage or inventory, or --yes is needed (stdin is not a terminal),
    5 a host failed, 130 after Ctrl-C.
    """
    settings = settings_of(ctx)
    inventory = settings.load()
    chosen = named(inventory, () if hosts is None else (hosts,))
    progress = setup_output.SetupProgress(settings, _ORDER)
    with connect(inventory, chosen, access_of(access)) as fanout:
        work = Teardown(inventory, fanout, images=images, report=progress.step)
        with render.progress(settings, "facts", len(chosen)) as answered:
            plans = work.refresh(lambda _answer: answered())
        plans = wait_for_jobs(plans, work.refresh, work.refresh, 0 if dry_run else patience, settings.talk)
        rows = setup_output.folded(plans, _ORDER, "-")
        if settings.output not in ("json", "yaml"):
            setup_output.show_plan(rows)
        elif dry_run:
            render.data({"plan": rows}, settings.output)
        setup_output.show_errors(work.failed, plans, inventory)
        wrong = bool(work.failed) or any(plan.problems for plan in plans)
        if not rows and not wrong:
            settings.talk(
                f"nothing to do: nothing of {inventory.cluster} is on {setup_output.names([h.name for h in chosen])}"
            )
        if dry_run or not (rows or settings.output in ("json", "yaml")):
            ctx.exit(HOST_FAILED if wrong else OK)
        if rows and not setup_output.agreed(plans, yes=yes):
            settings.talk("nothing was done")
            ctx.exit(HOST_FAILED if wrong else FAILED)
        begun = time.monotonic()
        told = {plan.host for plan in plans if plan.problems} | work.failed.keys()
        try:
            with progress.live([host.name for host in chosen], plans):
                done = work.apply()
        except KeyboardInterrupt:
            ctx.exit(setup_output.interrupted(settings, inventory))
    code = setup_output.show_done(settings, done, inventory, time.monotonic() - begun, ("clear", "failed"), told=told)
    kept = "" if images else ", images (--images removes the training image)"
    if any(host.error is None for host in done.hosts):
        settings.talk(
            "left on the hosts: Docker and the container toolkit with their package sources, records of jobs in "
            f"{paths.state(inventory.cluster)}/jobs{kept}"
        )
    ctx.exit(code)
