"""Where a job's ranks run, pure: which hosts (hosts.py, leaves.py), and which GPUs of a host (gpus.py)."""

from taco_launch.placement.hosts import ordered, place, slots_of

__all__ = ["ordered", "place", "slots_of"]
