"""A plan held against whole runs: True for each version of NCCL, and the first mismatch with host, rank, cause and next step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.run.observed import InterfaceTraffic, NcclLog, NcclProcess, SeenRun
from taco_launch.core.model.run.planned import PlannedTransport, RunPlan
from taco_launch.core.model.run.verified import Mismatch, Truth
from taco_launch.core.verify.compare import verify
from taco_launch.core.verify.finding import matching
from taco_launch.core.verify.nccl_checks import of_gdr
from taco_launch.core.verify.nccl_log import NcclReader, parse, together
from tests.support.whole_logs import HOSTS, VERSIONS, lines_of, log_of, plan, seen


def mismatch(of: RunPlan, run: SeenRun) -> Mismatch:
    found = verify(of, run)
    assert found.status is Truth.FALSE, found
    assert found.mismatch is not None
    assert found.why == str(found.mismatch)
    assert found.mismatch.cause.endswith(".")
    return found.mismatch


def first(of: RunPlan, run: SeenRun) -> tuple[str, str, int | None, str]:
    found = mismatch(of, run)
    return found.kind, found.host, found.rank, found.seen


def ranks(run: SeenRun, **fields: object) -> SeenRun:
    return replace(run, ranks=tuple(replace(one, **fields) for one in run.ranks))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_as_planned(version: str) -> None:
    found = verify(plan(), seen(log_of(version)))
    assert found.status is Truth.TRUE, found.why
    assert "GPUDirect RDMA" in found.checked
    assert "interface" in found.checked


@pytest.mark.parametrize("version", VERSIONS)
def test_sockets_instead_of_rdma(version: str) -> None:
    found = mismatch(plan(), seen(log_of(version, network="Socket")))
    assert (found.kind, found.host, found.rank, found.seen) == ("transport", "gpu1", 0, "NET/Socket")
    assert "no RDMA device on gpu1" in found.cause.replace("NCCL finds ", "")
    assert "facts gpu1 --only rdma" in found.next_step


@pytest.mark.parametrize("version", VERSIONS)
def test_gdr_off_on_one_host(version: str) -> None:
    lines = [line for rank in range(4) for line in lines_of(version, rank, gdr=rank < 2)]
    found = mismatch(plan(), seen("\n".join(lines)))
    assert (found.kind, found.host, found.rank) == ("GPUDirect RDMA", "gpu2", 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_separate_runs_of_one_rank(version: str) -> None:
    """Each rank's own NCCL has a communicator of one rank, while the launcher's variables say four."""
    lines = [
        line.replace(f"rank {rank} nranks", "rank 0 nranks")
        for rank in range(4)
        for line in lines_of(version, rank, world=1)
    ]
    found = first(plan(), seen("\n".join(lines)))
    assert found == ("world size", "gpu1", None, "4 separate runs of 1 rank (NCCL's nranks)")
    said = first(replace(plan(), nccl=None), ranks(seen(""), world_size=1, world_source="hvd.size()"))
    assert said == ("world size", "gpu1", None, "4 separate runs of 1 rank (hvd.size())")


def test_communicators_of_one_rank_of_a_run_that_is_one_world() -> None:
    """Some programs make groups of one rank before others: ranks that have connections to other hosts are one world."""
    lines = [line for rank in range(4) for line in lines_of("2.21.5", rank, world=1)]
    run = ranks(seen("\n".join(lines)), sockets=(InterfaceTraffic("eth0", 3, 10**6, ("10.0.0.2",)),))
    of = plan()
    assert of.nccl is not None
    found = verify(replace(of, nccl=replace(of.nccl, one_world=False)), run)
    assert found.status is Truth.UNKNOWN
    assert "communicators of one rank only" in found.why


def test_a_host_that_was_dropped() -> None:
    run = seen("")
    half = replace(run, ranks=tuple(replace(one, world_size=2) for one in run.ranks[:2]))
    assert first(plan(), half) == ("world size", "gpu1", 0, "2 (OMPI_COMM_WORLD_SIZE)")


def test_ranks_elsewhere_twice_and_too_many() -> None:
    run = seen(log_of("2.21.5"))
    swapped = replace(run, ranks=tuple(replace(one, host=HOSTS[one.rank % 2]) for one in run.ranks))
    assert first(plan(), swapped) == ("host", "gpu2", 1, "gpu2")
    twice = replace(run, ranks=(*run.ranks, replace(run.ranks[0], host="gpu2")))
    assert first(plan(), twice) == ("number of ranks", "gpu1 and gpu2", 0, "2")
    more = replace(run, ranks=(*run.ranks, replace(run.ranks[0], rank=4)))
    assert first(plan(), more)[:3] == ("number of ranks", "gpu1", 4)


def test_where_nccl_says_that_a_rank_is() -> None:
    lines = [line for rank in range(4) for line in lines_of("2.21.5", rank, host=HOSTS[rank % 2])]
    assert first(plan(), seen("\n".join(lines))) == ("host", "gpu2", 1, "gpu2")


@pytest.mark.parametrize(
    ("planned", "all_gpus", "value", "expected"),
    [
        (("GPU-a", "GPU-b"), False, "GPU-a,GPU-b", None),
        (("GPU-a", "GPU-b"), False, "GPU-b", None),
        (("0", "3"), False, "3", None),
        (("GPU-a", "GPU-b"), False, "GPU-b,GPU-c", "GPU-b,GPU-c"),
        (("0", "3"), False, "1", "1"),
        (("GPU-a",), False, None, "all GPUs of the host"),
        (("GPU-a",), True, None, None),
        (("GPU-a",), True, "0", None),
    ],
)
def test_gpus_that_a_rank_sees(
    planned: tuple[str, ...], all_gpus: bool, value: str | None, expected: str | None
) -> None:
    of = plan()
    hosts = tuple(replace(host, gpus=planned, all_gpus=all_gpus) for host in of.hosts)
    run = seen(log_of("2.21.5"))
    env = () if value is None else (("CUDA_VISIBLE_DEVICES", value),)
    run = replace(run, ranks=tuple(replace(one, env=(*(one.env or ()), *env)) for one in run.ranks))
    if expected is None:
        assert "GPUs" in verify(replace(of, hosts=hosts), run).checked
    else:
        assert first(replace(of, hosts=hosts), run) == ("GPUs", "gpu1", 0, expected)


def test_gpus_by_number_where_the_job_has_them_by_uuid() -> None:
    hosts = tuple(replace(host, gpus=("GPU-a",)) for host in plan().hosts)
    of = replace(plan(), hosts=hosts, env=())
    found = verify(of, ranks(seen(log_of("2.21.5")), env=(("CUDA_VISIBLE_DEVICES", "0"),)))
    assert found.status is Truth.UNKNOWN
    assert "rank 0-3 names GPUs by number" in found.why
    unread = verify(of, ranks(seen(log_of("2.21.5")), env=None))
    assert "CUDA_VISIBLE_DEVICES of rank 0-3 not known" in unread.why


def test_two_ranks_on_one_gpu() -> None:
    text = log_of("2.21.5").replace("busId 1c000", "busId 1a000")
    assert first(plan(), seen(text)) == ("GPUs", "gpu1", 1, "the GPU of rank 0 (1a000)")


def test_software_and_environment_of_one_host() -> None:
    run = seen(log_of("2.21.5"))
    old = replace(run.ranks[3], libraries=(("libmpi", "80.0.5"), ("libnccl", "2.21.5")))
    found = mismatch(plan(), replace(run, ranks=(*run.ranks[:3], old)))
    assert str(found) == "rank 3 on gpu2: library libmpi: planned 40.30.4 as on gpu1, is 80.0.5"
    without = replace(run, ranks=(*run.ranks[:3], replace(old, libraries=())))
    assert verify(plan(), without).status is Truth.TRUE, "a rank that has not loaded it, as one of another program"
    bare = replace(run, ranks=(*run.ranks[:3], replace(run.ranks[3], env=())))
    assert first(plan(), bare) == ("environment", "gpu2", 3, "no NCCL_IB_GID_INDEX")
    mixed = log_of("2.21.5").replace("NCCL version 2.21.5", "NCCL version 2.19.4", 0)
    lines = [line for rank in range(4) for line in lines_of("2.30.7" if rank < 2 else "2.26.6", rank)]
    assert first(plan(), seen("\n".join(lines)))[:2] == ("version of NCCL", "gpu2")
    assert verify(plan(), seen(mixed)).status is Truth.TRUE


def test_hcas_gid_and_interface_of_nccl() -> None:
    text = log_of("2.21.5")
    assert first(plan(), seen(text.replace("GID 3", "GID 1")))[:2] == ("GID index", "gpu1")
    assert first(plan(), seen(text.replace(" [1]mlx5_1:1/RoCE", ""))) == ("HCAs", "gpu1", 0, "mlx5_0")
    assert first(plan(), seen(text.replace("eth0", "docker0"))) == (
        "interface",
        "gpu1",
        0,
        "docker0 (NCCL's bootstrap)",
    )


def test_the_interface_of_mpi_and_gloo() -> None:
    of = replace(plan(), nccl=None)
    right, wrong = (
        InterfaceTraffic("eth0", 4, 5 << 20, ("10.0.0.2",)),
        InterfaceTraffic("docker0", 2, 1 << 20, ("172.17.0.2",)),
    )
    assert verify(of, ranks(seen(""), sockets=(right,))).status is Truth.TRUE
    assert verify(of, ranks(seen(""), sockets=(right, wrong))).status is Truth.TRUE  # the data goes where it should
    assert first(of, ranks(seen(""), sockets=(wrong,))) == (
        "interface",
        "gpu1",
        0,
        "docker0 (1048576 bytes, 0 on eth0)",
    )
    little = replace(wrong, bytes=1000)
    assert verify(of, ranks(seen(""), sockets=(little,))).status is Truth.TRUE
    for unknown in (None, (), (replace(wrong, bytes=None),), (replace(right, interface=""),)):
        assert verify(of, ranks(seen(""), sockets=unknown)).status is Truth.UNKNOWN


def test_gdr_that_was_turned_off_on_purpose() -> None:
    assert first(plan(gdr=False), seen(log_of("2.21.5")))[0] == "GPUDirect RDMA"
    assert verify(plan(gdr=False), seen(log_of("2.21.5", gdr=False))).status is Truth.TRUE
    assert verify(plan(gdr=None), seen(log_of("2.21.5", gdr=False))).status is Truth.TRUE


@pytest.mark.parametrize("variable", [("NCCL_NET_GDR_LEVEL", "LOC"), ("NCCL_IB_CUDA_SUPPORT", "0")])
def test_the_variable_that_turns_gpudirect_rdma_off_is_named(variable: tuple[str, str]) -> None:
    cause = of_gdr(NcclProcess("gpu1", 1, env=(variable,)), "gpu1")
    assert cause.cause == f"{variable[0]}={variable[1]} turns GPUDirect RDMA off on gpu1."
    assert cause.next_step.startswith(f"Remove {variable[0]} from")


def test_sockets_as_planned() -> None:
    assert verify(plan(PlannedTransport.SOCKET, None), seen(log_of("2.21.5", network="Socket"))).status is Truth.TRUE
    assert first(plan(PlannedTransport.SOCKET, None), seen(log_of("2.21.5")))[3] == "NET/IB"


def test_a_line_that_was_cut_is_no_proof_of_missing_gdr() -> None:
    text = log_of("2.21.5").replace("[receive] via NET/IB/0/GDRDMA\n", "[receive] via NET/IB/0\n", 1)
    found = verify(plan(), seen(text))
    assert found.status is Truth.UNKNOWN
    assert "both used and not used" in found.why


def test_a_log_that_is_too_long_is_never_true() -> None:
    run = seen(log_of("2.21.5"))
    cut = replace(run, nccl=replace(run.nccl, cut=True))
    assert verify(plan(), cut).status is Truth.UNKNOWN


def test_logs_of_hosts_together() -> None:
    parts = [parse("\n".join(lines_of("2.21.5", rank)) + "\n") for rank in range(4)]
    run = replace(seen(""), nccl=together(parts))
    assert verify(plan(), run).status is Truth.TRUE
    assert together([]) == NcclLog()


@given(st.data())
def test_a_part_of_a_log_is_never_true(data: st.DataObject) -> None:
    """Every rank says only once that its communicator is complete, and every line without which it is another log counts."""
    lines = log_of(data.draw(st.sampled_from(VERSIONS))).splitlines()
    keep = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    kept = [line for line, is_kept in zip(lines, keep, strict=True) if is_kept]
    missing = [line for line in lines if line not in kept]
    found = verify(plan(), seen("\n".join(kept)))
    if any("Init COMPLETE" in line for line in missing):
        assert found.status is not Truth.TRUE
    assert found.status is not Truth.FALSE, found.why


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_rank_has_not_said_is_not_verified(version: str) -> None:
    """Each rank has to have named its HCAs and its network, whatever the others on its host have said."""
    for word in ("NET/IB : Using", "Init COMPLETE"):
        for rank in range(4):
            lines = [line for each in range(4) for line in lines_of(version, each) if each != rank or word not in line]
            found = verify(plan(), seen("\n".join(lines)))
            assert found.status is Truth.UNKNOWN, (word, rank)
            assert str(rank) in found.why


def test_the_host_of_a_log_that_its_guard_read() -> None:
    """What NCCL calls a host need not be its name: containers have names of their own."""
    parts = []
    for rank in range(4):
        reader = NcclReader(HOSTS[rank // 2])
        reader.feed("".join(f"{line}\n" for line in lines_of("2.21.5", rank, host="3f1c5a2b9d01")))
        parts.append(reader.log())
    assert verify(plan(), replace(seen(""), nccl=together(parts))).status is Truth.TRUE
    nameless = verify(plan(), seen("\n".join(line for rank in range(4) for line in lines_of("2.21.5", rank, host="x"))))
    assert nameless.status is Truth.UNKNOWN
    assert "calls itself x" in nameless.why


@given(st.data())
def test_a_log_that_ends_anywhere_is_not_false(data: st.DataObject) -> None:
    text = log_of(data.draw(st.sampled_from(VERSIONS)))
    end = data.draw(st.integers(0, len(text) - 1))
    found = verify(plan(), seen(text[:end], end=""))
    # The end may lie between a line and its line end.
    assert found.status is Truth.UNKNOWN or (found.status is Truth.TRUE and end == len(text) - 1), found.why


@given(st.randoms(use_true_random=False), st.sampled_from(VERSIONS))
def test_ranks_that_write_at_the_same_time(random: object, version: str) -> None:
    """Lines of ranks in any order give the same verdict."""
    queues = [lines_of(version, rank) for rank in range(4)]
    mixed = []
    while any(queues):
        queue = random.choice([each for each in queues if each])  # type: ignore[attr-defined]
        mixed.append(queue.pop(0))
    assert verify(plan(), seen("\n".join(mixed))).status is Truth.TRUE


def test_ranks_in_words() -> None:
    assert matching([3, 1, 2, 8]) == "1-3, 8"
    assert matching(range(0, 100, 2)) == "0, 2, 4, 6, ..."
