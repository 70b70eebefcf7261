"""Who uses the GPUs, by what nvidia-smi says."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.host import gpus
from taco_launch.agent.host.gpus import GpuClient, GpuUse
from taco_launch.core.errors import HostError
from tests.support.smi import GPUS, Smi, install


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    return install(tmp_path / "smi", monkeypatch)


def test_the_gpus_are_named_in_the_drivers_order(smi: Smi) -> None:
    smi.gpus(tuple(reversed(GPUS)))
    assert gpus.listed(needed=True) == tuple(reversed(GPUS))


def test_a_gpu_without_a_uuid_is_one_all_the_same(smi: Smi) -> None:
    smi.gpus(())
    (smi.folder / "list").write_text("GPU 0: Tesla K80\nGPU 1: Tesla K80 (UUID: GPU-1)\n", encoding="ascii")
    assert gpus.listed(needed=True) == ("slot-0", "GPU-1")


def test_a_gpu_that_is_divided_says_so_in_its_model(smi: Smi) -> None:
    smi.gpus(())
    (smi.folder / "list").write_text(
        "GPU 0: NVIDIA A100 (80 GB) (UUID: GPU-0)\nGPU 1: NVIDIA A100 (80 GB) (UUID: GPU-1)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n  MIG 1g.10gb     Device  1: (UUID: MIG-2)\n"
        "GPU 2: NVIDIA A100 (80 GB) (UUID: GPU-2)\n",
        encoding="ascii",
    )
    plain = "NVIDIA A100 (80 GB)"
    expected = (
        gpus.GpuIdentity("GPU-0", plain),
        gpus.GpuIdentity("GPU-1", f"{plain} MIG"),
        gpus.GpuIdentity("GPU-2", plain),
    )
    assert gpus.found(needed=True) == expected


def test_nobody_knows(smi: Smi) -> None:
    smi.fail()
    assert gpus.listed(needed=False) is None
    with pytest.raises(HostError, match="nvidia-smi -L: exit 15: GPU is lost"):
        gpus.listed(needed=True)
    with pytest.raises(HostError, match="exit 15: GPU is lost"):
        gpus.used()


def test_who_uses_them(smi: Smi) -> None:
    smi.gpus(GPUS[:2], (900, 3))
    smi.processes((GPUS[1], 7, "a, b"), (GPUS[1], 8, "[Not Found]"))
    assert gpus.used() == {
        GPUS[0]: GpuUse((), 900),
        GPUS[1]: GpuUse((GpuClient(7, "a, b"), GpuClient(8, "[Not Found]")), 3),
    }


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (GpuUse((), 1023), ""),
        (GpuUse((), None), ""),
        (GpuUse(), ""),
        (GpuUse((), 1024), "with 1024 MiB of its memory in use by a process that is not visible here"),
        (GpuUse((GpuClient(2**22 + 1, "/opt/conda/bin/python"),), 5), "used by process 4194305 (python)"),
        (
            GpuUse((GpuClient(2**22 + 1, "[Not Found]"), GpuClient(2**22 + 2, ""))),
            "used by processes 4194305 ({0}), 4194306 ({0})".format("name not reported by nvidia-smi"),
        ),
    ],
)
def test_in_words(use: GpuUse, words: str) -> None:
    assert use.describe() == words


def test_a_process_is_told_with_its_user() -> None:
    assert GpuUse((GpuClient(os.getppid(), "bash"),)).describe().startswith(f"used by process {os.getppid()} (bash of ")


def test_a_gpu_that_is_not_listed_any_more() -> None:
    assert gpus.describe("GPU-1", {}) == "not listed by nvidia-smi"


_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_NAMES = st.text(st.characters(codec="utf-8", exclude_characters=_LINE_ENDS))
_ROWS = st.lists(st.tuples(st.sampled_from(GPUS), st.integers(1, 2**22), _NAMES, st.integers(0, 10**6)), max_size=8)


@given(_ROWS)
def test_every_process_is_read_whatever_its_name(rows: list[tuple[str, int, str, int]]) -> None:
    found = gpus.parse_use("".join(f"{uuid}, {pid}, {name}, {mib}\n" for uuid, pid, name, mib in rows), "")
    read = [(uuid, each.pid, each.name) for uuid, use in found.items() for each in use.processes]
    assert sorted(read) == sorted((uuid, pid, name.strip()) for uuid, pid, name, _mib in rows)


@given(st.text(), st.text())
def test_anything_else_makes_no_trouble(processes: str, memory: str) -> None:
    gpus.parse_use(processes, memory)
