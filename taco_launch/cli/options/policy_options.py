"""The options that set when a job starts, how it ends and what happens then."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from taco_launch.cli.options.common import Seconds
from taco_launch.cli.options.option_groups import OptionGroup, option, options_of_group
from taco_launch.core.model.jobs import MOST_PRIORITY, MOST_RETRIES

F = TypeVar("F", bound=Callable[..., Any])
# Kubernetes' Job, spec.backoffLimit.
_RETRIES = 6

_LIMITS = (
    option(
        "--timeout",
        type=Seconds(0.001),
        metavar="TIME",
        help="Stop the job after this time, counted from its first start over all attempts: 90, 90s, 15m, 3h or 2d.",
    ),
    option(
        "--stall-timeout",
        type=Seconds(1),
        metavar="TIME",
        help="Fail the job when no rank has made progress for this long; waiting by polling is no progress. Default: never; "
        "`get` reports a hang after 10m.",
    ),
    option(
        "--silence-timeout",
        type=Seconds(1),
        metavar="TIME",
        help="Fail the job when no rank has printed anything for this long, however busy it is. Default: never.",
    ),
    option(
        "--fail-on",
        type=click.Choice(["nan"]),
        help="Fail the job (exit code 1) when the loss that its ranks print is not a number. Default: its last line tells.",
    ),
    option(
        "--signal",
        metavar="NAME[@TIME]",
        help="Send the ranks a signal this long before --timeout, stop and suspend end them, so that they save a checkpoint: "
        "USR1@120, USR1@2m. Only processes that handle the signal get it. Default time: 60s.",
    ),
    option(
        "--grace",
        type=Seconds(),
        metavar="TIME",
        help="Time between TERM and KILL when the job is stopped. Default: 10s.",
    ),
    option(
        "--host-loss-timeout",
        type=Seconds(1),
        metavar="TIME",
        help="Treat a host as lost, and end the job, after this long without contact. Default: host_loss_timeout in the "
        "inventory, else 60s.",
    ),
)
_LOGS = (
    option(
        "--log-max-bytes",
        type=click.IntRange(min=4096),
        help="Keep at most this many bytes of each rank's log; the oldest are dropped first. Default: 1073741824 (1 GiB).",
    ),
    option(
        "--progress",
        metavar="REGEX",
        help="Regular expression that finds the progress for `get` and `list`, with named groups step, total, epoch, "
        "loss, rate. Default: formats of known programs.",
    ),
    option(
        "--agent-log",
        is_flag=True,
        help="Keep the decisions and messages of the job's supervisor and guards for `logs --agent`.",
    ),
)
_BOARD = (
    option(
        "--tensorboard",
        is_flag=True,
        help="Start a TensorBoard beside the job, on the head; `taco-launch tensorboard NAME` opens it from here.",
    ),
    option(
        "--logdir",
        metavar="DIR",
        help="Folder on the head that TensorBoard reads, relative to the folder that the ranks start in. Default: runs.",
    ),
    option(
        "--tensorboard-grace",
        type=Seconds(),
        metavar="TIME",
        help="How long TensorBoard keeps running after the job ends. Default: 10m.",
    ),
)
_QUEUE = (
    option("--queue", metavar="NAME", help="Name of the queue: only a label to filter and count by. Default: default."),
    option(
        "--priority",
        type=click.IntRange(-MOST_PRIORITY, MOST_PRIORITY),
        metavar="N",
        help="Jobs with a higher number get their slots first; FIFO within a priority. Default: 0.",
    ),
    option(
        "--queue-timeout",
        type=Seconds(),
        metavar="TIME",
        help="Fail (exit code 4, for `run` 125) if slots are not free within this time, such as 3h. Default: wait forever.",
    ),
    option("--no-wait", is_flag=True, help="Fail (exit code 4, for `run` 125) if slots are not free now."),
)
_STRICT = option(
    "--strict",
    is_flag=True,
    help="Fail the job (exit code 125) if, a minute after its ranks started, it does not run as planned: ranks, hosts, "
    "variables, interface, what NCCL reports. Default: only `get` warns.",
)
_AFTER = (
    option(
        "--restart",
        type=click.Choice(["never", "on-failure", "exit-code"]),
        help="Retry after any failure, or with exit-code only after a signal (exit code 128 or more) or the loss of a host, "
        "not after an exception of the program. Default: never, or on-failure with --backoff-limit.",
    ),
    option(
        "--backoff-limit",
        type=click.IntRange(0, MOST_RETRIES),
        metavar="N",
        help=f"Number of retries. Default: {_RETRIES} with --restart.",
    ),
    option(
        "--backoff",
        type=Seconds(),
        metavar="TIME",
        help="Delay before the first retry; it doubles with each one. Default: 10s.",
    ),
    option(
        "--retry-on",
        type=click.Choice(["any", "same-host"]),
        help="same-host: a retry waits for the hosts of the attempt before, where the files are that it wrote. Default: any, "
        "hosts that failed last.",
    ),
)
_RECORDS = (
    option(
        "--notify",
        metavar="URL",
        help="POST name, state, event, reason and hosts as JSON to this http or https URL when the job ends, hangs or loses a "
        "host; the head sends it. To run a command instead: `taco-launch wait NAME; COMMAND`.",
    ),
    option(
        "--clean-up",
        type=click.Choice(["running", "all", "none"]),
        help="What to remove from hosts when the job ends: running (its processes), all (its files there too), or none. "
        "Default: running.",
    ),
    option(
        "--ttl",
        type=Seconds(),
        metavar="TIME",
        help="Delete the job's record this long after it ends, such as 2d.",
    ),
)


def ending_options(function: F) -> F:
    """Add what ends a job, and how: --timeout, --stall-timeout, --silence-timeout, --grace, --host-loss-timeout; and how it is logged."""
    return options_of_group(OptionGroup.LIMITS, _LIMITS, options_of_group(OptionGroup.LOGS, _LOGS, function))


def queue_options(function: F) -> F:
    """Add what orders the jobs that wait, what is checked of one that runs, and what happens to one that has ended."""
    function = options_of_group(OptionGroup.LOGS, _RECORDS, function)
    function = options_of_group(OptionGroup.LOGS, _BOARD, function)
    function = options_of_group(OptionGroup.LIMITS, (_STRICT, *_AFTER), function)
    return options_of_group(OptionGroup.QUEUE, _QUEUE, function)
