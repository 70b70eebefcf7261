"""Add --wait-for-jobs, by which setup and teardown wait for the jobs that block them."""

from typing import Any

from taco_launch.cli.options.common import Seconds, add_option


def wait_option(function: Any) -> Any:
    """Add --wait-for-jobs."""
    return add_option(
        "--wait-for-jobs",
        "patience",
        type=Seconds(),
        default=0.0,
        is_flag=False,
        flag_value=float("inf"),
        metavar="[TIME]",
        help="Wait until the jobs that block this have ended, for at most TIME, such as 2h (without TIME: forever). Default: do not wait.",
    )(function)
