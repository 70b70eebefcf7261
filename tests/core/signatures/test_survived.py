"""Errors that a healthy run survives are not failures; the error that ends it is."""

import pytest

from taco_launch.core.signatures.log_scan import LogScan, explain
from tests.support.findings import REFUSED, TRACEBACK, names

SURVIVED = {
    "/opt/torchvision/io/image.py:13: UserWarning: Failed to load image Python extension: "
    "'/opt/torchvision/image.so: undefined symbol: _ZN3c1017RegisterOperatorsD1Ev'": False,
    "libibverbs: Warning: couldn't load driver 'librxe-rdmav34.so': librxe-rdmav34.so: cannot open shared object file: "
    "No such file or directory": False,
    "Address already in use, trying 6007": False,
    "Warning: fused kernels do not exist: No module named 'apex'": False,
    "Warning: ModuleNotFoundError: No module named 'apex'": False,
    "Container abc is not running yet, waiting": False,
    "/bin/sh: 1: nvcc: not found": True,
    "Failed to load image Python extension: /opt/image.so: undefined symbol: _ZN3c10": True,
    "bind: Address already in use": True,
}


@pytest.mark.parametrize(("line", "at_end"), SURVIVED.items())
def test_what_healthy_runs_say_is_no_failure(line: str, at_end: bool) -> None:
    """Unless the log ends there, and not even then where the line says that the program continues."""
    steps = ["step"] * 30
    assert names("\n".join([line, *steps])) == []
    assert bool(names("\n".join([*steps, line]))) is at_end
    assert names("\n".join([line, *steps, *TRACEBACK])) == ["python-exception"]
    assert names("\n".join([line, *steps, REFUSED])) == ["ssh-refused"]


@pytest.mark.parametrize(
    ("raised", "signature"),
    [
        ("ModuleNotFoundError: No module named 'apex'", "module-missing"),
        ("ImportError: /opt/image.so: undefined symbol: _ZN3c10", "torch-other-build"),
        ("ImportError: /opt/image.so: undefined symbol: png_read_info", "library-too-old"),
        ("OSError: libcudart.so.12: cannot open shared object file: No such file or directory", "library-missing"),
        ("OSError: [Errno 98] error while trying to bind: address already in use", "port-in-use"),
        ("python3: error while loading shared libraries: libx.so.1: cannot open shared object file", "library-missing"),
    ],
)
def test_what_was_raised_is_a_failure_wherever_it_stands(raised: str, signature: str) -> None:
    assert names("\n".join(["Traceback (most recent call last):", raised, *["ended"] * 30])) == [signature]


OF_RANK = "gpu{}/{} | {}"


def labelled(rank: int, *lines: str) -> list[str]:
    return [OF_RANK.format(1 + rank // 8, rank, line) for line in lines]


@pytest.mark.parametrize("dress", [OF_RANK, "[{0},{1}]<stderr>:{2}"])
@pytest.mark.parametrize(
    ("after", "failed", "found"), [(0, 0, 1), (2, 0, 1), (3, 0, 0), (3, 1, 1), (5, 1, 1), (6, 1, 0)]
)
def test_an_error_counts_after_which_its_rank_falls_silent(dress: str, after: int, failed: int, found: int) -> None:
    """Whatever other ranks say, and however long the rank's error is."""
    lines = [dress.format(1, 3, line) for line in (*TRACEBACK, "\tmore of it", "", *["step"] * after)]
    others = [dress.format(1, 4, "step")] * 300
    end = ["  Process name: [[17350,1],3]\n  Exit code:    1"] * failed
    told = names("\n".join([*lines[:1], *others[:1], *lines[1:], *others, *end]))
    assert told == ["python-exception"] * found + ["rank-exited"] * failed


@pytest.mark.parametrize("before", ["", "gpu2/1 | ", "[1,3]<stderr>:"])
def test_an_error_that_torch_marks_ended_its_rank_whoever_goes_on(before: str) -> None:
    """The first of a log counts, not one of the ranks that lost it; nor one that was handled."""
    first = ["[rank3]: Traceback (most recent call last):", "[rank3]: ValueError: mine"]
    other = ["[rank2]: Traceback (most recent call last):", "[rank2]: RuntimeError: lost it"]
    handled = ["Traceback (most recent call last):", "KeyError: 'skipped'"]
    lines = [*handled, "step", first[0], other[0], first[1], other[1], *["said by the launcher"] * 300]
    found = explain([f"{before}{line}" for line in lines])
    assert [finding.cause for finding in found] == ["The program raised ValueError: mine."]


@pytest.mark.parametrize(("after", "found"), [(0, 1), (20, 1), (21, 0), (200, 0)])
def test_an_error_without_a_label_counts_near_the_end_or_a_failure(after: int, found: int) -> None:
    lines = [*TRACEBACK, *["step"] * after]
    assert len(explain(lines)) == found
    assert len(explain([*lines, REFUSED, *["step"] * 100])) == 1 + (after < 20)


def test_of_the_errors_of_a_host_the_last_counts_that_ended_a_rank() -> None:
    handled = [line for rank in range(40) for line in labelled(rank, *TRACEBACK, "skipped", "step", "step", "step")]
    ended = labelled(39, "Traceback (most recent call last):", "KeyError: 'lr'")
    later = labelled(38, *TRACEBACK, *["step"] * 9)
    found = explain([*handled, *ended, *later])
    assert [(finding.signature, finding.host, finding.line) for finding in found] == [("python-exception", "gpu5", 282)]


def test_each_rank_has_a_traceback_of_its_own() -> None:
    mine, other = (
        labelled(3, *TRACEBACK),
        labelled(4, "Traceback (most recent call last):", "KeyError: 'lr'", *["on"] * 9),
    )
    found = explain([mine[0], other[0], *other[1:], *mine[1:]])
    assert [finding.cause for finding in found] == ["The program raised ValueError: mine."]


def test_a_cause_comes_before_an_error_that_its_rank_outlived() -> None:
    lines = [*labelled(0, *TRACEBACK, "skipped", "step"), *labelled(8, "RuntimeError: CUDA out of memory.")]
    assert names("\n".join(lines)) == ["cuda-out-of-memory", "python-exception"]


@pytest.mark.parametrize(("after", "found"), [([], True), (["", ""], True), (["done"], False), (["step"] * 30, False)])
def test_a_command_that_is_not_found_ends_a_log_as_its_last_line(after: list[str], found: bool) -> None:
    assert bool(names("\n".join(["gpu1/0 | bash: line 1: frobnicate: command not found", *after]))) is found


def test_of_what_programs_survive_the_last_counts() -> None:
    lines = ["sh: 1: lspci: not found", *["step"] * 50, "sh: 1: python4: not found"]
    assert [finding.line for finding in explain(lines)] == [52]


STALL = "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((STALL, "Missing ranks:", "1: [a]"), ["horovod-stalled"]),
        ((STALL, "Missing ranks:", "1: [a]", "", "slurmstepd: error: CANCELLED"), ["horovod-stalled"]),
        ((STALL, "Missing ranks:", "1: [a]", "step 2"), []),
        ((STALL, "Missing ranks:", "1: [a]", "step 2", REFUSED), ["ssh-refused", "horovod-stalled"]),
        ((STALL, "Missing ranks:", "1: [a]", "step 2", "NET/IB : No device found"), ["nccl-no-ib-device"]),
    ],
)
def test_a_warning_counts_where_the_job_did_not_go_on(lines: tuple[str, ...], found: list[str]) -> None:
    assert names("\n".join(lines)) == found


def test_a_warning_may_be_why_a_job_failed_that_is_known_to_have() -> None:
    scan = LogScan(failed=True)
    scan.feed(f"{STALL}\nstep 2\n")
    assert [finding.signature for finding in scan.findings()] == ["horovod-stalled"]


@pytest.mark.parametrize("behind", range(50, 65))
def test_an_exception_that_is_ignored_is_no_failure(behind: int) -> None:
    """Also where the line that says so is the last of a block that was looked through."""
    filler, traceback = "x\n" * (1 << 17), "Traceback (most recent call last):\nAssertionError: mine\n" + "\n" * behind
    ignored = "Exception ignored in: <function f>\n"
    for between, found in (("", []), ("one\n", ["python-exception"]), ("\n", ["python-exception"])):
        scan = LogScan()
        scan.feed(f"{filler}{ignored}{between}{traceback}")
        assert [finding.signature for finding in scan.findings()] == found
