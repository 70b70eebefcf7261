"""Names the packages: every folder of taco_launch, and the inventories that are shipped. All else is in setup.cfg.

The sdist and an editable installation (pip install -e) have all of them. The wheel is without the lab, which has a wheel of
its own: scripts/build_wheels.py.
"""

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel

LAB = find_packages(include=["taco_launch.lab", "taco_launch.lab.*"])


class WheelWithoutLab(bdist_wheel):
    """Builds the wheel of all packages but the lab's."""

    def run(self) -> None:
        """Remove the lab's packages, then build."""
        self.distribution.packages = [name for name in self.distribution.packages if name not in LAB]
        super().run()


setup(
    packages=[*find_packages(include=["taco_launch", "taco_launch.*"]), "taco_launch.hosts.inventory.shipped"],
    cmdclass={"bdist_wheel": WheelWithoutLab},
)
