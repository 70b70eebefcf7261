"""What an inventory says of folders with data: data sets, which jobs name, and the folders that jobs may mount by path."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from taco_launch.hosts.inventory.schema.section import SchemaSection, text_or_mapping
from taco_launch.hosts.inventory.schema.values import DataPath, DataRoot


class DataEntry(SchemaSection):
    """A folder of the hosts that jobs name: --data NAME:PATH."""

    path: DataPath = Field(description="Its absolute path on every host, such as /mnt/nas/imagenet.")
    description: str | None = Field(default=None, description="What it is, for `taco-launch data list`.")
    mode: Literal["rw", "ro"] = Field(default="rw", description="ro: jobs can only read it, even if they request rw.")
    owner: str | None = Field(default=None, description="Its owner, for `taco-launch data list`.")


class DataRootMode(SchemaSection):
    """A folder of the hosts that jobs may mount by its path, and how."""

    path: DataRoot = Field(description="Its absolute path on the hosts, such as /data.")
    mode: Literal["rw", "ro"] = Field(default="ro", description="ro: jobs can only read it. rw: they can write to it.")


DataRootEntry = Annotated[
    Annotated[DataRoot, Tag("text")] | Annotated[DataRootMode, Tag("mapping")], Discriminator(text_or_mapping)
]
