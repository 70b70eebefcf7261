"""What a fact holds, and what is not known of it."""

import pytest

from taco_launch.core.model.host.fact_value import Absent, Unknown, known_value


@pytest.mark.parametrize("value", [(), "", 0, False, "8.0", (1, 2)])
def test_a_value_is_known_even_if_it_is_empty(value: object) -> None:
    assert known_value(value) is value


@pytest.mark.parametrize("value", [Absent(), Absent("not found"), Unknown("cut off")])
def test_nothing_is_known_of_what_is_absent_or_unknown(value: object) -> None:
    assert known_value(value) is None
