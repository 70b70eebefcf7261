"""Which GPUs the ranks of a host may see: those of the job's slots, and no others'."""

from dataclasses import replace

import pytest

from taco_launch.core.launch.launchers import open_mpi as mpirun
from taco_launch.core.model.job_facts import JobFacts, JobHost
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement, Share
from tests.support.planned import AUTO, FAR, WRAPPER

NAME = "CUDA_VISIBLE_DEVICES"
TWO = ("GPU-b", "GPU-a")
FACTS = JobFacts(False, openmpi="4.1.4", hosts=(JobHost("gpu1", 8, 2), JobHost("gpu2", 8, 2)))


def seen(
    *shares: Share, env: tuple[tuple[str, str | None], ...] = (), facts: JobFacts = FACTS, gpus: str = "auto"
) -> dict[str, str]:
    hosts = tuple(replace(host, gpus=gpus) for host in FAR)
    spec = JobSpec("j", ("true",), hosts, head="gpu1", profile=AUTO, env=env)
    made = mpirun.plan(spec, "id1", Placement(shares, "why"), facts, WRAPPER, "/job")
    return {host: dict(pairs)[NAME] for host, pairs in made.host_env if NAME in dict(pairs)}


def test_the_jobs_own_in_the_order_of_the_slots() -> None:
    found = seen(Share("gpu1", 2, TWO), Share("gpu2", 1, ("GPU-c",)))
    assert found == {"gpu1": "GPU-b,GPU-a", "gpu2": "GPU-c"}


@pytest.mark.parametrize(
    ("slots", "facts", "gpus", "expected"),
    [
        (("GPU-b", "slot-2"), FACTS, "auto", {"gpu1": "GPU-b"}),
        # Beyond a host's GPUs, all of which others may have.
        (("slot-2", "slot-3"), FACTS, "auto", {"gpu1": ""}),
        (("slot-0", "slot-1"), JobFacts(False, openmpi="4.1.4", hosts=(JobHost("gpu1", 8, 0),)), "auto", {}),
        (("slot-0", "slot-1"), FACTS, "none", {}),
        ((), FACTS, "auto", {}),  # a plan: nothing is leased yet
    ],
)
def test_slots_without_gpus(slots: tuple[str, ...], facts: JobFacts, gpus: str, expected: dict[str, str]) -> None:
    assert seen(Share("gpu1", 2, slots), facts=facts, gpus=gpus) == expected


@pytest.mark.parametrize("value", ["1", "", None])
def test_the_users_word_goes_before_it(value: str | None) -> None:
    assert seen(Share("gpu1", 2, TWO), env=((NAME, value),)) == {}


@pytest.mark.parametrize(("given", "expected"), [((), {"gpu1"}), ((("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),), set())])
def test_indices_are_nvidia_smis_unless_the_user_says(given: tuple[tuple[str, str], ...], expected: set[str]) -> None:
    """Where there are GPUs: `gpu2` has slots beyond its own."""
    spec = JobSpec("j", ("true",), FAR, head="gpu1", profile=AUTO, env=given)
    shares = Share("gpu1", 2, TWO), Share("gpu2", 1, ("slot-2",))
    made = mpirun.plan(spec, "id1", Placement(shares, "why"), FACTS, WRAPPER, "/job")
    found = {host: dict(pairs).get("CUDA_DEVICE_ORDER") for host, pairs in made.host_env}
    assert {host for host, order in found.items() if order == "PCI_BUS_ID"} == expected


def test_and_so_does_the_callers_environment() -> None:
    assert seen(Share("gpu1", 2, TWO), facts=replace(FACTS, environment=((NAME, "3"),))) == {}
    assert seen(Share("gpu1", 2, TWO), facts=replace(FACTS, environment=(("NCCL_DEBUG", "INFO"),))) != {}
