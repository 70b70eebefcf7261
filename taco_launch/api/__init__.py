"""Offer `Cluster` and `Job` to Python programs: the only public module of this package."""

from importlib import import_module

# Each public name and the module that has it; __init__.pyi tells type checkers. A name is loaded when it is used: the
# command line imports this package at every start, and needs few of them.
_MODULES = {
    "CleanUp": "taco_launch.core.model.jobs",
    "Cluster": "taco_launch.api.cluster",
    "FollowListener": "taco_launch.jobs.backend",
    "HostError": "taco_launch.core.errors",
    "Job": "taco_launch.api.job",
    "JobRequest": "taco_launch.core.model.job_request",
    "JobState": "taco_launch.core.model.jobs",
    "LogQuery": "taco_launch.jobs.backend",
    "NightlyListener": "taco_launch.api.nightly",
    "NightlyOptions": "taco_launch.api.nightly",
    "NightlyResult": "taco_launch.bench.nightly.recorded_run",
    "NoJobError": "taco_launch.core.errors",
    "Progress": "taco_launch.core.model.job_view",
    "PlacementError": "taco_launch.core.errors",
    "Restart": "taco_launch.core.model.jobs",
    "SetupEnd": "taco_launch.setup.cluster_setup",
    "SetupListener": "taco_launch.setup.job_containers.prepare",
    "SetupOptions": "taco_launch.api.setup",
    "SetupPlan": "taco_launch.setup.cluster_setup",
    "SpecError": "taco_launch.core.errors",
    "TacoLaunchError": "taco_launch.core.errors",
    "UsageError": "taco_launch.core.errors",
    "run_nightly": "taco_launch.api.nightly",
    "set_up_hosts": "taco_launch.api.setup",
}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - a list


def __getattr__(name: str) -> object:
    """Load a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
