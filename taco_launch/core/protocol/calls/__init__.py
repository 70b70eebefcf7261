"""What the controller requests of an agent, and what the agent replies: a class each, by what they are about.

A call is one request and any number of replies; the last one is EndOfReplies, or Failure. To add a call, write its request and its
replies here, what answers it in agent/api, and where that stands in the table of agent/api/serve.py.
"""

from typing import Any, ClassVar, Dict, Mapping, Optional, Type

from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.protocol.message import Message


class Request(Message):
    """What the controller requests; `op` is the operation."""

    by_op: ClassVar[Dict[str, Type[Message]]] = {}

    @property
    def takes_input(self) -> bool:
        """Whether frames of the caller follow."""
        return False


class Reply(Message):
    """What the agent replies."""

    by_op: ClassVar[Dict[str, Type[Message]]] = {}


class EndOfReplies(Reply):
    """There is no more; without it the answer broke off."""

    op = "end"


class Failure(Reply):
    """The call failed; no more follows."""

    op = "failure"
    message: str
    hint: Optional[str]
    exit_code: int
    # What programs tell errors apart by, as errors.py names them; older agents do not say.
    kind: str = ""

    @classmethod
    def of(cls, error: TacoLaunchError) -> "Failure":
        """Return the reply that an error is sent as."""
        return cls(message=error.message, hint=error.hint, exit_code=error.exit_code, kind=error.kind)


class Notice(Reply):
    """Something went wrong that did not end the call."""

    op = "warned"
    text: str


def request_of(op: str, line: Mapping[str, Any]) -> Request:
    """Return the request for an operation, whose module is imported where the operation is known at all.

    Raises:
        ValueError: it has not the fields of that request.
    """
    found = Request.by_op.get(op, Request).from_wire(line)
    assert isinstance(found, Request)
    return found


def reply_of(line: Mapping[str, Any]) -> Reply:
    """Return a reply, of a kind whose module is imported.

    Raises:
        ValueError: it is of no such kind, or has not its fields.
    """
    kind = Reply.by_op.get(str(line.get("op")))
    if kind is None:
        raise ValueError(f"op is {str(line.get('op'))[:60]!r}")
    found = kind.from_wire(line)
    assert isinstance(found, Reply)
    if line.get("bytes") and "data" not in vars(found):
        raise ValueError(f"bytes behind {kind.op}")
    return found


def check_counts(**values: Optional[int]) -> None:
    """Check that each value is a count.

    Raises:
        ValueError: one is below 0.
    """
    for name, value in values.items():
        if value is not None and value < 0:
            raise ValueError(f"{name} is {value}")
