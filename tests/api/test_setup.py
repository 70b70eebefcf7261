"""Hosts are set up from Python: the example of the guide, a plan alone, hosts that fail, on simulated hosts."""

import pytest

from taco_launch.api import Cluster, SetupListener, SetupOptions, UsageError, set_up_hosts
from taco_launch.core.errors import HostError
from taco_launch.setup.apply.host_ops import SetupEvent
from taco_launch.setup.plan.stage_rules import STAGES
from tests.support.python_examples import example
from tests.support.simulated_setup import PASSWORD, World, world

__all__ = ["world"]


def cluster_of(world: World) -> Cluster:
    return Cluster(world.folder.parent / "cluster.yaml")


def test_the_guides_set_up(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(world.folder.parent)
    script = example("set_up_hosts").replace('hosts="gpu[1-2]"', f'hosts="gpu[1-2]", registry_password={PASSWORD!r}')
    exec(script, {})
    lines = capsys.readouterr().out.splitlines()
    assert {f"{host} {stage} done" for host in ("gpu1", "gpu2") for stage in STAGES} <= set(lines)
    assert lines[-2:] == ["[] []", "True"]
    assert [len(list(world.of(host).iterdir())) for host in ("gpu1", "gpu2", "gpu3")] == [len(STAGES), len(STAGES), 0]


def test_a_plan_alone_changes_nothing(world: World) -> None:
    options = SetupOptions(stages=("docker",), registry_password=PASSWORD)
    steps: list[SetupEvent] = []
    plan, end = set_up_hosts(cluster_of(world), options, SetupListener(step=steps.append), lambda _plan: False)
    assert (plan.has_work, plan.has_drifted, plan.is_blocked, end, steps) == (True, True, False, None, [])
    assert not list(world.of("gpu1").iterdir())
    assert set_up_hosts(cluster_of(world), options)[1] is not None
    plan, end = set_up_hosts(cluster_of(world), options)
    assert (plan.has_work, plan.has_drifted, end) == (False, False, None)


def test_a_host_that_fails_is_in_the_plan_and_keeps_no_other(world: World) -> None:
    world.broken["gpu2"] = HostError("gpu2: no answer")
    plan, end = set_up_hosts(cluster_of(world), SetupOptions(registry_password=PASSWORD))
    assert end is not None
    assert ([*plan.failed], end.is_ready) == (["gpu2"], False)
    assert [host.host for host in end.result.hosts if host.error is None] == ["gpu1", "gpu3"]
    with pytest.raises(UsageError, match="leaves no host"):
        set_up_hosts(cluster_of(world), SetupOptions(hosts="gpu1", exclude=("gpu1",)))


def test_a_stage_that_does_not_exist_is_refused(world: World) -> None:
    options = SetupOptions(stages=("imgae",), registry_password=PASSWORD)
    with pytest.raises(UsageError, match=r"unknown stage 'imgae'; stages: docker, toolkit, peermem, image, "):
        set_up_hosts(cluster_of(world), options)
