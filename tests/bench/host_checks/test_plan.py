"""Rounds of pairs: everyone meets everyone once, and with --bisect enough of them."""

import itertools

import pytest

from taco_launch.bench.host_checks.plan import PAIRS, plan, request, rounds


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 13, 64, 101])
def test_each_pair_meets_once_and_no_host_is_in_two_pairs_of_a_round(count: int) -> None:
    found = rounds(count)
    assert len(found) == (count if count % 2 else count - 1)
    met = [pair for each in found for pair in each]
    assert sorted(met) == list(itertools.combinations(range(count), 2))
    for each in found:
        ends = [end for pair in each for end in pair]
        assert len(ends) == len(set(ends))


@pytest.mark.parametrize(("count", "most"), [(2, 1), (4, 3), (16, 5), (64, 7), (256, 9), (257, 10)])
def test_bisect_has_about_log2_rounds_of_different_pairs(count: int, most: int) -> None:
    found = rounds(count, bisect=True)
    assert len(found) == most
    met = [pair for each in found for pair in each]
    assert len(met) == len(set(met))
    partners = [sum(end in pair for pair in met) for end in range(count)]
    assert min(partners) >= most - 1


def test_the_job_has_whole_hosts_and_the_program() -> None:
    job = request(PAIRS, ("gpu1", "gpu2"), plan(PAIRS, 2), 0.0)
    assert (job.hosts, job.host, job.exclusive, job.per_host, job.launcher) == (2, "gpu1,gpu2", True, True, "env")
    assert job.no_wait
    assert job.queue_timeout is None
    assert request(PAIRS, ("gpu1", "gpu2"), plan(PAIRS, 2), 60.0).queue_timeout == 60.0
    forever = request(PAIRS, ("gpu1", "gpu2"), plan(PAIRS, 2), float("inf"))
    assert (forever.no_wait, forever.queue_timeout) == (False, None)
    assert job.command[:3] == ("python3", "-m", "program")


def test_the_token_is_in_the_environment_alone_and_the_ports_are_in_the_plan() -> None:
    job = request(PAIRS, ("gpu1", "gpu2"), plan(PAIRS, 2, ports=(40000, 40100)), 0.0)
    (name, token), meeting = job.env
    assert meeting == ("MASTER_PORT", "40100")
    assert (name, len(token or "")) == ("TACO_CHECK_TOKEN", 16)
    assert str(token) not in " ".join(job.command)
    assert "token" not in job.command[3]
    assert '"ports":[40000,40100]' in job.command[3]
