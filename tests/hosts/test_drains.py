"""Records of drains: what a reason may be, and which hosts can be drained."""

import json
from pathlib import Path

import pytest

from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.facts.reports.health.verdict import FAULT, OK, WARNING, HealthVerdict
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.slots import Override
from taco_launch.hosts import check_history, drains
from taco_launch.hosts.fanout import Answer, Fanout
from tests.support.simulated_setup import Simulated


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


@pytest.mark.parametrize(
    ("text", "reason"), [("", None), ('{"by": "ann@x", "since": 1.0, "reason": "cable"}', "cable"), ("{", "cannot be")]
)
def test_the_record_of_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str | None) -> None:
    path = tmp_path / "drain.json"
    if text:
        path.write_text(text)
    monkeypatch.setattr(drains, "DRAIN", str(path))
    (answer,) = drains.read(Fanout((Simulated("gpu1"),)))
    assert reason in answer.value.reason if reason and answer.value else answer == Answer("gpu1")


def test_in_spite_of_what_a_host_was_opened_is_kept_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DRAIN", "OVERRIDE"):
        monkeypatch.setattr(drains, name, str(tmp_path / name))
    fanout, override = Fanout((Simulated("gpu1"),)), Override("ann@x", 1.0, (("Xid", "Xid 79"),))
    (tmp_path / "DRAIN").touch()
    assert drains.overrides(fanout) == (Answer("gpu1"),)
    assert drains.resume(fanout, lambda: None, {"gpu1": override}) == (Answer("gpu1"),)
    assert not (tmp_path / "DRAIN").exists()
    drains.resume(fanout, lambda: None)
    assert drains.overrides(fanout) == (Answer("gpu1", override),), "only a person ends it"
    (tmp_path / "OVERRIDE").write_text("{")
    (answer,) = drains.overrides(fanout)
    assert answer.error
    assert "cannot be read" in answer.error.message
    drains.resume(fanout, lambda: None, {})
    assert not (tmp_path / "OVERRIDE").exists()


def test_a_record_that_is_kept_back_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "DRAIN", str(tmp_path))
    (answer,) = drains.read(Fanout((Simulated("gpu1"),)))
    assert answer.error
    assert "was not read" in answer.error.message


class FullDisk(Simulated):
    """A host whose disk has no room while a copy of py-spy lies there."""

    folder = Path()

    def put(self, data: bytes, path: str, mode: int = 0o600, *, sudo: bool = False) -> None:
        if any(self.folder.glob("py-spy-*")):
            raise HostError(f"{self.name}: cannot write {path}: No space left on device")
        super().put(data, path, mode, sudo=sudo)


def test_a_host_with_a_full_disk_can_be_drained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "DRAIN", str(tmp_path / "drain.json"))
    (tmp_path / "py-spy-0.4").touch()
    host = FullDisk("gpu1")
    host.folder = tmp_path
    assert drains.drain(Fanout((host,)), drains.record("full", "ann"), lambda: None) == (Answer("gpu1"),)
    assert '"reason": "full"' in (tmp_path / "drain.json").read_text()


# --- The history of checks: which lines count, and how long the file may become


HOSTS = (
    ("gpu1", (HealthVerdict("Xid", FAULT, "Xid 79", ""), HealthVerdict("clock", WARNING, "2 s", ""))),
    ("gpu2", (HealthVerdict("Xid", OK, "none", ""),)),
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "checks.jsonl"


def test_the_faults_of_this_cluster_alone(file: Path) -> None:
    assert check_history.earlier("a") == ()
    check_history.add("a", HOSTS)
    check_history.add("b", HOSTS[1:])
    with file.open("a") as more:
        more.write('{"time": 1, "hosts": {"gpu1": [["fault", "Xid", "of an older version"]]}}\n')
        more.write('[]\n{"cluster": "a"}\n{"cluster": "a", "hosts": {"gpu1": [1]}}\nbroken\n')
    (entry,) = check_history.earlier("a")
    assert entry.faults == {"gpu1": frozenset(("Xid",)), "gpu2": frozenset()}
    assert entry.judged == {"Xid", "clock"}
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    file.chmod(0o644)  # as earlier versions left it
    check_history.add("b", HOSTS[1:])
    assert oct(file.stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize(("width", "most", "least"), [(1000, 1 << 20, 400), (300_000, 10 * 301_000, 10)])
def test_the_newest_lines_stay(file: Path, width: int, most: int, least: int) -> None:
    for number in range(1500 if width == 1000 else 14):
        check_history.add(str(number), (("gpu1", (HealthVerdict("Xid", FAULT, "x" * width, ""),)),))
        assert file.stat().st_size <= most + 1000 + width * (number < 14)
    kept = [int(json.loads(line)["cluster"]) for line in file.read_text().splitlines()]
    assert len(kept) >= least
    assert kept == list(range(kept[0], number + 1))
    assert kept[0] > 0
