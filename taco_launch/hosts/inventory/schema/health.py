"""What an inventory says of faults of hosts: which of them drain a host without a person, and how many hosts at most."""

from typing import Annotated

from pydantic import Field

from taco_launch.core.facts.reports.health.drain_plan import ALL_FAULTS
from taco_launch.core.facts.reports.health.judge import GROUPS
from taco_launch.hosts.inventory.schema.section import SchemaSection
from taco_launch.hosts.inventory.schema.values import MessageAddress, one_of, whole, whole_schema

# The history keeps at least as many checks.
MOST_CHECKS = 10
_CHECKS = (ALL_FAULTS, *(name for _group, checks in GROUPS for name in checks))


_CheckName = Annotated[str, one_of(_CHECKS, "is not the name of a check", "the names are:")]


class HealthPolicy(SchemaSection):
    """What is done about faults of hosts: by `check --drain`, and by the hosts before each job."""

    drain: tuple[_CheckName, ...] = Field(
        default=(ALL_FAULTS,),
        description="The checks whose faults drain a host, by the names that `check` shows, such as [Xid, ECC]; faults: all of them. "
        "Default: [faults].",
    )
    after: Annotated[int, whole(1, MOST_CHECKS), whole_schema(1, MOST_CHECKS)] = Field(
        default=2, description="A host is drained when the same check has found a fault so many times in a row."
    )
    share: Annotated[int, whole(1, 100), whole_schema(1, 100)] = Field(
        default=20,
        description="The most hosts that the policy may keep drained, in percent of all hosts: rounded down, but 1 of two or more hosts. "
        "Hosts that do not answer count, and the last host that is open to jobs is never drained.",
    )
    notify: MessageAddress | None = Field(
        default=None,
        description="Address, as in `notify`, that gets a message of each run that drains or opens hosts, or would have to.",
    )
    gate: bool = Field(
        default=True,
        description="true: before each job a host looks at its disks, GPUs and RDMA ports, and gives no slots on a full or read-only disk, with a "
        "lost GPU, or with an RDMA port down that the job uses on other hosts, and no GPU with uncorrectable memory errors. false: it does not look.",
    )
