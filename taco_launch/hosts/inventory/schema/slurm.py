"""The section of an inventory about the Slurm of its hosts."""

from pydantic import Field

from taco_launch.core.model.engines import ContainerProgram
from taco_launch.hosts.inventory.schema.section import SchemaSection


class Slurm(SchemaSection):
    """The programs that the nodes of a Slurm cluster offer to jobs."""

    containers: ContainerProgram | None = Field(
        default=None,
        description="By what jobs run in containers (--image). apptainer: Apptainer. pyxis: pyxis and enroot. Default: none.",
    )
