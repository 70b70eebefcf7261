"""logs: a job's output, or a part of it."""

import sys
import time
from datetime import date, datetime
from typing import Any

import click

from taco_launch.agent.logs.grep import compiled
from taco_launch.cli.options.common import access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.output import job_output, render
from taco_launch.core.errors import FAILED, OK, UsageError
from taco_launch.core.lifecycle.waits import pending_reasons
from taco_launch.core.model.job_view import WaitReasons
from taco_launch.hosts.inventory.durations import parse_duration
from taco_launch.jobs.backend import FollowListener, LogQuery

_NOW = "%H:%M", "%H:%M:%S"
_WHOSE = "rank", "instance", "host", "agent"
# Of a job that has only just been submitted.
_UNTOLD = (("", "its hosts have not reported their slots yet"),)


def _since(_ctx: click.Context, _param: click.Parameter, text: str | None) -> dict[str, Any]:
    """Read how long ago something was, or when: as Follow has it."""
    if text is None:
        return {}
    try:
        return {"ago": parse_duration(text)}
    except ValueError:
        pass
    for form in _NOW:
        try:
            clock = datetime.strptime(text, form).time()  # noqa: DTZ007 - as the user's own clock shows it
        except ValueError:
            continue
        today = datetime.combine(date.today(), clock).timestamp()  # noqa: DTZ011
        return {"since": today if today <= time.time() else today - 86400}
    try:
        return {
            "since": datetime.fromisoformat(
                text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else "")
            ).timestamp()
        }
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{text!r} is neither a duration (90s, 10m, 3h, 2d) nor a time (14:02, 2026-11-21T14:02:00, ...Z for UTC)"
        ) from None


def _pattern(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is not None:
        compiled(text)
    return text


@verb(access=True)
@add_option("-f", "--follow", is_flag=True, help="Continue until the job ends. Ctrl-C ends this command, not the job.")
@add_option("-t", "--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last LINES lines.")
@add_option("--rank", type=click.IntRange(min=0), help="Only the output of this rank, byte for byte.")
@add_option(
    "--instance",
    metavar="NAME",
    help="Only the output of this instance, JOB-worker-0 or JOB-launcher; `taco-launch arena get` lists them.",
)
@add_option("--host", metavar="NAME", help="Only the output of the ranks on this host.")
@add_option(
    "--agent",
    is_flag=True,
    help="Print what the job's supervisor and guards did; the job must have been started with --agent-log.",
)
@add_option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only the output of the N-th attempt.")
@add_option(
    "--since",
    "when",
    metavar="TIME",
    callback=_since,
    help="Only lines since TIME: how long ago (90s, 10m, 3h, 2d), or a time of this machine's clock (14:02, the last time it was that late; 2026-11-21T14:02:00; ...Z is UTC).",
)
@add_option(
    "--grep",
    metavar="REGEX",
    callback=_pattern,
    help="Only lines that match this Python regular expression; with -t, the last of them.",
)
@add_option("--timestamps", is_flag=True, help="Put the time before each line, in UTC.")
@click.argument("name", shell_complete=complete_job)
def logs(ctx: click.Context, /, name: str, *, follow: bool, when: dict[str, Any], **options: Any) -> int:
    """Print the output of a job.

    With -f, a lost connection to the head is reopened, and the output continues where it stopped.

    --grep searches each line on the head, without its label HOST/RANK, so only matching lines are sent. If no line matches,
    the exit code is 1.

    Messages of a launcher about a failed rank are shown only with -v or --grep. -t counts lines of ranks. With -f, a progress
    bar is shown every five seconds, without it only in its last state; --rank shows all of it.

    The output of an instance of one rank, and of the launcher, has no labels. If a job was tried several times, --rank and
    --instance show the last attempt; with -f also later ones.

    The time of a line is when it started, to within about 10 ms, by the clock of its rank's host. A duration given to
    --since is counted back from the time of the head's clock.

    \b
    Examples:
      taco-launch logs -f vgg16
      taco-launch logs -t 20 --rank 0 vgg16
      taco-launch logs --instance vgg16-worker-1 --since 10m --timestamps vgg16
      taco-launch logs --grep 'loss=nan|Error' --timestamps vgg16
      taco-launch logs -f --rank 0 --grep '^Epoch' -t 3 vgg16
      taco-launch logs --agent -t 50 vgg16
    """
    given = [f"--{option}" for option in _WHOSE if options[option] is not None and options[option] is not False]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be combined", hint="use only one of them")
    if options["agent"] and options["attempt"] is not None:
        raise UsageError(
            "--agent and --attempt cannot be combined: a job has one agent log for all attempts",
            hint="leave --attempt out",
        )
    settings = settings_of(ctx)
    found = False

    def note() -> None:
        nonlocal found
        found = True

    out = job_output.LogOutput(sys.stdout.buffer, note, colour=options["rank"] is None and not options["agent"])
    asked = {option: options[option] for option in (*_WHOSE, "attempt", "tail", "timestamps", "grep")}
    query = LogQuery(name, follow=follow, **asked, **when)

    def waits(words: WaitReasons) -> None:
        render.waits(settings, name, words)

    banners = None if settings.verbose or options["grep"] is not None else job_output.BannerFilter()
    show = out.write if banners is None else lambda chunk: out.write(banners.feed(chunk))
    job = settings.backend(access_of(options)).follow(query, show, FollowListener(waits=waits, say=settings.talk))
    if banners is not None and (rest := banners.end()):
        out.write(rest)
    if follow:
        job_output.ending(settings, job)
    elif job.record.state.waits:
        waits(pending_reasons(job.record, name) or _UNTOLD)
    elif job.record.first_start is None:
        settings.talk(f"job {name} never started: it has no output")
    if options["grep"] is None or found:
        return OK
    settings.talk(f"no line matches {options['grep']!r}")
    return FAILED
