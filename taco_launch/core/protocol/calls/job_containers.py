"""Calls about the containers that jobs have beside the cluster's own: is one prepared, which are there, who needs them."""

import math
from typing import Optional, Sequence

from taco_launch.core.protocol.calls import Reply, Request


class FindVariant(Request):
    """Return what the head keeps of a variant, and note that it is used now. Reply: VariantReply, where there is one."""

    op = "variant"
    key: str


class GetVariants(Request):
    """Return all variants. Reply: VariantReply for each."""

    op = "variants"


class VariantReply(Reply):
    """A variant: `record` is what set-up wrote on the head (setup/model/job_containers.py), "" where it wrote nothing.

    `used` is when it was last asked for, or had a job (seconds since the epoch); `jobs` are those that have not ended.
    """

    op = "variant"
    key: str
    record: str = ""
    used: Optional[float] = None
    jobs: Sequence[str] = ()

    def check(self) -> None:
        """Check that its time is one."""
        if self.used is not None and not math.isfinite(self.used):
            raise ValueError("used at no time")
