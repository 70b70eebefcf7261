"""What a proof of set-up is about, and what it finds: a cluster, what was seen of its containers, flaws."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Container, Inventory
from taco_launch.hosts.fanout import Answer
from taco_launch.setup.model.ops import ProofFailure

# What a command in a container may take, in seconds, beside what it waits for.
LOOK_SECONDS = 60


@dataclass(frozen=True)
class ContainerProbe:
    """What a host's container is: image, environment, limit of locked memory (bytes, -1 none), port that listens."""

    image: str
    env: Mapping[str, str] = field(repr=False)
    memlock: int
    port: int


@dataclass(frozen=True)
class ProofScope:
    """What is asked about: hosts that are set up, the address of each, and where they are."""

    inventory: Inventory
    container: Container
    facts: Mapping[str, HostFacts]
    addresses: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the name of the training container."""
        return paths.container(self.inventory.cluster)


def silent(answers: Iterable[Answer[Any]]) -> Iterable[ProofFailure]:
    """Yield a flaw for each host that did not answer."""
    for answer in answers:
        if answer.error is not None:
            said = answer.error.message.removeprefix(f"{answer.host}: ")
            yield ProofFailure((answer.host,), "cannot be queried", said, answer.error.hint or "")
