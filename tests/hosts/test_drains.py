"""Records of drains: what a reason may be, and which hosts can be drained."""

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts import drains


@pytest.mark.parametrize("reason", ["", "  ", "a\nb", "a\x1b[31m", "x" * 201])
def test_a_reason_is_one_line(reason: str) -> None:
    with pytest.raises(UsageError, match="--reason: must be one line of 1 to 200 characters"):
        drains.record(reason, "ann")


def test_who_has_drained_it() -> None:
    found = drains.record(" new cable ", "ann")
    assert found.by.startswith("ann@")
    assert found.reason == "new cable"


def test_hosts_without_a_container_are_refused() -> None:
    with pytest.raises(UsageError, match="only hosts that `setup` has set up"):
        drains.check(Inventory("x", "c", (Host("h1", "10.0.0.1"),)))
