"""The options that say when a job may begin, how it is ended and what happens then; and the Policy that they amount to."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from taco_launch.cli.options import Seconds, add_option
from taco_launch.errors import UsageError

if TYPE_CHECKING:
    from taco_launch.model.jobs import Policy, Restart

F = TypeVar("F", bound=Callable[..., Any])
# Kubernetes' Job, spec.backoffLimit.
_RETRIES = 6
_MOST_RETRIES = 1_000_000
# Kubernetes' PriorityClass: what users may give.
_MOST_PRIORITY = 1_000_000_000
_SAME = (
    "grace",
    "timeout",
    "stall_timeout",
    "host_loss_timeout",
    "log_max_bytes",
    "queue",
    "priority",
    "queue_timeout",
    "backoff",
    "ttl",
)


def ending_options(function: F) -> F:
    """Add what ends a job, and how: --timeout, --stall-timeout, --grace, --host-loss-timeout; and --log-max-bytes."""
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


def policy_of(options: Mapping[str, Any], host_loss_timeout: float | None) -> "Policy":
    """Build the policy from what was given; `host_loss_timeout` is the inventory's.

    Raises:
        UsageError: options contradict each other.
        SpecError: the queue's name is none.
    """
    from taco_launch.inventory import names
    from taco_launch.model.jobs import CleanUp, Policy

    given = {name: value for name, value in options.items() if value is not None and value is not False}
    same = {name: given[name] for name in _SAME if name in given}
    if "queue" in same:
        names.word(same["queue"], "a queue name", "--queue")
    if host_loss_timeout is not None:
        same.setdefault("host_loss_timeout", host_loss_timeout)
    if "no_wait" in given:
        _refuse_waiting(given)
        same["queue_timeout"] = 0.0
    if "clean_up" in given:
        same["clean_up"] = CleanUp(given["clean_up"])
    restart, limit = _restart(given)
    return Policy(**same, suspend="suspend" in given, restart=restart, backoff_limit=limit)


def _refuse_waiting(given: Mapping[str, Any]) -> None:
    for name, option in (("queue_timeout", "--queue-timeout"), ("suspend", "--suspend")):
        if given.get(name):
            raise UsageError(f"--no-wait and {option}: a job either waits or not", hint="leave one of them out")


def _restart(given: Mapping[str, Any]) -> "tuple[Restart, int]":
    """Give after which failures the job is tried again, and how many times."""
    from taco_launch.model.jobs import Restart

    limit = given.get("backoff_limit")
    restart = Restart(given["restart"]) if "restart" in given else Restart.ON_FAILURE if limit else Restart.NEVER
    if restart is not Restart.NEVER:
        return restart, _RETRIES if limit is None else limit
    for name in ("backoff_limit", "backoff"):
        if given.get(name):
            never = " and --restart never: " if "restart" in given else ": "
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option}{never}the job is never tried again", hint="add --restart on-failure, or --restart exit-code"
            )
    return restart, 0


def _with(function: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):
        function = option(function)
    return function
