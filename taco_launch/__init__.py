"""taco-launch: sets up GPU hosts, launches distributed training on them, tracks, benchmarks and judges it.

Python programs import `taco_launch.api`, and ranks `taco_launch.light`; every other module may change without notice.
"""

__version__ = "0.4.0.dev0"
