"""Slots are GPUs where nvidia-smi lists some, and cores otherwise."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taco_launch.agent.host import facts, gpus
from taco_launch.core.errors import HostError

TWO = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-c2e1d1b6-3f0e-4e0e-9b1a-0a4c6c7d2f11)"""
MIG = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 1g.5gb Device 0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb Device 1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("listing", "code", "count"),
    [(TWO, 0, 2), (MIG, 0, 1), ("No devices found.", 0, 0), ("No devices were found", 6, 0)],
    ids=["two", "mig", "none", "none-by-code"],
)
def test_gpus(tools: Path, listing: str, code: int, count: int) -> None:
    tool = tools / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\n[ \"$*\" = -L ] || exit 99\ncat <<'END'\n{listing}\nEND\nexit {code}\n", encoding="ascii"
    )
    tool.chmod(0o755)
    assert len(gpus.listed(needed=True) or ()) == count
    assert facts.host(count_slots=True).slots == (count or max(2, len(os.sched_getaffinity(0))))
    assert facts.host(count_slots=True).gpus == count


@pytest.mark.parametrize("code", [9, 15])
def test_a_tool_that_fails_is_no_host_without_gpus(tools: Path, code: int) -> None:
    tool = tools / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit {code}\n", encoding="ascii")
    tool.chmod(0o755)
    with pytest.raises(HostError, match=f"nvidia-smi -L: exit {code}: NVIDIA-SMI has failed") as caught:
        facts.host(count_slots=True)
    assert "-H HOST:N" in (caught.value.hint or "")
    # Where the slots are declared it is not a reason to start nothing.
    found = facts.host(count_slots=False)
    assert (found.slots, found.gpus) == (None, None)


def test_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.listed(needed=True) == ()
    assert (facts.host(count_slots=True).slots or 0) >= 2


def test_a_tool_that_hangs(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_SMI_SECONDS", 0.1)
    (tools / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n", encoding="ascii")
    (tools / "nvidia-smi").chmod(0o755)
    with pytest.raises(HostError, match=r"nvidia-smi -L: .* timed out"):
        gpus.listed(needed=True)


def test_the_version_is_that_of_the_programs_open_mpi(tools: Path) -> None:
    def said(text: str, code: int = 0) -> str | None:
        (tools / "mpirun").write_text(f"#!/bin/sh\n[ \"$*\" = --version ] || exit 99\necho '{text}'\nexit {code}\n")
        (tools / "mpirun").chmod(0o755)
        return facts.openmpi("mpirun", {"PATH": f"{tools}:/bin"})

    assert said("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...") == "4.1.4"
    assert said("mpirun.real (Open MPI) 4.0.7rc2") == "4.0.7"
    assert said("prterun (Open MPI) 5.0.11", 1) == "5.0.11"
    assert said("mpirun 1.0") is None
    for other in ("Intel(R) MPI Library for Linux* OS, Version 2021.5", "HYDRA build details:\n    Version: 4.0.2"):
        with pytest.raises(HostError, match="is not Open MPI") as caught:
            said(other)
        assert other.splitlines()[0] in caught.value.message
    for program in ("mpirun", "/no/such/mpirun"):
        with pytest.raises(HostError, match=f"{program}: not found on ") as caught:
            facts.openmpi(program, {"PATH": "/nowhere"})
        assert "openmpi-bin" in (caught.value.hint or "")


_FORBID = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
# BPF: load the number of the system call; process_vm_readv is answered with EPERM, all else allowed (seccomp(2)).
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, {number}), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, program) == 0
from taco_launch.agent.host import facts, gpus
print(facts.single_copy())
"""


def test_whether_ranks_may_read_each_others_memory() -> None:
    number = {"x86_64": 310, "aarch64": 270}.get(platform.machine())
    if number is None:
        pytest.skip("cannot: the number of process_vm_readv(2) on this machine is not known here")
    assert facts.single_copy() is True
    said = subprocess.run(
        [sys.executable, "-c", _FORBID.format(number=number)], capture_output=True, text=True, check=True
    )
    assert said.stdout == "False\n"


def test_the_boot_has_a_name() -> None:
    assert re.fullmatch(r"[0-9a-f-]{36}\.[0-9]+", facts.boot_id())
    assert facts.boot_id() == facts.boot_id()
    boot, _dot, start = facts.boot_id().partition(".")
    assert facts.is_this_boot(f"{boot}.{start}")
    assert facts.is_this_boot(boot), "an agent of an earlier version has written it"
    assert not facts.is_this_boot(f"{boot}.{int(start) + 1}")
    assert not facts.is_this_boot(None)
