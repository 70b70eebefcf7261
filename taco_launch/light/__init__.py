"""Make LIGHT_* variables work on stock torch: average gradients over slow links by few bytes. Ranks import it."""

from taco_launch.light.config import LightError
from taco_launch.light.ddp import Light, attach

__all__ = ["Light", "LightError", "attach"]
