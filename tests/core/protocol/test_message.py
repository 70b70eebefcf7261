"""Messages: what is said is what is heard, what has wrong fields is no message, and no field changes unnoticed."""

import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.protocol import (
    connection,
    framing,
    guard_messages,
    horovod_messages,
    rank_messages,
    relay_messages,
    stack_messages,
    stall_messages,
    verify_messages,
)
from taco_launch.core.protocol.guard_messages import Heartbeat, Lease, LogData, Prepare, Trace
from taco_launch.core.protocol.message import KINDS, Message
from taco_launch.core.protocol.rank_messages import Exit, Register, Welcome

FIELDS = Path(__file__).with_name("fields.json")
PREPARE = Prepare(welcome=Welcome(environment={"A": "b"}, log_max_bytes=1, umask=18), stall_after=1.5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def described(kind: Any) -> str:
    """Return a type as every version of Python has it."""
    inner = ", ".join(map(described, typing.get_args(kind)))
    name = getattr(typing.get_origin(kind) or kind, "__name__", str(kind)).removeprefix("typing.")
    return f"{'Union' if name == 'UnionType' else name}[{inner}]" if inner else name


def heard(message: Message) -> Message:
    line = json.loads(framing.dump(message.to_wire()))
    return KINDS[line["op"]].from_wire(line)


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(),
        Register(rank=1, roots=[[1, 2]]),
        Exit(rank=1, exit_code=None),
        PREPARE,
        Exit(rank=2, exit_code=9, lost=7),
    ],
)
def test_what_is_said_is_heard(message: Message) -> None:
    assert heard(message) == message
    assert repr(heard(message)) == repr(message)


def test_a_message_is_what_was_said() -> None:
    message = Exit(rank=1, exit_code=0)
    with pytest.raises(AttributeError, match=r"Exit\.rank cannot be changed"):
        message.rank = 2  # type: ignore[misc]
    assert message.replace(size=5) == Exit(rank=1, exit_code=0, size=5)
    assert message != Exit(rank=1, exit_code=1)
    with pytest.raises(TypeError, match="no field when"):
        Heartbeat(when=1)
    with pytest.raises(AttributeError):
        Register(rank=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("kind", "line", "why"),
    [
        (Register, {"rank": 1}, "roots is missing"),
        (Register, {"rank": True, "roots": []}, "rank: int is needed, got bool"),
        (Register, {"rank": 1, "roots": [1]}, "roots: a list is needed, got int"),
        (Exit, {"rank": 1, "exit_code": "0"}, "exit_code: int is needed, got str"),
        (Prepare, {"welcome": [], "stall_after": 1}, "welcome: a mapping is needed, got list"),
        (Trace, {"at": "2026", "text": "a\n2026 supervisor: b"}, "it is not a line"),
        (Trace, {"at": "2026\x1b[2J", "text": ""}, "it is not a line"),
        (Trace, {"at": "", "text": "x" * 301}, "it is not a line"),
        (Prepare, {"welcome": {"environment": {"A": 1}}, "stall_after": 1}, "environment: str is needed, got int"),
    ],
)
def test_what_is_no_message(kind: type[Message], line: Mapping[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kind.from_wire(line)


def test_what_a_newer_one_says_besides_is_left_alone() -> None:
    assert Heartbeat.from_wire({"op": "beat", "since": 1}) == Heartbeat()


@given(st.sampled_from(sorted(KINDS)), st.dictionaries(st.text(max_size=8), JSON, max_size=4), st.data())
def test_any_line_is_a_message_or_none(op: str, line: dict[str, Any], data: st.DataObject) -> None:
    kind = KINDS[op]
    for name, _kind in kind._fields:
        if data.draw(st.booleans()):
            line[name] = data.draw(JSON)
    try:
        found = kind.from_wire({**line, "op": op})
    except ValueError:
        return
    if not isinstance(found, LogData):
        assert framing.dump(heard(found).to_wire()) == framing.dump(found.to_wire())


def test_a_float_may_be_a_whole_number_and_a_lease_has_defaults() -> None:
    assert Prepare.from_wire({"welcome": PREPARE.welcome.to_wire(), "stall_after": 2}).stall_after == 2
    assert Lease._fields[-1][0] == "shared"


def test_fields_are_what_they_were() -> None:
    """A guard and a supervisor of one job are of one version; a field that changes has a reason, and this file with it."""
    now = {op: {name: described(form) for name, form in kind._fields} for op, kind in KINDS.items()}
    assert set(KINDS.values()) == {
        value
        for module in (
            connection,
            guard_messages,
            horovod_messages,
            rank_messages,
            relay_messages,
            stack_messages,
            stall_messages,
            verify_messages,
        )
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and value.op
    }
    assert json.loads(FIELDS.read_text("utf-8")) == now
