"""The stages of set-up by their names: each file's plan."""

from collections.abc import Mapping

from taco_launch.setup import agent, container, docker, image, peermem, ssh_mesh, toolkit
from taco_launch.setup.chain import Plan
from taco_launch.setup.ops import Stage

PLANS: Mapping[Stage, Plan] = {
    "docker": docker.plan,
    "toolkit": toolkit.plan,
    "peermem": peermem.plan,
    "image": image.plan,
    "container": container.plan,
    "ssh_mesh": ssh_mesh.plan,
    "agent": agent.plan,
}
