"""The section of an inventory about the Slurm of its hosts."""

from typing import Literal

from pydantic import Field

from taco_launch.hosts.inventory.schema.section import SchemaSection


class Slurm(SchemaSection):
    """The programs that the nodes of a Slurm cluster offer to jobs."""

    containers: Literal["apptainer", "pyxis"] | None = Field(
        default=None,
        description="By what jobs run in containers (--image). apptainer: Apptainer. pyxis: pyxis and enroot. Default: none.",
    )
