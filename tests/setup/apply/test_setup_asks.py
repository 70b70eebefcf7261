"""What the inventory and the command line add to what set-up knows of its hosts: GPUs that are none, a tag that moved."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import HostFacts, SetupState
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts.gather_facts import with_declared_values
from taco_launch.setup.apply import image_source, send_image, sources
from taco_launch.setup.apply import setup_run as flow
from taco_launch.setup.apply.host_ops import SetupEvent
from taco_launch.setup.files.container_definition import unread
from taco_launch.setup.model.ops import Op, PlanContext, Problem, SourceImage, StageRules
from taco_launch.setup.plan.stage_rules import STAGES
from taco_launch.setup.stages.image import REGISTRY_SECONDS
from tests.support import simulated_setup as simulated
from tests.support.host_facts import host, known
from tests.support.simulated_setup import PASSWORD, World, code, rows, setup
from tests.support.training import image


def test_a_host_without_gpus_is_one_whatever_is_left_of_its_driver() -> None:
    broken = replace(host("gpu1"), gpu=Unknown("NVIDIA-SMI has failed"))
    assert with_declared_values(broken, Host("gpu1", "a")) == broken
    assert "the GPUs of this host cannot be read" in unread(broken)
    told = with_declared_values(broken, Host("gpu1", "a", gpus="none"))
    assert isinstance(told.gpu, Absent)
    assert unread(told) == ""
    untold = replace(broken, gpu=Unknown("not asked"))
    assert with_declared_values(untold, Host("gpu1", "a", gpus="none")) == untold, (
        "what was not looked at is kept as it was"
    )


@dataclass
class Registry:
    """What a registry has under the image's tag, None where it does not answer; and how it was asked."""

    digest: str | None
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def latest(self, host: Any, reference: Any, *more: Any) -> str:
        self.asked.append((host.name, reference.name, *more))
        if self.digest is None:
            raise HostError("gpu1: the registry cannot be queried")
        return self.digest


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry("sha256:new")
    monkeypatch.setattr(sources, "latest", made.latest)
    return made


def test_pull_takes_what_the_registry_has(world: World, registry: Registry) -> None:
    assert code(setup(world, "--pull", "--yes")) == 0
    assert registry.asked == [("gpu1", "registry/train:1", "me", PASSWORD, REGISTRY_SECONDS)]
    assert {each.latest for each in world.clusters[-5:]} == {"sha256:new"}
    for words in (("--host", "gpu2"), ("--only", "docker")):
        done = setup(world, "--pull", *words)
        assert (code(done), len(registry.asked)) == (2, 1)
        assert str(done.exception).startswith("--pull")
    registry.digest = None
    assert code(setup(world, "--pull", "--yes")) == 5
    text = (world.folder.parent / "cluster.yaml").read_text()
    (world.folder.parent / "cluster.yaml").write_text(text.replace("train:1", "train@sha256:" + "a" * 64))
    assert "names a digest, which never changes" in str(setup(world, "--pull").exception)


@pytest.mark.parametrize("there", ["sha256:old", "sha256:new", None])
def test_without_it_hosts_keep_theirs_and_that_is_said(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch, there: str | None
) -> None:
    monkeypatch.setattr(simulated, "facts_of", lambda name, **more: pulled(host(name, **more), there))
    done = setup(world, "--check")
    assert (code(done), world.clusters[-1].latest) == (3, None)
    said = f"the registry now has a different registry/train:1; the hosts keep their current one unless you run: taco-launch -i {world.folder.parent}/cluster.yaml setup --pull\n"
    assert (said in done.stderr) == (there == "sha256:old")
    assert [each[-1] for each in registry.asked] == ([1] if there else []), "a loaded image is in no registry"
    registry.digest = None
    assert code(setup(world, "--check")) == 3, "a registry that is down is in nobody's way"


def pulled(facts: HostFacts, digest: str | None) -> HostFacts:
    return replace(facts, docker=replace(known(facts.docker), images=(image("registry/train:1", digest=digest),)))


def test_what_the_inventory_says_of_gpus_and_disks_is_heeded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Unknown("NVIDIA-SMI has failed")
    monkeypatch.setattr(simulated, "facts_of", lambda name, **more: replace(host(name, **more), gpu=broken))
    given: list[Any] = []

    def gather(*args: Any, **more: Any) -> Any:
        given.append(more["data_root"])
        return world.gather(*args, **more)

    def plan(_host: Host, facts: HostFacts, _cluster: PlanContext) -> Iterator[Op | Problem]:
        if unread(facts):
            yield Problem("container", unread(facts))

    monkeypatch.setattr(flow, "gather", gather)
    nothing = StageRules((), lambda *_: iter(()))
    monkeypatch.setattr(flow, "RULES", {**dict.fromkeys(STAGES, nothing), "container": StageRules((), plan)})
    file = world.folder.parent / "cluster.yaml"
    file.write_text(file.read_text().replace("gpu2: {}", "gpu2: {gpus: none}") + "docker: {data_root: /data}\n")
    done = setup(world, "--check")
    assert code(done) == 5
    assert done.stderr.splitlines() == [
        "error: gpu[1,3]: container: the GPUs of this host cannot be read: NVIDIA-SMI has failed",
        f"nothing to do: gpu2 already set up as in {file}",
    ]
    assert set(given) == {"/data"}


def test_one_machine_under_two_names_is_refused(world: World) -> None:
    def of(machine: str) -> Callable[..., HostFacts]:
        def facts(name: str, *, made: SetupState) -> HostFacts:
            return host(name, made=replace(made, machine=machine))

        return facts

    world.like = {"gpu1": of("a"), "gpu2": of("b"), "gpu3": of("a")}
    done = setup(world, "--check")
    assert code(done) == 2
    assert "gpu1 and gpu3 are the same machine" in str(done.exception)
    world.like["gpu3"] = of("c")
    assert code(setup(world, "--check")) != 2


def test_the_key_that_the_head_has_is_retired_on_all_hosts_or_none(world: World) -> None:
    def with_key(name: str, *, made: SetupState) -> HostFacts:
        return host(name, made=replace(made, cluster_key="ssh-ed25519 AAAA taco-launch c"))

    world.like = dict.fromkeys(("gpu1", "gpu2", "gpu3"), with_key)
    assert code(setup(world, "--dry-run")) == 0
    assert {each.retired for each in world.clusters} == {""}
    world.clusters.clear()
    assert code(setup(world, "--rotate-keys", "--dry-run")) == 0
    assert {each.retired for each in world.clusters} == {"ssh-ed25519 AAAA"}
    for words in (("-H", "gpu1"), ("--exclude", "gpu2"), ("--only", "docker"), ("--rolling",)):
        done = setup(world, "--rotate-keys", *words)
        assert code(done) == 2
        assert "--rotate-keys" in str(done.exception)
    world.broken["gpu3"] = HostError("gpu3: no route to host")
    done = setup(world, "--rotate-keys", "--yes")
    assert code(done) == 5
    assert "gpu3 would continue to accept the old key: gpu3: no route to host" in str(done.exception)
    assert not list(world.of("gpu1").iterdir())


# --- Set-up with an image that no registry has: what the controller has is asked once, and hosts get its stream before they load it


GIVEN = SourceImage("the controller", frozenset(("sha256:1",)), 1000)


@pytest.fixture
def copied(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The hosts that the stream was brought to, by call; gpu2 has no room for it."""
    calls: list[tuple[str, ...]] = []

    def copy(hosts: Any, _inventory: Any, given: SourceImage, report: Any, say: Any) -> dict[str, HostError]:
        assert given is GIVEN
        calls.append(tuple(each.name for each in hosts.transports))
        assert not any((world.of(name) / "image").exists() for name in calls[-1]), "it was loaded before it came"
        report(SetupEvent("gpu1", "image", "copy train:1: 50 % of 1.0 MB from the controller", "begins"))
        say("reads train:1 of the controller")
        return {"gpu2": HostError("gpu2: no room")} if "gpu2" in calls[-1] else {}

    monkeypatch.setattr(send_image, "copy", copy)
    monkeypatch.setattr(image_source, "image_on_controller", lambda _container: GIVEN)
    monkeypatch.setattr(sources, "latest", lambda *_args: pytest.fail("a registry was asked"))
    inventory = world.folder.parent / "cluster.yaml"
    inventory.write_text(
        "cluster: c\ncontainer: {image: {name: train:1, from: controller}}\nhosts: {gpu1: {}, gpu2: {}, gpu3: {}}\n"
    )
    return calls


def test_the_stream_comes_before_it_is_loaded_and_who_does_not_get_it_has_failed(
    world: World, copied: list[tuple[str, ...]]
) -> None:
    assert code(setup(world, "--dry-run")) == 0
    assert copied == []
    done = setup(world, "--yes")
    assert code(done) == 5
    assert copied == [("gpu1", "gpu2", "gpu3")]
    assert {each.given for each in world.clusters} == {GIVEN}
    assert rows(done)["gpu2"][0] == "failed"
    assert rows(done)["gpu1"] == rows(done)["gpu3"]
    assert "error: gpu2: no room\n" in done.stderr
    assert not (world.of("gpu2") / "image").exists()
    assert "reads train:1 of the controller\n" in done.stderr
    setup(world, "--yes")
    assert copied[1:] == [("gpu2",)]


def test_there_is_no_registry_to_pull_from(world: World, copied: list[tuple[str, ...]]) -> None:
    refused = setup(world, "--pull", "--yes")
    assert code(refused) == 2
    assert "comes from controller, not from a registry" in str(refused.exception)
    assert copied == []
