"""check: whether hosts are healthy."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from taco_launch.agent.store.folders import state_folder
from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_hosts
from taco_launch.cli.output import health_output, host_errors, render
from taco_launch.core.errors import DRIFT, HOST_FAILED, OK, TacoLaunchError, UsageError
from taco_launch.core.facts import HEALTH, SUBJECTS
from taco_launch.core.facts.reports.health import judge
from taco_launch.core.facts.reports.health.system import Expected
from taco_launch.core.facts.reports.health.verdict import FAULT, WARNING
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.fanout import Answer, connect
from taco_launch.hosts.gather_facts import gather, with_declared_values
from taco_launch.hosts.inventory.select import named
from taco_launch.hosts.remote.credentials import Credentials

# First, so that what the others take is the time between its two looks.
_SUBJECTS = (HEALTH, *SUBJECTS)


@verb(access=True, output=True)
@click.argument("hosts", nargs=-1, metavar="[HOST]...", shell_complete=complete_hosts)
@add_option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML to FILE as well."
)
def check(ctx: click.Context, /, *, hosts: tuple[str, ...], junit: Path | None, **access: Any) -> None:
    """Check whether hosts are healthy: GPUs, links, memory, disks.

    It only reads, puts no load on a host, and may run beside jobs. Counters of ports and interfaces are read twice, 3 seconds apart, and
    errors that come in between are told. What cannot be read is "not possible", with the reason, and never "ok". Where DCGM or NHC is installed,
    its verdict is a row of its own. HOST is a name, a range or a group of the inventory; all hosts without one.

    \b
    Examples:
      taco-launch -i hosts.yaml check
      taco-launch -i hosts.yaml check 'gpu[1-2]' -o wide
      taco-launch -i hosts.yaml check --junit health.xml --json > health.json

    \b
    Exit codes: 0 no fault (a warning does not change it), 3 a host has a fault, 5 a host did not answer, or not in full, 130 after Ctrl-C.
    """
    settings = settings_of(ctx)
    inventory = settings.load()
    chosen = named(inventory, hosts)
    if junit is not None and not junit.absolute().parent.is_dir():
        raise UsageError(f"--junit {junit}: there is no folder {junit.absolute().parent}")
    answers = _asked(settings, inventory, chosen, access_of(access))
    by_name = {host.name: host for host in chosen}
    found = [with_declared_values(answer.value, by_name[answer.host]) for answer in answers if answer.value is not None]
    expected = Expected(rdma=inventory.network.rdma, gdr=inventory.network.gdr)
    if inventory.container is not None:
        expected = Expected(
            paths.container(inventory.cluster), inventory.container.ssh_port, expected.rdma, expected.gdr
        )
    told = judge.checked(found, expected)
    if settings.output in ("json", "yaml"):
        render.data(_document(told, answers), settings.output)
    elif found:
        health_output.show_checks(told, judge.judged(found, expected), wide=settings.output == "wide")
    host_errors.show(answers, {host.name: host.address for host in chosen})
    if junit is not None:
        junit.write_text(health_output.junit(told, answers), "utf-8")
    _keep(settings, told)
    if any(answer.error for answer in answers):
        ctx.exit(HOST_FAILED)
    ctx.exit(DRIFT if any(judge.worst(verdicts) == FAULT for _, verdicts in told) else OK)


def _asked(
    settings: Settings, inventory: Inventory, chosen: Sequence[Host], access: Credentials
) -> tuple[Answer[HostFacts], ...]:
    container = paths.container(inventory.cluster) if inventory.container is not None else None
    with (
        connect(inventory, tuple(chosen), access) as fanout,
        render.progress(settings, "check", len(chosen)) as progress,
    ):
        return gather(
            fanout, _SUBJECTS, lambda _answer: progress(), sudo=access.sudo_password is not None, container=container
        )


def _keep(settings: Settings, told: Sequence[judge.Told]) -> None:
    """Add what was found to the history: a line of JSON for each run, in checks.jsonl of the state folder."""
    found = {
        host: [[each.level, each.name, each.text] for each in verdicts if each.level in (FAULT, WARNING)]
        for host, verdicts in told
    }
    try:
        folder = state_folder(os.environ, os.geteuid())
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "checks.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time()), "hosts": found}, ensure_ascii=False) + "\n")
    except (OSError, TacoLaunchError) as error:
        render.warning(settings, f"this check is not kept in the history: {error}")


def _document(told: Sequence[judge.Told], answers: Sequence[Answer[HostFacts]]) -> dict[str, Any]:
    hosts = [
        {
            "host": host,
            "level": judge.worst(verdicts),
            "checks": [
                {
                    "name": each.name,
                    "group": judge.group_of(each.name).lower(),
                    "level": each.level,
                    "text": each.text,
                    "hint": each.hint,
                    "source": each.source,
                }
                for each in verdicts
            ],
        }
        for host, verdicts in told
    ]
    failed = [
        {"host": answer.host, "error": answer.error.message, "hint": answer.error.hint}
        for answer in answers
        if answer.error
    ]
    return {"hosts": hosts, "failed": failed}
