"""Names the packages: every folder of taco_launch, and the inventories that are shipped. All else is in setup.cfg."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["taco_launch", "taco_launch.*"]), "taco_launch.inventory.shipped"])
