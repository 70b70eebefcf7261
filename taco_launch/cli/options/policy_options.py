"""The options that say when a job may begin, how it is ended and what happens then."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from taco_launch.cli.options.common import Seconds, add_option

F = TypeVar("F", bound=Callable[..., Any])
# Kubernetes' Job, spec.backoffLimit.
_RETRIES = 6
_MOST_RETRIES = 1_000_000
# Kubernetes' PriorityClass: what users may give.
_MOST_PRIORITY = 1_000_000_000


def ending_options(function: F) -> F:
    """Add what ends a job, and how: --timeout, --stall-timeout, --grace, --host-loss-timeout; and how it is logged."""
    return _with(
        function,
        add_option(
            "--timeout",
            type=Seconds(0.001),
            metavar="TIME",
            help="How long the job may run, from its first start on, over all attempts: 90, 90s, 15m, 3h or 2d.",
        ),
        add_option(
            "--stall-timeout",
            type=Seconds(1),
            metavar="TIME",
            help="End the job, as a failure, when no rank has had output or used CPU time for so long. Default: never; "
            "after 10m of that `get` and `list -o wide` say so.",
        ),
        add_option(
            "--grace",
            type=Seconds(),
            metavar="TIME",
            help="Time between TERM and KILL when the job is ended. Default: 10s.",
        ),
        add_option(
            "--host-loss-timeout",
            type=Seconds(1),
            metavar="TIME",
            help="Time of silence after which a host is lost and the job is ended. "
            "Default: the inventory's host_loss_timeout, else 60s.",
        ),
        add_option(
            "--log-max-bytes",
            type=click.IntRange(min=4096),
            help="Most bytes kept of each rank's log; the oldest go first. Default: 1073741824 (1 GiB).",
        ),
        add_option(
            "--agent-log",
            is_flag=True,
            help="Keep what the job's supervisor and guards decide, and their messages, for `logs --agent`.",
        ),
    )


def queue_options(function: F) -> F:
    """Add what orders the jobs that wait, and what becomes of one that has ended."""
    return _with(
        function,
        add_option("--queue", metavar="NAME", help="Queue that the job is counted in. Default: default."),
        add_option(
            "--priority",
            type=click.IntRange(-_MOST_PRIORITY, _MOST_PRIORITY),
            metavar="N",
            help="Jobs of a higher one get their slots first, those of the same as they came. Default: 0.",
        ),
        add_option(
            "--queue-timeout",
            type=Seconds(),
            metavar="TIME",
            help="How long the job may wait for its slots (exit code 4 after it), such as 3h. Default: for ever.",
        ),
        add_option("--no-wait", is_flag=True, help="Fail at once, with exit code 4, where the slots are not free."),
        add_option(
            "--clean-up",
            type=click.Choice(["running", "all", "none"]),
            help="What of the job is ended on its hosts after its end: what still runs, its files there as well, or nothing. "
            "Default: running.",
        ),
        add_option(
            "--ttl", type=Seconds(), metavar="TIME", help="Delete the job's record so long after its end, such as 2d."
        ),
        add_option(
            "--restart",
            type=click.Choice(["never", "on-failure", "exit-code"]),
            help="Try the job again after a failure: after each, or only after a signal (an exit code of 128 or more) and "
            "the loss of a host. Default: never, or on-failure with --backoff-limit.",
        ),
        add_option(
            "--backoff-limit",
            type=click.IntRange(0, _MOST_RETRIES),
            metavar="N",
            help=f"How many times the job is tried again. Default: {_RETRIES} with --restart.",
        ),
        add_option(
            "--backoff",
            type=Seconds(),
            metavar="TIME",
            help="Time before it is tried again the first time, twice as long each time after. Default: 10s.",
        ),
    )


def _with(function: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):
        function = option(function)
    return function
