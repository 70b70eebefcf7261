"""The options that say which hosts and which of their GPUs a job may have."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from taco_launch.cli.options import add_option

if TYPE_CHECKING:
    from taco_launch.model.hosts import Host, Inventory

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


def narrowed(inventory: "Inventory", hosts: "Sequence[Host]", options: Mapping[str, Any]) -> "tuple[Host, ...]":
    """Give those of the hosts that a job may be placed on, with the terms for their GPUs.

    Raises:
        SpecError: an option is wrong, or leaves no host.
    """
    asked = {name: options.get(name) for name in ("gpu_ids", "exclude", "selectors", "gpu_models", "gputopology")}
    gpus = options.get("gpus") is not None
    if not gpus and not any(value not in (None, ()) for value in asked.values()):
        return tuple(hosts)
    from taco_launch.inventory.narrow import Narrowing, narrow

    return narrow(
        inventory,
        hosts,
        Narrowing(
            gpu_ids=asked["gpu_ids"],
            exclude=tuple(asked["exclude"] or ()),
            selectors=tuple(asked["selectors"] or ()),
            models=tuple(asked["gpu_models"] or ()),
            topology=asked["gputopology"],
            gpus=gpus,
        ),
    )
