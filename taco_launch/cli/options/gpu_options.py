"""The options that say which hosts and which of their GPUs a job may have."""

from collections.abc import Callable
from typing import Any, TypeVar

from taco_launch.cli.options.common import add_option

F = TypeVar("F", bound=Callable[..., Any])


def gpu_options(function: F) -> F:
    """Add --gpu-ids, --gpu-model, --exclude, --selector, --exclusive and --gputopology."""
    options = (
        add_option("--gpu-ids", metavar="LIST", help="Only these GPUs of each host, by nvidia-smi's index: 0,2,4-7."),
        add_option(
            "--gpu-model",
            "gpu_models",
            multiple=True,
            metavar="NAME",
            help="Only GPUs with NAME in their model's name, such as V100. A job gets GPUs of one model, and none in MIG mode "
            "(MIG), unless they are named. Repeatable.",
        ),
        add_option(
            "--exclude",
            multiple=True,
            metavar="HOST[:LIST]",
            help="Hosts to leave out, or some of a host's GPUs: gpu3:0,1. Repeatable.",
        ),
        add_option(
            "--selector",
            "selectors",
            multiple=True,
            metavar="LABEL=VALUE",
            help="Only hosts with that label in the inventory, such as leaf=a. Repeatable: all have to hold.",
        ),
        add_option(
            "--exclusive", is_flag=True, help="Have the job's hosts for itself, also the slots that it does not use."
        ),
        add_option(
            "--gputopology/--no-gputopology",
            "gputopology",
            default=None,
            help="Choose the GPUs of a host by the links between them, or take the lowest indices. "
            "Default: the inventory's topology, which is on.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function
