"""A nvidia-smi that says what a test wants, at the front of PATH."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

GPUS = tuple(f"GPU-{number}d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77" for number in range(4))


@dataclass(frozen=True)
class Smi:
    """Its answers are files, so that they can change while a test runs."""

    folder: Path

    def gpus(self, uuids: Sequence[str], memory: Sequence[int] = (), models: Sequence[str] = ()) -> None:
        """Have so many GPUs, with so much memory in use (MiB), 4 where nothing is said; NVIDIA A100s likewise."""
        used = [*memory, *[4] * len(uuids)]
        named = zip(uuids, [*models, *["NVIDIA A100"] * len(uuids)], strict=False)
        listing = "".join(f"GPU {number}: {model} (UUID: {uuid})\n" for number, (uuid, model) in enumerate(named))
        (self.folder / "list").write_text(listing, encoding="ascii")
        rows = "".join(f"{uuid}, {mib}\n" for uuid, mib in zip(uuids, used, strict=False))
        (self.folder / "memory").write_text(rows, encoding="ascii")
        (self.folder / "processes").touch()

    def processes(self, *rows: tuple[str, int, str]) -> None:
        """Have these on the GPUs: UUID, process number, name."""
        text = "".join(f"{uuid}, {pid}, {name}, 1024\n" for uuid, pid, name in rows)
        (self.folder / "processes").write_text(text, encoding="utf-8")

    def topology(self, matrix: str) -> None:
        """Have them linked so."""
        (self.folder / "topology").write_text(matrix, encoding="utf-8")

    def fail(self) -> None:
        (self.folder / "fail").touch()

    @property
    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return log.read_text(encoding="ascii").splitlines() if log.exists() else []


_PROGRAM = """#!/bin/sh
cd "{folder}"
echo "$1" >>calls
[ ! -e fail ] || {{ echo 'GPU is lost'; exit 15; }}
case $1 in
  -L) cat list ;;
  --query-gpu=uuid,memory.used) cat memory ;;
  --query-gpu=uuid,ecc.errors.uncorrected.volatile.total) cat errors ;;
  --query-compute-apps=gpu_uuid,pid,process_name,used_memory) cat processes ;;
  topo) cat topology ;;
  *) exit 2 ;;
esac
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """Put it there."""
    folder.mkdir()
    (folder / "nvidia-smi").write_text(_PROGRAM.format(folder=folder), encoding="utf-8")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Smi(folder)
