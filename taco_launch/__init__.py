"""taco-launch: sets up GPU hosts, launches distributed training on them, tracks, benchmarks and judges it."""

__version__ = "0.1.0"

# What Python programs use, by the module that has it; __init__.pyi tells type checkers.
_MODULES = {"Cluster": "taco_launch.api", "Job": "taco_launch.job", "JobRequest": "taco_launch.model.job_request"}


def __getattr__(name: str) -> object:
    """Load what Python programs use when they do: the agent and `--help` have no time for it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - see above

    return getattr(importlib.import_module(_MODULES[name]), name)
