"""submit --each and --array: which jobs they are."""

import pytest

from taco_launch.cli.jobs.submit_each import limited, matrix_of
from taco_launch.core.errors import UsageError
from taco_launch.core.model.engines import SlurmArray
from taco_launch.core.model.job_request import JobRequest


@pytest.mark.parametrize(
    ("each", "array", "matrix"),
    [
        ((), None, {}),
        (("lr=0.1,0.01", "seed=1"), None, {"lr": ["0.1", "0.01"], "seed": ["1"]}),
        (("x=a=b,c",), None, {"x": ["a=b", "c"]}),
        ((), "0-3", {"SLURM_ARRAY_TASK_ID": ["0", "1", "2", "3"]}),
        ((), "5,0-20:10,0", {"SLURM_ARRAY_TASK_ID": ["0", "5", "10", "20"]}),
    ],
)
def test_values(each: tuple[str, ...], array: str | None, matrix: dict[str, list[str]]) -> None:
    assert matrix_of(each, array) == matrix


@pytest.mark.parametrize(
    ("each", "array", "message", "hint"),
    [
        (("lr",), None, "'lr' is not NAME=VALUE,VALUE", "--each lr=0.1,0.01"),
        (("lr=0.1,",), None, "'lr=0.1,' is not NAME=VALUE", "--each lr=0.1"),
        (("a=1", "a=2"), None, "a is given twice", "--each lr"),
        ((), "3-1", "'3-1' is not a range of numbers", "--array 0-3,8"),
        ((), "0-8:0", "'0-8:0' is not a range", "--array 0-3"),
        ((), "", "'' is not a range of numbers", "--array 0-3"),
        ((), "9" * 5000, "is not a range of numbers", "--array 0-3"),
        ((), "0-1000", "1001 jobs, of at most 1000", "in parts"),
        ((), "0-999999999", "1001 jobs, of at most 1000", "in parts"),
        (("a=" + ",".join("x" * 40),), "0-39", "1600 jobs, of at most 1000", "in parts"),
    ],
)
def test_refused(each: tuple[str, ...], array: str | None, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        matrix_of(each, array)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_the_limit_of_an_array() -> None:
    request = JobRequest(command=("true",))
    for array, limit in (("0-9%4", SlurmArray(limit=4)), ("0-9", None), (None, None)):
        assert limited(request, matrix_of((), array), array).array == limit


@pytest.mark.parametrize(
    ("each", "array", "message", "hint"),
    [
        ((), "0-9%0", "'0' is not a number of jobs", "--array 0-9%4"),
        ((), "0-9%", "'' is not a number of jobs", "--array 0-9%4"),
        (("a=1,2",), "0-9%2", "--each and %2 exclude one another", "--array 0-9"),
    ],
)
def test_a_limit_is_refused(each: tuple[str, ...], array: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        limited(JobRequest(command=("true",)), matrix_of(each, array), array)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
