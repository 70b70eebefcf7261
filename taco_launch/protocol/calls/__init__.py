"""What the controller requests of an agent, and what the agent replies: a class each, by what they are about.

A call is one request and any number of replies; the last one is End, or Failure. To add a call, write its request and its
replies here, what answers it in agent/api, and where that stands in the table of agent/api/serve.py.
"""

from typing import Any, ClassVar, Dict, Mapping, Optional, Sequence, Tuple, Type

from taco_launch.protocol.message import Message


class Call(Message):
    """A request or a reply: its fields may also be records of the model."""

    @classmethod
    def _read(cls, kind: Any, value: Any, name: str) -> Any:
        record, optional = _record(kind)
        if record is None or (optional and value is None):
            return super()._read(kind, value, name)
        from taco_launch.model.codec import from_json  # noqa: PLC0415 - most calls have no record

        return from_json(record, value, name)

    @classmethod
    def _written(cls, value: Any) -> Any:
        if _record(type(value))[0] is None:
            return super()._written(value)
        from taco_launch.model.codec import to_json  # noqa: PLC0415 - see above

        return to_json(value)


class Request(Call):
    """What the controller requests; `op` is the operation."""

    by_op: ClassVar[Dict[str, Type[Message]]] = {}


class Reply(Call):
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
    try:
        found = kind.from_wire(line)
    except (TypeError, LookupError, AttributeError, OverflowError) as error:  # of a record
        raise ValueError(f"{kind.op}: {error!r:.200}") from None
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


def _record(kind: Any) -> Tuple[Any, bool]:
    """Return a field's record of the model, None where it has none, and whether it may be missing."""
    inner: Sequence[Any] = getattr(kind, "__args__", ())
    optional = len(inner) == 2 and inner[1] is type(None)
    kind = inner[0] if optional else kind
    # Looking for the fields themselves would have frozen.py write the class.
    return (kind if isinstance(kind, type) and "__dataclass_fields__" in vars(kind) else None), optional
