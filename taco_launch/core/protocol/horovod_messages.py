"""The messages between the starters of an elastic Horovod job, one on each host, and the driver on the first host."""

from typing import Mapping

from taco_launch.core.protocol.message import Message

_MOST_SLOTS = 1 << 10
_MOST_CHARACTERS = 1 << 8


# --- a host to the driver


class OfferSlots(Message):
    """Offer this host's slots, for the first time or after its ranks have failed; `job` is the job's id."""

    op = "offer-slots"
    job: str
    address: str
    slots: int

    def check(self) -> None:
        """Check that the slots are a plausible number, and the texts are short."""
        if not 0 < self.slots <= _MOST_SLOTS or max(len(self.job), len(self.address)) > _MOST_CHARACTERS:
            raise ValueError(f"slots is {self.slots}, address {self.address[:60]!r}")


class WithdrawSlots(Message):
    """Ask that the job continues without this host; its ranks end when Horovod has removed them."""

    op = "withdraw-slots"


class WorkerEnded(Message):
    """Report that the rank of a slot has ended."""

    op = "worker-ended"
    slot: int
    exit_code: int


# --- the driver to a host


class StartWorker(Message):
    """Start the rank of a slot, with Horovod's own variables."""

    op = "start-worker"
    slot: int
    environment: Mapping[str, str]

    def check(self) -> None:
        """Check that only Horovod's variables are set, whoever answers on the driver's port."""
        if not 0 <= self.slot < _MOST_SLOTS or any(not name.startswith("HOROVOD_") for name in self.environment):
            raise ValueError(f"slot is {self.slot}, environment {str(dict(self.environment))[:60]}")


class EndWorker(Message):
    """End the rank of a slot: Horovod continues without it."""

    op = "end-worker"
    slot: int


class JobEnded(Message):
    """Report that all ranks have ended, and the exit code of them all."""

    op = "job-ended"
    exit_code: int
