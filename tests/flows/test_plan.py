"""What a dry run prints is what will be run."""

from taco_launch.flows import plan
from taco_launch.inventory import profile
from taco_launch.launch import mpirun
from taco_launch.model.hosts import Container, Host, Network
from taco_launch.model.jobs import JobSpec


def test_in_containers_this_machine_is_a_host_like_the_others() -> None:
    """In its container mpirun reaches the others by SSH, and they reach its host by its name."""
    hosts = (Host("here", "10.0.0.1", slots=2, connection="local"), Host("gpu2", "10.0.0.2", slots=2))
    spec = JobSpec(
        *("job", ("true",), hosts),
        head="here",
        container=Container("image"),
        profile=profile.load("auto", "", {}),
        network=Network(interface="eth0"),
        versions=(("openmpi", "4.1.4"), ("nccl", "2.21.5")),
    )

    def asked(missing: tuple[str, ...]) -> tuple[tuple[()], tuple[()]]:
        raise AssertionError(missing)

    planned = plan.dry_run(spec, {}, asked, asked, root=True).plan  # type: ignore[arg-type]
    assert "-H here:2,gpu2:2" in mpirun.line(planned.tokens)
