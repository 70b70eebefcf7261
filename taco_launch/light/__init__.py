"""Make LIGHT_* work on stock torch.

Ranks import it, to send few bytes of gradients over slow links; nothing else of the package does, or is imported here.
"""

from taco_launch.light.config import LightError
from taco_launch.light.ddp import Light, attach

__all__ = ["Light", "LightError", "attach"]
