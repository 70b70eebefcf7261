"""The exception tree keeps its exit codes, and messages show all that was found."""

import errno
import os

import pytest

from taco_launch.core import errors
from taco_launch.core.errors import Fault, PlacementError, SpecError, TacoLaunchError


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.TacoLaunchError, 1),
        (errors.UsageError, 2),
        (errors.SpecError, 2),
        (errors.PlacementError, 4),
        (errors.HostError, 5),
        (errors.UnusableError, 5),
        (errors.NoJobError, 1),
    ],
)
def test_exit_codes(kind: type[TacoLaunchError], code: int) -> None:
    assert kind.exit_code == code
    assert issubclass(kind, TacoLaunchError)
    assert f"{kind.__name__} ({code})" in (errors.__doc__ or "")


def test_message_and_hint_are_kept_apart() -> None:
    error = errors.HostError("gpu1: no answer", hint="look at its cable")
    assert (str(error), error.message, error.hint) == ("gpu1: no answer", "gpu1: no answer", "look at its cable")
    assert errors.UsageError("wrong").hint is None


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("hosts.gpu1.slots", "'x'", "a number is needed"), "hosts.gpu1.slots: 'x': a number is needed"),
        (Fault("line 3", "", "no mapping"), "line 3: no mapping"),
        (Fault("hots", "", "no such key", "did you mean hosts?"), "hots: no such key (did you mean hosts?)"),
    ],
    ids=["value", "no-value", "hint"],
)
def test_a_fault_is_one_line(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_a_spec_error_shows_every_fault() -> None:
    one, two = Fault("a", "1", "too small"), Fault("b", "2", "too big")
    assert SpecError("file.yaml", (one,)).message == "file.yaml: 1 error\n  a: 1: too small"
    assert SpecError("file.yaml", (one, two)).message == "file.yaml: 2 errors\n  a: 1: too small\n  b: 2: too big"


def test_a_placement_error_shows_every_host() -> None:
    error = PlacementError("3 ranks do not fit", (("gpu1", "1 slot"), ("gpu2", "in use")))
    assert error.message == "3 ranks do not fit\n  gpu1: 1 slot\n  gpu2: in use"
    assert error.reasons == (("gpu1", "1 slot"), ("gpu2", "in use"))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.TacoLaunchError, 125),
        (errors.UsageError, 125),
        (errors.HostError, 125),
        (errors.PlacementError, 4),
        (errors.UnusableError, 5),
    ],
)
def test_exit_codes_of_jobs_that_an_error_ends(kind: type[TacoLaunchError], code: int) -> None:
    assert kind.job_exit_code == code


def test_exit_codes_of_jobs_that_no_rank_decides() -> None:
    ends = {name: code for name, code in vars(errors.JobEnd).items() if not name.startswith("_")}
    assert ends == {
        "SUCCEEDED": 0,
        "NEVER_RAN": 125,
        "NOT_AS_PLANNED": 125,
        "DIVERGED": 1,
        "INCOMPLETE": 1,
        "LOST": 125,
        "NO_SLOTS_IN_TIME": 4,
        "OUT_OF_TIME": 124,
        "HOST_NOT_READY": 5,
    }


@pytest.mark.parametrize(
    ("code", "started", "ran", "expected"),
    [
        (0, True, True, 0),
        (1, True, True, 1),  # a program's own
        (4, True, True, 4),
        (5, True, False, 125),  # a host failed before a rank ran
        (1, True, False, 1),
        (1, False, False, 125),
        (4, False, False, 125),
        (2, False, False, 2),
        (124, False, False, 124),
        (4, False, True, 125),
    ],
)
def test_exit_codes_of_run_and_wait(code: int, started: bool, ran: bool, expected: int) -> None:
    assert errors.code_of_ended(code, started=started, ran=ran) == expected


def test_exit_codes_of_launcher_errors_and_processes() -> None:
    assert [errors.code_of_launcher(code) for code in (0, 1, 2, 4, 5, 124, 126)] == [0, 125, 2, 125, 125, 124, 126]
    assert [errors.code_of_process(code) for code in (0, 3, -9)] == [0, 3, 137]


ELSEWHERE = "name another folder"


@pytest.mark.parametrize(
    ("number", "elsewhere", "hint"),
    [
        (errno.EROFS, ELSEWHERE, "mount its file system for writing: findmnt -T '/a b', or name another folder"),
        (errno.EACCES, "", "give this user the right to write there: ls -ld '/a b'"),
        (errno.ENOTDIR, ELSEWHERE, ELSEWHERE),
        (errno.ENOTDIR, "", "look at it: ls -ld '/a b'"),
    ],
)
def test_the_step_is_that_of_the_error(number: int, elsewhere: str, hint: str) -> None:
    assert errors.write_hint(OSError(number, os.strerror(number)), "/a b", elsewhere) == hint


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_only_a_full_disk_is_freed(number: int) -> None:
    assert errors.write_hint(OSError(number, os.strerror(number)), "/a").startswith(
        "free some space there: taco-launch prune"
    )
