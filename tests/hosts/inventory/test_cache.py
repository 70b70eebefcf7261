"""What is kept of a text that was read: only for the code that read it."""

import os
from pathlib import Path

import pytest

from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts.inventory import cache


@pytest.mark.parametrize(
    "changed", ["hosts/inventory/load.py", "hosts/inventory/schema/schema.py", "core/model/host/hosts.py"]
)
def test_a_change_of_the_code_that_reads_it_has_it_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    for name in (
        "hosts/inventory/load.py",
        "hosts/inventory/schema/schema.py",
        "core/launch/plan.py",
        "core/model/host/hosts.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "hosts" / "inventory" / "cache.py"))
    read: list[bytes] = []
    found = Host("gpu1", "10.0.0.1")

    def slowly(text: bytes, _source: str) -> Host:
        read.append(text)
        return found

    def through() -> Host:
        return cache.through(Host, b"hosts", "a.yaml", {"XDG_CACHE_HOME": str(tmp_path / "cache")}, slowly)

    assert (through(), through(), len(read)) == (found, found, 1)
    os.utime(tmp_path / changed, (1, 1))
    assert (through(), len(read)) == (found, 2)
