"""A class of taco_launch.core.frozen is what dataclasses.dataclass(frozen=True) gives, from its first use on."""

import dataclasses
import threading
from typing import Any

import pytest

from taco_launch.core.frozen import dataclass
from tests.support.threads import side_by_side


def made() -> Any:
    @dataclass(frozen=True)
    class Base:
        kind: str
        more: tuple[str, ...] = ()

    @dataclass(frozen=True)
    class Value(Base):
        number: int = dataclasses.field(default=1, repr=False)

    return Value


def test_an_instance() -> None:
    kind = made()
    value = kind("a", number=2)
    assert value == kind(kind="a", more=(), number=2) != kind("b")
    assert hash(value) == hash(kind("a", number=2))
    assert repr(value).endswith("Value(kind='a', more=())")
    assert dataclasses.replace(value, kind="c") == kind("c", number=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.kind = "d"
    with pytest.raises(TypeError):
        kind()


@pytest.mark.parametrize("look", [dataclasses.fields, dataclasses.is_dataclass])
def test_a_look_at_the_class_first(look: Any) -> None:
    kind = made()
    assert look(kind)
    assert [entry.name for entry in dataclasses.fields(kind)] == ["kind", "more", "number"]
    assert kind("a").more == ()


def test_no_method_is_written_before() -> None:
    kind = made()
    assert "__init__" not in vars(kind)
    kind("a")
    assert "__init__" in vars(kind)


def test_threads_that_come_at_once() -> None:
    for _round in range(50):
        kind, begin = made(), threading.Barrier(4)
        found: list[Any] = []

        def make(kind: Any = kind, found: list[Any] = found, begin: threading.Barrier = begin) -> None:
            begin.wait()
            found.append(kind("a"))

        side_by_side(make, [()] * 4)
        assert found == [kind("a")] * 4
