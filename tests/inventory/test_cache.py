"""What is kept of a text that was read: only for the code that read it."""

import os
from pathlib import Path

import pytest

from taco_launch.inventory import cache
from taco_launch.model.host.hosts import Host


@pytest.mark.parametrize("changed", ["inventory/load.py", "inventory/schema/schema.py", "model/host/hosts.py"])
def test_a_change_of_the_code_that_reads_it_has_it_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    for name in ("inventory/load.py", "inventory/schema/schema.py", "launch/plan.py", "model/host/hosts.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "inventory" / "cache.py"))
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
