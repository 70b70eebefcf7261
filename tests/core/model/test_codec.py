"""Every model value survives the way through JSON text; what has the wrong shape names its field."""

import enum
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.core.model import jobs, plans
from taco_launch.core.model.codec import from_json, to_json
from taco_launch.core.model.host import hosts
from taco_launch.core.model.host.fact_value import Absent, Unknown, known_value

MODELS = [
    value
    for module in (hosts, jobs, plans)
    for value in vars(module).values()
    if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
# Bytes of the world that are no UTF-8 travel as these.
TEXT = st.text(max_size=8) | st.binary(max_size=8).map(lambda data: data.decode("utf-8", "surrogateescape"))


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a field's type, as the model uses types."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union:
        return st.none() | values(arguments[0])
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(values(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, arguments))
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=4), JSON, max_size=3)
    if is_dataclass(hint):
        return models(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        int: st.integers(),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
    }
    return simple[hint]


def models(kind: Any) -> st.SearchStrategy[Any]:
    """Return values of a model class, every field filled in."""
    return st.builds(kind, **{name: values(hint) for name, hint in get_type_hints(kind).items()})


FIELDS = [(kind, entry.name) for kind in MODELS for entry in fields(kind)]


def test_the_model_is_found() -> None:
    assert {kind.__name__ for kind in MODELS} >= {"Inventory", "JobSpec", "JobRecord", "Event", "LaunchPlan"}


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_round_trip_through_text(kind: Any) -> None:
    @settings(max_examples=20)
    @given(models(kind))
    def check(value: Any) -> None:
        text = json.dumps(to_json(value))
        assert from_json(kind, json.loads(text)) == value

    check()


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda part: getattr(part, "__name__", part))
def test_a_wrong_shape_names_its_field(kind: Any, name: str) -> None:
    whole = to_json(WHOLE[kind])
    hint = get_type_hints(kind)[name]
    choices = get_args(hint) if get_origin(hint) is Union else (hint,)

    @settings(max_examples=5)
    @given(JSON)
    def check(data: Any) -> None:
        if any(map(is_dataclass, choices)) and isinstance(data, dict):
            return  # unknown keys are ignored and defaults filled in
        try:
            made = from_json(kind, {**whole, name: data})
        except ValueError as error:
            assert f"{kind.__name__}.{name}" in str(error)  # noqa: PT017 - any other error is the test's failure
        else:
            as_float = isinstance(getattr(made, name), float)
            assert to_json(made)[name] == (float(data) if as_float else data)
            assert isinstance(data, dict) == (get_origin(hint) is Mapping)

    check()


def smallest(kind: Any) -> Any:
    """Return a value of a model class with nothing but its required fields."""
    simple: dict[Any, Any] = {str: "x", int: 1, float: 1.0}
    required: dict[str, Any] = {}
    for entry in fields(kind):
        hint = get_type_hints(kind)[entry.name]
        if entry.default is not MISSING or entry.default_factory is not MISSING:
            continue
        if get_origin(hint) is tuple:
            required[entry.name] = ()
        elif isinstance(hint, type) and issubclass(hint, enum.Enum):
            required[entry.name] = next(iter(hint))
        else:
            required[entry.name] = simple[hint]
    return kind(**required)


WHOLE = {kind: smallest(kind) for kind in MODELS}


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("data", [None, "x", [], 1])
def test_what_is_no_mapping_is_refused(kind: Any, data: Any) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__}: a mapping is needed"):
        from_json(kind, data)


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda part: getattr(part, "__name__", part))
def test_a_missing_field_has_its_default_or_is_named(kind: Any, name: str) -> None:
    data = to_json(WHOLE[kind])
    del data[name]
    try:
        made = from_json(kind, data)
    except ValueError as error:
        assert repr(name) in str(error)  # noqa: PT017 - any other error is the test's failure
    else:
        assert made == WHOLE[kind]


SLOT_FIELDS = {entry.name for entry in fields(plans.FreeSlots)}


@settings(max_examples=20)
@given(st.dictionaries(st.text(max_size=5).filter(lambda key: key not in SLOT_FIELDS), JSON, max_size=3))
def test_unknown_keys_are_ignored(more: dict[str, Any]) -> None:
    assert from_json(plans.FreeSlots, {**more, "host": "a", "slots": 2}) == plans.FreeSlots("a", 2)


def test_a_wrong_value_deep_inside_names_its_field() -> None:
    data = to_json(WHOLE[jobs.JobSpec])
    data["hosts"] = [{"name": "gpu1", "address": "a", "port": "22"}]
    with pytest.raises(ValueError, match=r"JobSpec\.hosts\.port: int is needed, got str"):
        from_json(jobs.JobSpec, data)


def test_numbers() -> None:
    assert from_json(jobs.Policy, {"grace": 3}).grace == 3.0
    assert isinstance(from_json(jobs.Policy, {"grace": 3}).grace, float)


@pytest.mark.parametrize(
    ("name", "data"),
    [("grace", True), ("grace", "3"), ("grace", 10**400), ("log_max_bytes", True), ("log_max_bytes", 3.0)],
    ids=["true", "text", "beyond-float", "true-for-int", "float-for-int"],
)
def test_what_is_no_such_number(name: str, data: Any) -> None:
    with pytest.raises(ValueError, match=rf"Policy\.{name}"):
        from_json(jobs.Policy, {name: data})


@pytest.mark.parametrize("data", [[], [1], [1, 2, 3]])
def test_a_pair_is_two(data: list[int]) -> None:
    with pytest.raises(ValueError, match=r"Network\.port_range: 2 items are needed"):
        from_json(hosts.Network, {"port_range": data})


def test_a_state_that_is_none_names_its_field() -> None:
    with pytest.raises(ValueError, match=r"JobRecord\.state"):
        from_json(jobs.JobRecord, {"id": "a", "state": "BORED"})


def test_a_union_may_be_written_either_way() -> None:
    @dataclass(frozen=True)
    class Either:
        old: Optional[int]  # noqa: UP045 - what core itself has
        new: int | None

    for value in (Either(1, 2), Either(None, None)):
        assert from_json(Either, to_json(value)) == value


# --- What a fact holds, and what is not known of it


@pytest.mark.parametrize("value", [(), "", 0, False, "8.0", (1, 2)])
def test_a_value_is_known_even_if_it_is_empty(value: object) -> None:
    assert known_value(value) is value


@pytest.mark.parametrize("value", [Absent(), Absent("not found"), Unknown("cut off")])
def test_nothing_is_known_of_what_is_absent_or_unknown(value: object) -> None:
    assert known_value(value) is None
