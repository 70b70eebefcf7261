"""NCCL's lines, whatever stands around them and however they are cut; and the limits of what is kept."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.run.observed import NcclConnection, NcclHca, NcclLog, NcclProcess, SeenRun
from taco_launch.core.model.run.planned import NcclPlan, PlannedHost, PlannedTransport, RunPlan
from taco_launch.core.verify import nccl_log
from taco_launch.core.verify.compare import verify
from taco_launch.core.verify.nccl_lines import MOST_LINE, read
from taco_launch.core.verify.nccl_log import NcclReader, parse
from tests.support.whole_logs import VERSIONS, log_of

CHANNEL = "gpu1:7:8 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [receive] via NET/IB/0/GDRDMA"
GDR = NcclConnection(1, 8, "IB", "receive", 0, gdr=True)


def only(text: str) -> NcclProcess:
    found = parse(f"{text}\n")
    assert len(found.processes) == 1, found
    return found.processes[0]


@pytest.mark.parametrize(
    "before",
    [
        "",
        "\t",
        "[1,12]<stdout>:",
        "[12]<stderr>:",
        "Fri Nov 20 15:18:12 2026[1,0]<stdout>:",
        "gpu1/12 | ",
        "[2026-11-20 15:18:12] ",
        "worker-0: ",
        "2026-11-20T15:18:12.208-07:00",
        "(RayWorker pid=7) ",
        "[rank0]:",
    ],
)
def test_what_stands_before_a_line(before: str) -> None:
    found = only(before + CHANNEL)
    assert (found.host, found.pid, found.connections) == ("gpu1", 7, (GDR,))


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("via NET/IB/3(5)/GDRDMA/Shared", NcclConnection(1, 8, "IB", "receive", 3, gdr=True)),
        ("via NET/IB/3/GDRDMA(PCI)", NcclConnection(1, 8, "IB", "receive", 3, gdr=True)),
        ("via NET/IBext_v8/2", NcclConnection(1, 8, "IB", "receive", 2)),
        ("via NET/AWS Libfabric/1/GDRDMA", NcclConnection(1, 8, "OFI", "receive", 1, gdr=True)),
        ("via NET/Socket/0", NcclConnection(1, 8, "Socket", "receive", 0)),
        ("via NET/FastSocket/0/Shared", NcclConnection(1, 8, "Socket", "receive", 0)),
    ],
)
def test_networks(end: str, expected: NcclConnection) -> None:
    assert only(f"gpu1:7:8 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [receive] {end}").connections == (expected,)


@pytest.mark.parametrize(
    ("end", "transport", "detail"),
    [
        ("via P2P/IPC", "P2P", "IPC"),
        ("via P2P/IPC/read", "P2P", "IPC/read"),
        ("via P2P/CUMEM", "P2P", "CUMEM"),
        ("via P2P/direct pointer", "P2P", "direct pointer"),
        ("via P2P/indirect/3[1a000]", "P2P", "indirect/3[1a000]"),
        ("via SHM/direct/direct", "SHM", "direct/direct"),
        ("via SHM/CE/direct", "SHM", "CE/direct"),
    ],
)
def test_within_a_host(end: str, transport: str, detail: str) -> None:
    found = only(f"gpu1:7:8 [0] NCCL INFO Channel 00 : 1[1a000] -> 0[1c000] {end}").connections
    assert found == (NcclConnection(1, 0, transport, detail=detail),)
    assert not found[0].is_network


def test_merged_ports_ports_with_rails_and_sharp() -> None:
    text = "gpu1:7:8 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1+mlx5_1:1/RoCE [1]mlx5_2:1/IB/SHARP [2]mlx5_3:2/IB:0:1 [RO]; OOB eth0:10.0.0.1<0>"
    assert only(text).hcas == (
        NcclHca(0, "mlx5_0", 1, "RoCE"),
        NcclHca(0, "mlx5_1", 1, "RoCE"),
        NcclHca(1, "mlx5_2", 1, "IB"),
        NcclHca(2, "mlx5_3", 2, "IB"),
    )


def test_collnet_nvls_and_warnings() -> None:
    found = only(
        "gpu1:7:8 [0] NCCL INFO CollNet 00/1 : 3 [receive] via COLLNET/SHARP/0/GDRDMA\n"
        "gpu1:7:8 [0] NCCL INFO Connected NVLS tree\n"
        "gpu1:7:8 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n"
        "[2026-01-01 10:00:00] gpu1:7:8 [0] misc/x.cc:1 (f) NCCL WARN Two\n"
    )
    assert found.connections == (NcclConnection(3, 3, "COLLNET", "receive", 0, gdr=True),)
    assert found.nvls is True
    assert found.warnings == ("Failed to open libibverbs.so[.1]", "Two")


def test_two_ranks_in_one_line() -> None:
    """mpirun writes what it reads as it comes: one rank's line may begin within another's."""
    other = CHANNEL.replace("gpu1:7:8 [0]", "gpu2:17:18 [1]")
    for cut in range(len("gpu1:7:8 [0] NCCL INFO "), len(CHANNEL)):
        found = parse(f"{CHANNEL[:cut]}{other}\n")
        assert found.torn == 1
        told = {process.host: process.connections for process in found.processes}
        assert told.pop("gpu1", ()) == ()
        assert (GDR,) in told.values(), (cut, told)


def test_the_version_with_and_without_a_prefix() -> None:
    assert only(f"NCCL version 2.18.5+cuda12.2\n{CHANNEL}").version == "2.18.5"
    assert only(f"{CHANNEL}\ngpu1:7:8 [0] NCCL INFO NCCL version 2.24.3+cuda12.2").version == "2.24.3"
    assert only(f"[1,0]<stdout>:NCCL version 2.5.6+cuda10.2\n{CHANNEL}").version == "2.5.6"


def test_a_last_line_without_an_end_may_lack_something() -> None:
    for line in (
        CHANNEL,
        "gpu1:7:8 [0] NCCL INFO Using network IB",
        "gpu1:7:8 [0] NCCL INFO NCCL_IB_HCA set to mlx5_1",
    ):
        (found,) = parse(line).processes
        assert found == NcclProcess("gpu1", 7)
    (found,) = parse("gpu1:7:8 [0] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1 - Init COMPLETE").processes
    assert found.communicators


def test_a_number_that_may_lack_digits_is_not_believed() -> None:
    for line in (
        "gpu1:7:8 [0] NCCL INFO comm 0x1 rank 1 nranks 1",
        "gpu1:7:8 [0] NCCL INFO comm 0x1 rank 1 nranks 16 cudaDev 0 busId 1a000 - Init",
        "gpu1:7:8 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [receive] via NET/IB/",
        "gpu1:7:8 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/Ro",
    ):
        found = only(line)
        assert (found.communicators, found.connections, found.hcas) == ((), (), ())


@given(st.text(), st.text())
def test_any_text_is_read_to_its_end(one: str, other: str) -> None:
    assert isinstance(parse(one + CHANNEL + other), NcclLog)
    assert isinstance(parse("NCCL INFO " + one + "\n" + other), NcclLog)


@given(st.sampled_from(VERSIONS), st.lists(st.integers(1, 400), max_size=40))
def test_pieces_give_what_the_whole_gives(version: str, sizes: list[int]) -> None:
    text = log_of(version)
    reader = NcclReader()
    begin = 0
    for size in sizes:
        reader.feed(text[begin : begin + size])
        begin += size
    reader.feed(text[begin:])
    assert reader.log() == parse(text)


def test_what_is_kept_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log, "MOST_PROCESSES", 3)
    found = parse("\n".join(f"gpu1:{pid}:1 [0] NCCL INFO Using network IB" for pid in range(10)))
    assert (len(found.processes), found.cut) == (3, True)
    monkeypatch.setattr(nccl_log, "MOST_CHARACTERS", 100)
    assert parse(f"{CHANNEL}\n" * 5).cut
    many = only(
        "\n".join(
            f"gpu1:7:8 [0] NCCL INFO Channel 00/0 : {rank}[1] -> 8[0] [receive] via NET/IB/0" for rank in range(2)
        )
    )
    assert len(many.connections) == 1  # the second one is beyond the limit


def test_a_long_line_is_passed_over() -> None:
    assert read("gpu1:7:8 [0] NCCL INFO " + "x" * MOST_LINE)[0].torn
    reader = NcclReader()
    for _ in range(3):
        reader.feed("x" * (1 << 20))
    assert reader.log().torn


def test_big_logs_take_linear_time() -> None:
    """A line of many parts, which a form that tries all ways to part it would never get through."""
    hard = [
        "gpu1:7:8 [0] NCCL INFO Bootstrap : Using" + " eth0:1.2.3.4<0>" * 200 + "!",
        "gpu1:7:8 [0] NCCL INFO NET/IB : Using" + " [0]mlx5_0:1/RoCE" * 200 + "!",
        "gpu1:7:8 [0] NCCL INFO comm 0x1 rank 1 nranks 1 cudaDev 0" + " color 1 key 1" * 250,
        "gpu1:7:8 [0] NCCL INFO NET/IB: Port 1 GID" + " Port 1 GID 3 (" * 250,
        "gpu1:7:8 " * 450,
        "1:1:1 " * 600 + "NCCL INFO x",
    ]
    begun = time.process_time()
    parse("\n".join(hard * 20))
    assert time.process_time() - begun < 5


# --- Captured logs of NCCL, each held against a plan: `cases/NAME.txt`, with its source, the plan and the verdict in `NAME.json`
#
# The logs are short excerpts of public ones, so none of them is enough for True: `test_compare.py` has whole ones.


FOLDER = Path(__file__).parent / "cases"
CASES = sorted(FOLDER.glob("*.json"))


def planned(told: Any) -> RunPlan:
    """Return the plan of a case; each host has the next ranks."""
    hosts, begin = [], 0
    for host in told["hosts"]:
        ranks = tuple(range(begin, begin + host["ranks"]))
        begin += host["ranks"]
        hcas = tuple(host["hcas"]) if "hcas" in host else None
        hosts.append(PlannedHost(host["name"], ranks, hcas=hcas, interface=host.get("interface")))
    nccl = NcclPlan(PlannedTransport(told["transport"]), told["gdr"], told["one_world"])
    return RunPlan(tuple(hosts), nccl)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(case: Path) -> None:
    expected = json.loads(case.read_text("utf-8"))
    found = verify(planned(expected["plan"]), SeenRun(nccl=parse(case.with_suffix(".txt").read_text("utf-8"))))
    assert found.status.value == expected["status"], found.why
    if "mismatch" in expected:
        assert found.mismatch is not None
        told = expected["mismatch"]
        assert (found.mismatch.kind, found.mismatch.host, found.mismatch.rank, found.mismatch.seen) == (
            told["kind"],
            told["host"],
            told["rank"],
            told["seen"],
        )
        assert found.mismatch.cause
        assert found.mismatch.next_step


def test_each_case_has_a_log_a_source_and_nothing_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {case.stem + end for case in CASES for end in (".json", ".txt")}
    assert all(json.loads(case.read_text("utf-8"))["source"] for case in CASES)
    assert len(CASES) > 12 + 15
