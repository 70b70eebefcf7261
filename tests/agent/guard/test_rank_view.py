"""What a guard sees of a rank that can be held against the plan, on real processes."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from taco_launch.agent.guard import rank_view
from taco_launch.agent.host import processes
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.model.run.observed import SeenRank
from taco_launch.core.protocol.verify_messages import RanksSeen
from tests.conftest import eventually

pytestmark = pytest.mark.enable_socket


def test_the_environment_and_connections_of_the_program_behind_a_shell() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connects = f"import socket, time; s = socket.create_connection(('127.0.0.1', {port})); time.sleep(1000)"
        script = 'export NCCL_DEBUG=INFO; "$@"; exit'
        wrapper = subprocess.Popen(
            ["/bin/sh", "-c", 'sh -c "$0" sh "$@"; exit', script, sys.executable, "-S", "-c", connects],
            env={**os.environ, "NCCL_DEBUG": "WARN", "SECRET": "x"},
            start_new_session=True,
        )
        try:
            accepted, _address = server.accept()
            root = processes.identify(wrapper.pid)
            assert root is not None

            def seen() -> bool:
                (rank,) = rank_view.seen(
                    JobFolder(Path("none")), {3: (root.pid, root.start)}, ["NCCL_DEBUG", "NCCL_NET"]
                ).ranks
                return (rank.rank, rank.env, rank.sockets) == (3, (("NCCL_DEBUG", "INFO"),), ())

            eventually(seen)
            accepted.close()
        finally:
            os.killpg(wrapper.pid, signal.SIGKILL)
            wrapper.wait()


def test_a_rank_that_is_gone() -> None:
    (rank,) = rank_view.seen(JobFolder(Path("none")), {3: (1 << 22, 5)}, ["NCCL_DEBUG"]).ranks
    assert (rank.rank, rank.env, rank.sockets) == (3, None, ())


def test_what_nccl_wrote_is_one_connection_of_each_kind(folder: JobFolder) -> None:
    stem = folder.rank(0)
    stem.parent.mkdir(exist_ok=True)
    written = stem.parent / f"{stem.name}.nccl.7"
    channel = "gpu1:7:9 [0] NCCL INFO Channel {:02}/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
    group = (
        "gpu1:7:9 [0] NCCL INFO comm 0x{0:x} rank 0 nranks {1} cudaDev 0 busId 1a000 commId 0x{0:x} - Init COMPLETE\n"
    )
    groups = [group.format(number, 8 if number == 999 else 2) for number in range(1000)]
    channels = [channel.format(number) for number in range(16)]
    written.write_text("".join(channels + groups), encoding="ascii")
    root = processes.identify(os.getpid())
    assert root is not None
    found = rank_view.seen(folder, {0: (root.pid, root.start)}, [])
    (process,) = RanksSeen.from_wire(found.to_wire()).nccl.processes
    assert max(one.ranks for one in process.communicators) == 8
    assert (process.host, process.pid) == ("gpu1", 7)
    assert [(one.transport, one.gdr) for one in process.connections] == [("IB", True)]


@pytest.fixture
def mapping(tmp_path: Path) -> Iterator[Callable[..., SeenRank]]:
    """What is seen of a rank whose program has files mapped, which are made here."""
    started: list[subprocess.Popen[bytes]] = []

    def rank(*files: str, env: Mapping[str, str]) -> SeenRank:
        paths = [tmp_path / file for file in files]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * 7)
        maps = (
            f"import mmap, sys, time; files = [open(path) for path in [*{[*map(str, paths)]!r}, *[sys.executable] * 100]]; "
            "maps = [mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) for f in files]; print(flush=True); time.sleep(1000)"
        )
        argv = ["/bin/sh", "-c", '"$@"; exit', "sh", sys.executable, "-S", "-c", maps]
        wrapper = subprocess.Popen(argv, env=env, start_new_session=True, stdout=subprocess.PIPE)
        started.append(wrapper)
        assert wrapper.stdout is not None
        wrapper.stdout.readline()
        root = processes.identify(wrapper.pid)
        assert root is not None
        (found,) = rank_view.seen(JobFolder(Path("none")), {0: (root.pid, root.start)}, ["OTHER"]).ranks
        return found

    yield rank
    for wrapper in started:
        os.killpg(wrapper.pid, signal.SIGKILL)
        wrapper.wait()
        assert wrapper.stdout is not None
        wrapper.stdout.close()


@pytest.mark.parametrize(("variable", "size"), [("OTHER", 1), ("HOROVOD_RANK", None), ("OMPI_COMM_WORLD_RANK", None)])
def test_horovod_that_no_mpi_started_is_alone(
    mapping: Callable[..., SeenRank], variable: str, size: int | None
) -> None:
    """A rank under torchrun: it has Horovod's library, and nothing that tells Horovod of other ranks."""
    rank = mapping("horovod/mpi_lib.so", env={variable: "0"})
    assert (rank.world_size, bool(rank.world_source)) == (size, size == 1)


def test_the_libraries_of_a_rank(mapping: Callable[..., SeenRank]) -> None:
    """By the version of their file, or its size where the name has none."""
    rank = mapping("lib/libmpi.so.40.30.4", "nvidia/nccl/lib/libnccl.so.2", "lib/libmpi_cxx.so.40.1.0", env={})
    assert rank.libraries == (("libmpi", "40.30.4"), ("libnccl", "7 bytes"))
