"""What a rank is told about its place, and what marks a process as a job's."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.core.launch.command_line.env import JOB_ID, JOB_NAME, local_env, mark, rank_env, rank_of, rendezvous
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement, Share

HOSTS = (Host("gpu1", "10.0.0.1"), Host("gpu2", "10.0.0.2"))
PLACEMENT = Placement((Share("gpu2", 3), Share("gpu1", 1)), "so")
OMPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")


def spec(*env: tuple[str, str | None]) -> JobSpec:
    return JobSpec(name="j", command=("true",), hosts=HOSTS, env=env)


def test_mark() -> None:
    assert dict(mark("vgg", "a1")) == {JOB_NAME: "vgg", JOB_ID: "a1"}


def test_rank_of() -> None:
    assert rank_of({OMPI[0]: "5", OMPI[1]: "1", OMPI[2]: "8", "PATH": "/bin"}) == (5, 1, 8)


@pytest.mark.parametrize("missing", OMPI)
def test_rank_of_a_process_that_mpirun_did_not_start(missing: str) -> None:
    assert rank_of({name: "1" for name in OMPI if name != missing}) is None


def test_rank_of_a_rank_of_torchrun() -> None:
    given = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    assert rank_of(given) == (5, 1, 8)
    # mpirun's own number, where its caller was a rank of something else.
    assert rank_of({**given, OMPI[0]: "2", OMPI[1]: "0", OMPI[2]: "4"}) == (2, 0, 4)


@given(st.dictionaries(st.sampled_from(OMPI), st.text(max_size=3) | st.text("0123456789²٣-+ _", max_size=3)))
@example(dict.fromkeys(OMPI, "²"))
def test_rank_of_anything_is_numbers_or_nothing(environ: dict[str, str]) -> None:
    found = rank_of(environ)
    assert found is None or found == tuple(int(environ[name]) for name in OMPI)


def test_the_rendezvous_is_on_the_host_of_rank_0() -> None:
    assert local_env(spec(), PLACEMENT, 4242, "gpu1") == {
        "MASTER_ADDR": "10.0.0.2",
        "MASTER_PORT": "4242",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "1",
        "NODE_RANK": "1",
    }
    second = local_env(spec(), PLACEMENT, 4242, "gpu2")
    assert (second["LOCAL_WORLD_SIZE"], second["GROUP_RANK"], second["NODE_RANK"]) == ("3", "0", "0")
    head = local_env(spec(), PLACEMENT, 4242, "head")  # which looks after the job, and has no rank
    assert head == {"MASTER_ADDR": "10.0.0.2", "MASTER_PORT": "4242", "WORLD_SIZE": "4"}


def test_torchrun_gives_its_ranks_the_rendezvous_itself() -> None:
    given = spec(("MASTER_PORT", "29500"), ("A", "b"))
    assert local_env(replace(given, launcher="torchrun"), PLACEMENT, 4242, "gpu1") == dict(given.env)
    assert rendezvous(given, PLACEMENT, 4242) == ("10.0.0.2", "29500")
    assert rendezvous(spec(("MASTER_ADDR", None)), PLACEMENT, 4242) == ("10.0.0.2", "4242")


def test_a_value_that_the_user_gives_wins() -> None:
    made = local_env(spec(("MASTER_PORT", "29500"), ("A", "b"), ("E", "")), PLACEMENT, 4242, "gpu1")
    assert (made["MASTER_PORT"], made["A"], made["E"]) == ("29500", "b", "")
    assert rank_env(3, 1, {"RANK": "7"})["RANK"] == "7"


def test_a_value_that_the_user_takes_from_the_caller_wins() -> None:
    # -x MASTER_PORT: the launcher carries the caller's value to the ranks, so it must not be set over.
    made = local_env(spec(("MASTER_PORT", None), ("HOME", None)), PLACEMENT, 4242, "gpu1")
    assert "MASTER_PORT" not in made
    assert "HOME" not in made


def test_rank_env() -> None:
    assert rank_env(3, 1, {"WORLD_SIZE": "4"}) == {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
