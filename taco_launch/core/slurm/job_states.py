"""What squeue and scontrol print of a job -> what that means here. Pure.

The fixed format of `squeue -o` and the pairs of `scontrol show job` are the same from Slurm 22.05 to 25.05, their JSON is not.
"""

import re
from typing import Dict, Mapping, NamedTuple, Optional

from taco_launch.core.errors import SIGNAL_BASE, JobEnd
from taco_launch.core.model.jobs import JobState

# Of `squeue -o`: the number, that of an array and the place in it, the state, and why it waits, which may hold blanks.
FORMAT = "%A|%F_%K|%T|%r"
# Words for the reasons that users meet, squeue(1) "JOB REASON CODES". Others are shown as Slurm has them.
_REASONS: Mapping[str, str] = {
    "None": "Slurm has not considered it yet",
    "Resources": "nodes that fit are in use",
    "Priority": "jobs with a higher priority are before it",
    "Dependency": "a job that it depends on has not ended",
    "DependencyNeverSatisfied": "the job that it depends on ended otherwise: it never starts",
    "JobArrayTaskLimit": "as many jobs of its array run as its limit allows",
    "JobHeldUser": "it is held by its user",
    "JobHeldAdmin": "an administrator holds it",
    "BeginTime": "its start time has not come",
    "Licenses": "licenses that it needs are in use",
    "PartitionConfig": "its partition has not enough nodes for it",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it requests more nodes than its partition allows",
    "PartitionTimeLimit": "its time limit is above that of its partition",
    "ReqNodeNotAvail": "a node that it needs is down, drained or reserved",
    "Reservation": "its reservation has not started",
    "AssocGrpGRES": "its account uses all of its GPUs",
    "QOSMaxJobsPerUserLimit": "the QOS allows no more jobs of one user",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "BadConstraints": "no node has what it requests",
    "launch failed requeued held": "a node could not start it, and Slurm holds it",
}
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z/:]*)=(\S*)")
_WAITS = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED"))
_LIVES = frozenset(
    ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
)


class SlurmJob(NamedTuple):
    """A job as Slurm knows it at this moment."""

    # What Slurm's programs call it: its number, or in an array ARRAY_PLACE.
    id: str
    state: str
    # Why it waits, as Slurm has it.
    reason: str = ""
    # A job of an array has one of its own once it has nodes.
    number: int = 0

    @property
    def waits(self) -> bool:
        """Whether it has no nodes yet."""
        return self.state in _WAITS

    @property
    def lives(self) -> bool:
        """Whether its processes may run."""
        return self.state in _LIVES

    @property
    def words(self) -> str:
        """Why it waits, in words."""
        reason = self.reason.strip("()").partition(",")[0]
        words = _REASONS.get(reason)
        return f"Slurm job {self.id}: {words} ({reason})" if words else f"Slurm job {self.id}: {reason or self.state}"


class SlurmEnd(NamedTuple):
    """How a job ended that could not tell it itself."""

    state: JobState
    exit_code: int
    reason: str


def parse_squeue(text: str) -> Dict[str, SlurmJob]:
    """Return the jobs that `squeue -h --array -o FORMAT` has printed, by id; other lines are left out."""
    jobs = {}
    for line in text.splitlines():
        number, place, state, reason = (*line.split("|", 3), "", "", "")[:4]
        if number.isdecimal() and state:
            id_ = place if place.rpartition("_")[2].isdecimal() else number  # _N/A: it belongs to no array
            jobs[id_] = SlurmJob(id_, state.strip(), reason.strip(), int(number))
    return jobs


def parse_pairs(text: str) -> Dict[str, str]:
    """Return NAME=VALUE of `scontrol show job -o`; of a name that is there twice the first."""
    pairs: Dict[str, str] = {}
    for name, value in _PAIR.findall(text):
        pairs.setdefault(name, value)
    return pairs


def end_of(number: str, pairs: Optional[Mapping[str, str]]) -> SlurmEnd:
    """Return the end of a job by what Slurm tells of it; None where Slurm does not know it any more."""
    if pairs is None:
        reason = f"Slurm does not know job {number} any more, and the job's supervisor recorded no end"
        return SlurmEnd(JobState.LOST, JobEnd.LOST, reason)
    state, job = pairs.get("JobState", "").partition("+")[0], f"Slurm job {number}"
    code, _colon, signal = pairs.get("ExitCode", "").partition(":")
    exit_code = (
        SIGNAL_BASE + int(signal) if signal.isdecimal() and int(signal) else int(code) if code.isdecimal() else 1
    )
    if state in ("CANCELLED", "PREEMPTED"):
        by = "cancelled in Slurm" if state == "CANCELLED" else "preempted by a job with a higher priority"
        return SlurmEnd(JobState.CANCELLED, SIGNAL_BASE + 15, f"{by} ({job})")
    if state == "TIMEOUT":
        limit = pairs.get("TimeLimit", "unknown")
        return SlurmEnd(JobState.FAILED, JobEnd.OUT_OF_TIME, f"reached Slurm's time limit of {limit} ({job})")
    words = {
        "NODE_FAIL": "a node failed",
        "BOOT_FAIL": "a node did not boot",
        "OUT_OF_MEMORY": "it used more memory than Slurm allows",
        "DEADLINE": "it reached its deadline",
    }.get(state)
    if words is not None:
        return SlurmEnd(JobState.FAILED, exit_code or JobEnd.LOST, f"{words}: {job} ended as {state}")
    reason = f"{job} ended as {state or 'unknown'} with exit code {exit_code}, before its supervisor recorded an end"
    return SlurmEnd(JobState.LOST, JobEnd.LOST, reason)
