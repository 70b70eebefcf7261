"""Remarks on knobs that are right each by itself: which combinations have one, and which have none."""

import pytest

from taco_launch.core.launch.knobs.remarks import remarks

GUIDE = (
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_IB_DISABLE", "0"),
    ("NCCL_SOCKET_IFNAME", "bond0"),
    ("NCCL_IB_GID_INDEX", "3"),
    ("NCCL_NET_GDR_LEVEL", "2"),
    ("HOROVOD_FUSION_THRESHOLD", "0"),
    ("HOROVOD_CYCLE_TIME", "0"),
    ("LIGHT_INTRA_SIZE", "8"),
    ("LIGHT_2D_ALLREDUCE", "1"),
    ("LIGHT_TOPK_ALLREDUCE", "1"),
    ("LIGHT_TOPK_THRESHOLD", "2097152"),
    ("LD_LIBRARY_PATH", None),
)


def pairs(text: str) -> tuple[tuple[str, str | None], ...]:
    split = [word.partition("=") for word in text.split()]
    return tuple((name, value if equals else None) for name, equals, value in split)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("NCCL_DEBUG_SUBSYS=NET", "does nothing without NCCL_DEBUG=INFO"),
        ("NCCL_DEBUG_SUBSYS=NET NCCL_DEBUG=warn", "does nothing without NCCL_DEBUG=INFO"),
        ("NCCL_DEBUG_FILE=/tmp/n", "lacks %h and %p: processes overwrite"),
        ("NCCL_DEBUG_FILE=/tmp/n.%h", "lacks %p: processes overwrite"),
        ("NCCL_DEBUG_FILE=/tmp/n.%p", "lacks %h: hosts that share a file system overwrite"),
        ("NCCL_IB_DISABLE=0", "does nothing: 0 is the default and does not force IB (since NCCL 2.10, NCCL_NET=IB does)"),
        ("NCCL_IB_DISABLE=1 NCCL_NET=ib", "NCCL_NET=IB allows only IB, and NCCL_IB_DISABLE=1 forbids it"),
        ("HOROVOD_FUSION_THRESHOLD=64", "64 bytes: horovodrun's --fusion-threshold-mb counts MiB, but this variable counts bytes"),
        ("HOROVOD_FUSION_THRESHOLD=32", "32 MiB are 33554432"),
        ("HOROVOD_FUSION_THRESHOLD=4096", "is 4096 bytes"),
        ("btl=tcp", "lacks self: no rank reaches itself, and MPI does not start; write self,tcp"),
        ("btl=tcp pml=ob1", "lacks self"),
        ("btl=tcp pml=^ucx", "lacks self"),
        ("btl=^openib,self", "excludes self too, as ^ applies to the whole list: no rank reaches itself; write ^openib"),
        ("btl=^self", "omit it"),
        ("btl=self", "reaches no other rank"),
        ("NCCL_SOCKET_IFNAME=eth1", "eth1 also includes eth10; for exact names write =eth1"),
        ("NCCL_SOCKET_IFNAME=^lo,eth2", "eth2 also excludes eth20; for exact names write ^=lo,eth2"),
        ("NCCL_IB_TIMEOUT=0", "waits forever"),
        ("NCCL_IB_TIMEOUT=32", "waits forever"),
        ("NCCL_PROTO=LL,ll128", "data can be corrupted"),
        ("NCCL_PROTO=simple;allreduce:LL128", "data can be corrupted"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=60", "is not above HOROVOD_STALL_CHECK_TIME_SECONDS, which is 60"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=90 HOROVOD_STALL_CHECK_TIME_SECONDS=90", "which is 90"),
        ("HOROVOD_CYCLE_TIME=0.0", "keeps one core per rank"),
        ("HOROVOD_AUTOTUNE=1 HOROVOD_CYCLE_TIME=2 HOROVOD_FUSION_THRESHOLD=0",
         "set yourself: HOROVOD_FUSION_THRESHOLD, HOROVOD_CYCLE_TIME"),
        ("LIGHT_TOPK_ALLREDUCE=1", "is lossy: it sends only a fraction of 0.01 of the values of each large gradient"),
        ("LIGHT_TOPK_ALLREDUCE=1 LIGHT_TOPK_RATIO=0.1", "only a fraction of 0.1 of"),
        ("LIGHT_2D_ALLREDUCE=1 HOROVOD_HIERARCHICAL_ALLREDUCE=1", "one is enough"),
    ],
)  # fmt: skip
def test_one_remark(given: str, said: str) -> None:
    found = remarks(pairs(given))
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "NCCL_DEBUG_SUBSYS=NET NCCL_DEBUG=info",
        "NCCL_DEBUG_SUBSYS=NET NCCL_DEBUG=TRACE",
        "NCCL_DEBUG_SUBSYS=NET NCCL_DEBUG",  # the caller's level is not known here
        "NCCL_DEBUG_FILE=/tmp/n.%h.%p",
        "NCCL_DEBUG_FILE=/dev/stderr",
        "NCCL_IB_DISABLE=1",
        "NCCL_IB_DISABLE=1 NCCL_NET=Socket",
        "NCCL_NET=IB",
        "HOROVOD_FUSION_THRESHOLD=0",
        "HOROVOD_FUSION_THRESHOLD=4097",
        "HOROVOD_FUSION_THRESHOLD=67108864",
        "btl=self,tcp",
        "btl=^openib",
        "btl=tcp pml=ucx",  # which takes no btl
        "btl_tcp_if_include=eth0",
        "NCCL_IB_DISABLE",
        "NCCL_SOCKET_IFNAME=bond0",
        "NCCL_SOCKET_IFNAME==eth1",
        "NCCL_SOCKET_IFNAME=^=eth1",
        "NCCL_SOCKET_IFNAME=eth",
        "NCCL_IB_TIMEOUT=31",
        "NCCL_PROTO=^LL,Simple",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=0",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=61",
        "HOROVOD_STALL_CHECK_TIME_SECONDS=10",
        "HOROVOD_CYCLE_TIME=0.1",
        "HOROVOD_AUTOTUNE=1 HOROVOD_TIMELINE=/tmp/t",
        "HOROVOD_AUTOTUNE=0 HOROVOD_CYCLE_TIME=2",
        "LIGHT_TOPK_ALLREDUCE=0",
        "LIGHT_2D_ALLREDUCE=1 HOROVOD_HIERARCHICAL_ALLREDUCE=0",
        "PATH",
    ],
)
def test_no_remark(given: str) -> None:
    assert remarks(pairs(given)) == ()


def test_the_guides_line_is_told_what_it_does() -> None:
    found = remarks(GUIDE)
    assert [remark.partition(" ")[0] for remark in found] == [
        "NCCL_IB_DISABLE=0", "HOROVOD_CYCLE_TIME=0", "LIGHT_TOPK_ALLREDUCE=1",
    ]  # fmt: skip
