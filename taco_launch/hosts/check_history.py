"""Keep the warnings and faults of checks: a line of JSON for each check, in checks.jsonl of this user's state folder."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from taco_launch.agent.store.folders import make_private, private, state_folder
from taco_launch.core.facts.reports.health.drain_plan import EarlierCheck
from taco_launch.core.facts.reports.health.judge import HostVerdicts
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, WARNING, without_age

_MOST_BYTES = 1 << 20
# However long they are, so many lines stay: a policy looks at no more.
_LEAST_LINES = 10


def add(cluster: str, hosts: Sequence[HostVerdicts]) -> None:
    """Add a check; the oldest lines are removed as soon as the file has more than 1 MiB.

    Raises:
        OSError: it cannot be written.
        TacoLaunchError: there is no state folder.
    """
    wrong = {
        host: [[each.level, each.name, without_age(each.text)] for each in verdicts if each.level in (FAULT, WARNING)]
        for host, verdicts in hosts
    }
    judged = sorted({each.name for _, verdicts in hosts for each in verdicts if each.level != NOT_POSSIBLE})
    entry = {"time": round(time.time()), "cluster": cluster, "judged": judged, "hosts": wrong}
    line = json.dumps(entry, ensure_ascii=False) + "\n"
    path = _path()
    make_private(path.parent)
    with open(path, "a", encoding="utf-8", errors="replace", opener=private) as file:
        os.fchmod(file.fileno(), 0o600)  # earlier versions created it readable for all
        file.write(line)
        size = file.tell()
    if size > _MOST_BYTES:
        _shorten(path)


def earlier(cluster: str) -> tuple[EarlierCheck, ...]:
    """Return the checks of a cluster, the oldest first; lines that cannot be read are left out.

    Raises:
        OSError: the file cannot be read.
        TacoLaunchError: there is no state folder.
    """
    try:
        lines = _path().read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(each for line in lines if (each := _faults(line, cluster)) is not None)


def _faults(line: str, cluster: str) -> EarlierCheck | None:
    try:
        entry = json.loads(line)
        if entry.get("cluster") != cluster:  # lines of older versions name none
            return None
        faults = {
            host: frozenset(name for level, name, _text in wrong if level == FAULT)
            for host, wrong in entry["hosts"].items()
        }
        return EarlierCheck(faults, frozenset(entry.get("judged", ())))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _shorten(path: Path) -> None:
    """Leave the newest lines, of half the limit together."""
    lines = path.read_bytes().splitlines(keepends=True)
    size = sum(map(len, lines))
    while len(lines) > _LEAST_LINES and size > _MOST_BYTES // 2:
        size -= len(lines.pop(0))
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with open(part, "wb", opener=private) as file:
        file.writelines(lines)
    part.replace(path)


def _path() -> Path:
    return state_folder(os.environ, os.geteuid()) / "checks.jsonl"
