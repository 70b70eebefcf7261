"""taco-launch: sets up GPU hosts, launches distributed training on them, tracks, benchmarks and judges it."""

__version__ = "0.1.0.dev1"
