"""The options that choose the hosts and GPUs of a job."""

from collections.abc import Callable
from typing import Any, TypeVar

from taco_launch.cli.options.completion import complete_host_list
from taco_launch.cli.options.option_groups import OptionGroup, option, options_of_group

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    option(
        "-H",
        "--host",
        "hosts",
        multiple=True,
        metavar="H1:8,H2:8",
        shell_complete=complete_host_list,
        help="Hosts and host groups to use, with slots per host.",
    ),
    option(
        "--gpu-ids",
        metavar="LIST",
        help="Use only these GPUs of each host, by nvidia-smi index: 0,2,4-7.",
    ),
    option(
        "--gpu-model",
        "gpu_models",
        multiple=True,
        metavar="NAME",
        help="Use only GPUs with NAME in their model name, such as V100. Without it a job gets GPUs of one model, and none in "
        "MIG mode (to use those, put MIG into NAME). Repeatable.",
    ),
    option(
        "--exclude",
        multiple=True,
        metavar="HOST[:LIST]",
        help="Leave out hosts, or some GPUs of a host: gpu3:0,1. Repeatable.",
    ),
    option(
        "--selector",
        "selectors",
        multiple=True,
        metavar="LABEL=VALUE",
        help="Use only hosts with this inventory label, such as leaf=a. Repeatable; all must match.",
    ),
    option(
        "--exclusive",
        is_flag=True,
        help="Run no other job on the job's hosts, even if it leaves slots unused.",
    ),
    option(
        "--gputopology/--no-gputopology",
        "gputopology",
        default=None,
        help="Choose GPUs by the links between them (--no-gputopology: by the lowest index). Default: topology in the inventory, else on.",
    ),
)


def gpu_options(function: F) -> F:
    """Add -H, --gpu-ids, --gpu-model, --exclude, --selector, --exclusive and --gputopology."""
    return options_of_group(OptionGroup.HOSTS, _OPTIONS, function)
