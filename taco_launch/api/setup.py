"""Set the hosts of a cluster up, as `setup` does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from taco_launch.api.cluster import Cluster
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.fanout import connect
from taco_launch.jobs.request.resolve import profile_of
from taco_launch.setup.apply.setup_run import SetupRequest
from taco_launch.setup.cluster_setup import ClusterSetup, SetupEnd, SetupPlan, choose_hosts
from taco_launch.setup.job_containers.prepare import SetupListener
from taco_launch.setup.model.ops import Stage
from taco_launch.setup.plan.stage_rules import STAGES


@dataclass(frozen=True)
class SetupOptions:
    """Settings of a set-up other than the inventory."""

    # Hosts and groups to set up: names and ranges such as "gpu[1-3],gpu7"; all by default.
    hosts: str | None = None
    # Hosts to leave out, and not to contact.
    exclude: tuple[str, ...] = ()
    # The stages to run.
    stages: tuple[Stage, ...] = STAGES
    # What may stop where containers run: the engine ("docker"), or a kernel module as well ("host").
    disrupt: Literal["nothing", "docker", "host"] = "nothing"
    # Whether to resolve the image's tag again.
    pull: bool = False
    # How long to wait for jobs that are in the way, in seconds.
    wait_for_jobs: float = 0.0
    # Whether to prove, before anything is changed, that containers have the GPUs of their hosts.
    prove: bool = False
    # Password of the image's registry, for an inventory that names no file with it.
    registry_password: str | None = None
    # Whether to replace the cluster's SSH key on all hosts.
    rotate_keys: bool = False


def set_up_hosts(
    cluster: Cluster,
    options: SetupOptions | None = None,
    listener: SetupListener | None = None,
    agree: Callable[[SetupPlan], bool] = lambda plan: plan.has_work and not plan.is_blocked,
) -> tuple[SetupPlan, SetupEnd | None]:
    """Set the hosts up as the inventory says; return the plan, and how it ended, None where nothing was done.

    `agree` is given the plan before anything is changed, and decides whether it is applied: `lambda plan: False` only plans.
    A host that fails raises nothing: `failed` of the plan and `is_ready` of the end show it.

    Raises:
        UsageError: the inventory has no container, or no host remains.
        SpecError: the inventory is wrong, or a word names no host of it.
        HostError: the head does not answer, or with `pull` the registry.
    """
    settings = options or SetupOptions()
    with open_setup(cluster, settings, listener or SetupListener()) as work:
        work.refresh()
        plan = work.plan(patience=settings.wait_for_jobs, prove=settings.prove)
        return plan, work.apply() if agree(plan) else None


@contextmanager
def open_setup(cluster: Cluster, options: SetupOptions, listener: SetupListener) -> Iterator[ClusterSetup]:
    """Connect to the hosts of a set-up, and yield it; nothing is asked of them yet. Raises as `set_up_hosts` does."""
    inventory = cluster.inventory
    chosen, contacted = choose_hosts(inventory, options.hosts, options.exclude)
    profile = profile_of(inventory, None, cluster.environ)
    ask = options.stages, options.disrupt, options.pull, options.registry_password, options.rotate_keys
    request = SetupRequest(profile, *ask)
    with connect(inventory, contacted, cluster.access) as fanout:
        yield ClusterSetup(inventory, chosen, fanout, request, listener)
