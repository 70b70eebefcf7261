"""The limit of open files: raised as far as a job needs it, never lowered; a job that needs more than is allowed is refused."""

import resource
from collections.abc import Iterator

import pytest

from taco_launch.agent.gang import descriptors
from taco_launch.core.errors import HostError


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def soft() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize(("hosts", "ranks", "limit"), [(1, 8, 1024), (30, 240, 1084), (128, 1024, 4416)])
def test_a_large_job_raises_the_limit(hosts: int, ranks: int, limit: int) -> None:
    descriptors.provide(hosts, ranks)
    assert soft() == limit
    descriptors.provide(1, 1)
    assert soft() == limit


def test_a_job_that_needs_more_than_is_allowed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 4096))
    with pytest.raises(HostError, match=r"a job of 1024 ranks needs 4416 open files on its head, .* is 4096"):
        descriptors.provide(128, 1024)
