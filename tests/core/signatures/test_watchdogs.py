"""What torch's watchdogs report of several ranks is compared within one process group, in one log or in several."""

import pytest

from taco_launch.core.signatures.log_scan import LogScan


def report(rank: int, number: int, operation: str = "ALLREDUCE", group: str = "0(default_pg)") -> str:
    """Return the two lines in which a rank reports the collective in which it waits, and its group."""
    mark = f"[rank{rank}]:[E1122 06:40:00.5 ProcessGroupNCCL.cpp:616]"
    return (
        f"{mark} [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType={operation}, "
        f"NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600080 milliseconds before timing out.\n"
        f"{mark} [PG ID 0 PG GUID {group} Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: "
        f"{number}, last enqueued NCCL work: {number + 1}, last completed NCCL work: {number - 1}.\n"
    )


def dumped(rank: int, last: int) -> str:
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a "
        f"collective timeout from rank 0 and we will try our best to dump the debug info. Last enqueued NCCL work: {last}, last "
        f"completed NCCL work: {last}.\n"
    )


def cause(*logs: str) -> tuple[str, str]:
    """Return the name and the cause of the first finding in these logs."""
    scan = LogScan()
    for host, log in enumerate(logs):
        scan.begin(f"gpu{host}")
        scan.feed(log)
    first = scan.findings()[0]
    return first.signature, first.cause


@pytest.mark.parametrize(
    ("reports", "name", "says"),
    [
        (
            [report(0, 122, "_REDUCE_SCATTER_BASE"), report(1, 126, "_ALLGATHER_BASE")],
            "torch-ranks-apart",
            "rank 0 is in _REDUCE_SCATTER_BASE number 122, rank 1 in _ALLGATHER_BASE number 126",
        ),
        (
            [report(0, 7, "BROADCAST"), report(3, 7)],
            "torch-collectives-differ",
            "in collective number 7, rank 0 calls BROADCAST and rank 3 calls ALLREDUCE",
        ),
        ([report(0, 11), dumped(9, 10)], "torch-rank-behind", "Rank 9 did not get to ALLREDUCE number 11"),
        (
            [report(0, 11), report(1, 11), report(3, 11)],
            "torch-ranks-wait",
            "The ranks 0, 1, 3 report that they wait in ALLREDUCE number 11; these do not: 2.",
        ),
        ([report(0, 11), report(1, 11)], "torch-ranks-wait", "ALLREDUCE number 11, and no other does."),
    ],
)
def test_ranks_of_one_group_are_compared(reports: list[str], name: str, says: str) -> None:
    for logs in (["".join(reports)], reports):
        signature, text = cause(*logs)
        assert signature == name
        assert says in text


@pytest.mark.parametrize(
    "reports",
    [
        [report(0, 122), report(1, 126, group="3")],  # numbers of two groups
        [report(0, 122), report(1, 123)],  # one may have left a collective in which the network keeps the other
        [report(0, 122, "BROADCAST"), report(1, 126)],  # the root of a broadcast does not wait for the others
        [report(0, 122, group="3"), report(1, 122, group="3")],
        [report(0, 11), dumped(9, 11)],
        [report(0, 11), dumped(9, -1)],
        [report(0, 122), "frame\n" * 3000 + report(1, 126)],  # another attempt
    ],
)
def test_nothing_is_said_of_ranks_that_may_agree(reports: list[str]) -> None:
    assert cause("".join(reports))[0] == "torch-collective-timeout"


@pytest.mark.parametrize("rank", [10**11, 10**300])
def test_a_rank_of_any_number_takes_no_memory(rank: int) -> None:
    name, _says = cause(report(0, 122) + report(rank, 122))
    assert name == "torch-ranks-wait"
