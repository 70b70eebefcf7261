"""The messages between the starters of an elastic Horovod job, one on each host, and the driver on the first host."""

from typing import Mapping

from taco_launch.core.protocol.message import Message

_MOST_SLOTS = 1 << 10
_MOST_CHARACTERS = 1 << 8
_MOST_CODES = 1 << 8
# A rank's number and the number of all ranks.
_COUNTS = ("HOROVOD_RANK", "HOROVOD_SIZE")


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

    def check(self) -> None:
        """Check that the slot is the number of one, and the code that of a process."""
        if not 0 <= self.slot < _MOST_SLOTS or not 0 <= self.exit_code < _MOST_CODES:
            raise ValueError(f"slot is {self.slot}, exit_code {self.exit_code}")


# --- the driver to a host


class StartWorker(Message):
    """Start the rank of a slot, with Horovod's own variables."""

    op = "start-worker"
    slot: int
    environment: Mapping[str, str]

    def check(self) -> None:
        """Check that there are Horovod's variables alone, with its counts: another user may answer on the driver's port."""
        others = any(not name.startswith("HOROVOD_") for name in self.environment)
        counted = all(self.environment.get(name, "").isdecimal() for name in _COUNTS)
        if not 0 <= self.slot < _MOST_SLOTS or others or not counted:
            raise ValueError(f"slot is {self.slot}, environment {str(dict(self.environment))[:60]}")


class EndWorker(Message):
    """End the rank of a slot: Horovod continues without it."""

    op = "end-worker"
    slot: int


class JobEnded(Message):
    """Report that all ranks have ended, and the exit code of them all."""

    op = "job-ended"
    exit_code: int
