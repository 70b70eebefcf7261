"""Set-up with an image that no registry has: what the controller has is asked once, and hosts get its stream before they load it."""

from typing import Any

import pytest

from taco_launch.core.errors import HostError
from taco_launch.setup.apply import image_source, send_image, sources
from taco_launch.setup.apply.host_ops import SetupEvent
from taco_launch.setup.model.ops import SourceImage
from tests.support.simulated_setup import World, code, rows, setup

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
