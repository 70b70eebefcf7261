"""Calls about one job: submit, get, stop, suspend, resume, delete."""

from typing import Mapping, Optional

from taco_launch.core.model.job_view import JobView, check_job, check_spec
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.message import Message


class CallerEnvironment(Message):
    """Who submits: the environment and umask that the job has.

    With `inherit` the caller is on another machine: its job has the agent's environment, and these variables besides.
    """

    environment: Mapping[str, str]
    umask: int
    inherit: bool = False


class Submit(Request):
    """Start a job; with `follow` its log and its states are replied too, for `seconds` at most.

    Replies: CodeWanted where the head lacks the job's code, which the caller sends then; Accepted, JobReply.
    """

    op = "submit"
    spec: JobSpec
    caller: CallerEnvironment
    follow: bool = False
    seconds: Optional[float] = None

    def check(self) -> None:
        """Check that it is a job that can be shown."""
        check_spec(self.spec)

    @property
    def takes_input(self) -> bool:
        """Whether there is code that may have to follow."""
        return self.spec.code is not None


class Get(Request):
    """Return a job with its events. Reply: JobReply."""

    op = "get"
    name: str


class Stop(Request):
    """End a job by `signal`, and by KILL after its grace time or `grace` seconds if that is less. Reply: JobReply."""

    op = "stop"
    name: str
    # who stops it, for the record
    by: str
    signal: int
    grace: Optional[float] = None


class Suspend(Request):
    """End a job's ranks until it is resumed. Reply: JobReply, which may still run."""

    op = "suspend"
    name: str
    by: str


class Resume(Request):
    """Have a suspended job wait for its slots again. Reply: JobReply."""

    op = "resume"
    name: str
    by: str


class Delete(Request):
    """Remove the record of a job that has ended. Reply: Notice for each host that keeps something of it."""

    op = "delete"
    name: str


class Accepted(Reply):
    """There is a job of that name now, which can be stopped."""

    op = "accepted"
    name: str


class JobReply(Reply):
    """A job as it is at this moment; `events` are there only where they were requested."""

    op = "job"
    job: JobView

    def check(self) -> None:
        """Check that it is a job that somebody could submit, with numbers that can be shown."""
        check_job(self.job)
