"""Calls about jobs: submit and get of one; stop, suspend, resume and delete of several."""

from typing import Any, List, Mapping, Optional

from taco_launch.core.model.job_view import JobUsage, JobView, check_job, check_spec, check_usage
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.protocol.calls import Failure, Reply, Request
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


# The next five are about several jobs. All of them are told before any is waited for. With `owner`, another user's job is
# refused. Replies, for each name in their order: JobReply or NotDone.


class Stop(Request):
    """End jobs by `signal`, and by KILL after their grace time or `grace` seconds if that is less."""

    op = "stop"
    names: List[str]
    owner: Optional[str] = None
    # who stops them, for the record
    by: str
    signal: int
    grace: Optional[float] = None


class Suspend(Request):
    """End the ranks of jobs until these are resumed; in the reply they may still run."""

    op = "suspend"
    names: List[str]
    owner: Optional[str] = None
    by: str


class Resume(Request):
    """Have suspended jobs wait for their slots again."""

    op = "resume"
    names: List[str]
    owner: Optional[str] = None
    by: str


class Resize(Request):
    """Have a running elastic job use at most `hosts` hosts. The reply is JobReply or NotDone."""

    op = "resize"
    names: List[str]
    owner: Optional[str] = None
    by: str
    hosts: int


class Delete(Request):
    """Remove the records of jobs that have ended. Their reply is Deleted, after a Notice for each host that keeps something.

    With `by`, stop those that have not ended: their reply is JobReply, and their records stay.
    """

    op = "delete"
    names: List[str]
    owner: Optional[str] = None
    by: Optional[str] = None


class Accepted(Reply):
    """There is a job of that name now, which can be stopped."""

    op = "accepted"
    name: str


class NotDone(Reply):
    """What was requested was not done with this job; more replies follow."""

    op = "not-done"
    name: str
    failure: Failure


class Deleted(Reply):
    """There is no record of this job any more."""

    op = "deleted"
    name: str


class JobReply(Reply):
    """A job as it is at this moment; `events` are there only where they were requested."""

    op = "job"
    job: JobView

    def check(self) -> None:
        """Check that it is a job that somebody could submit, with numbers that can be shown."""
        check_job(self.job)


class GetUsage(Request):
    """Return what a job has used. Reply: UsageReply."""

    op = "usage"
    name: str


class UsageReply(Reply):
    """What a job has used since its start, None where nothing was measured."""

    op = "used"
    usage: Optional[JobUsage]

    def check(self) -> None:
        """Check that hosts can have these numbers."""
        for usage in () if self.usage is None else (*self.usage.series, *(last for _host, last in self.usage.hosts)):
            check_usage(usage)


class SendMessage(Request):
    """Send a message (core/messages/words.py) to an address, once. Reply: MessageSent."""

    op = "message"
    to: str
    message: Mapping[str, Any]


class MessageSent(Reply):
    """The message was delivered; `problem` says why it was not, "" otherwise."""

    op = "message-sent"
    problem: str
