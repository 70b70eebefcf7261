"""Variants: what a cluster's second container on a host has otherwise than the inventory's, and what the head keeps of it."""

import hashlib
import json
from dataclasses import field
from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass

Mounts = Tuple[Tuple[str, str, str], ...]
KEY_DIGITS = 10


@dataclass(frozen=True)
class Variant:
    """What a container has otherwise than the inventory's; "", () and None: as the inventory has it.

    `mounts` are data sets of the inventory, `data` are paths that whoever asked for the job named; both (path on the host,
    path inside, `rw` or `ro`), and go before the inventory's mounts at the same place. `source` is where the image comes
    from (Container.source); `identity` the id of an image that the controller has, which another build of that name has not.
    """

    image: str = ""
    source: str = ""
    identity: str = ""
    mounts: Mounts = ()
    data: Mounts = ()
    shm_size: Optional[int] = None

    @property
    def key(self) -> str:
        """Return by what it is known, "" where it says nothing."""
        if self == Variant():
            return ""
        parts = (self.image, self.source, self.identity, sorted(self.mounts), sorted(self.data), self.shm_size)
        return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogateescape")).hexdigest()[:KEY_DIGITS]

    @property
    def told(self) -> str:
        """Return what it says, in words."""
        words = [f"image {self.image}"] if self.image else []
        words += [f"{source} at {inside}{' (read only)' if mode == 'ro' else ''}" for source, inside, mode in self._all]
        words += [f"shared memory of {self.shm_size >> 20} MiB"] if self.shm_size is not None else []
        return ", ".join(words)

    @property
    def _all(self) -> Mounts:
        return (*self.mounts, *self.data)


@dataclass(frozen=True)
class VariantRecord:
    """What the head keeps of a variant: what it is, its sshd's port, the hosts that have it, its image as set-up found it.

    `images` is by host: (host, what the engine there calls the image).
    """

    variant: Variant
    port: int
    hosts: Tuple[str, ...]
    images: Tuple[Tuple[str, str], ...] = field(default=())


@dataclass(frozen=True)
class VariantUse:
    """A container that jobs have beside the cluster's own, by its key.

    `record` is what set-up has kept of it (setup/model/job_containers.py); `used` when it was last needed, seconds since the epoch; `jobs`
    are those that have not ended.
    """

    key: str
    record: str
    used: Optional[float]
    jobs: Tuple[str, ...]
