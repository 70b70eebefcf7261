"""The engines that keep the jobs of a cluster and run them, by the word for them in an inventory."""

from typing import Mapping

# What each is, for the references. taco_launch/jobs/backend/NAME has its `connect`.
ENGINES: Mapping[str, str] = {
    "agent": "the queue of taco-launch itself, kept by its agent on the head",
    "slurm": "Slurm, on whose login node the head is",
}
