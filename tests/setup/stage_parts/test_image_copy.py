"""Who hands an image's stream on to whom: never in a circle, never past what a host can give, and one copy from the controller."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.setup.model.ops import SourceImage
from taco_launch.setup.stage_parts.image_copy import (
    CONTROLLER,
    FAN_OUT,
    TransferNode,
    compression_worthwhile,
    order,
    source,
)

SIZE = 100


def seated(nodes: dict[str, TransferNode]) -> dict[str, TransferNode]:
    """Seat all that are not yet, as a copy starts."""
    for name in order(nodes):
        if nodes[name].source is None and nodes[name].has < SIZE:
            nodes[name] = replace(nodes[name], source=source(name, nodes, SIZE))
    return nodes


def hosts(count: int, **of: int) -> dict[str, TransferNode]:
    return {name: TransferNode(of.get(name, 0)) for name in (f"gpu{number}" for number in range(1, count + 1))}


def sources(nodes: dict[str, TransferNode]) -> dict[str, str | None]:
    return {name: node.source for name, node in nodes.items()}


def depth(name: str, nodes: dict[str, TransferNode]) -> int:
    above = nodes[name].source
    return 1 + (depth(above, nodes) if above else 0)


def test_the_tree_is_binary_and_as_deep_as_the_logarithm() -> None:
    nodes = seated(hosts(7))
    assert sources(nodes) == {
        "gpu1": CONTROLLER,
        "gpu2": "gpu1",
        "gpu3": "gpu1",
        "gpu4": "gpu2",
        "gpu5": "gpu2",
        "gpu6": "gpu3",
        "gpu7": "gpu3",
    }
    assert max(depth(name, many) for many in [seated(hosts(255))] for name in many) == 8


def test_who_has_the_most_is_first_and_who_has_all_takes_nothing() -> None:
    assert sources(seated(hosts(3, gpu3=40))) == {"gpu3": CONTROLLER, "gpu1": "gpu3", "gpu2": "gpu3"}
    assert sources(seated(hosts(3, gpu2=SIZE))) == {"gpu1": "gpu2", "gpu2": None, "gpu3": "gpu2"}


def test_who_has_lost_its_source_gets_another_that_does_not_depend_on_it() -> None:
    nodes = seated(hosts(5))
    nodes["gpu2"] = replace(nodes["gpu2"], gone=True, source=None)
    for lost in ("gpu4", "gpu5"):
        nodes[lost] = replace(nodes[lost], has=30, source=None)
    assert source("gpu4", nodes, SIZE) == "gpu1"
    nodes = seated(hosts(5))
    nodes["gpu1"] = replace(nodes["gpu1"], gone=True, source=None)
    nodes["gpu2"] = replace(nodes["gpu2"], has=30, source=None)
    assert source("gpu2", nodes, SIZE) == CONTROLLER, "gpu3 has lost its own, gpu4 and gpu5 hang on gpu2"
    nodes["gpu2"] = replace(nodes["gpu2"], source=CONTROLLER)
    nodes["gpu3"] = replace(nodes["gpu3"], source=None)
    assert source("gpu3", nodes, SIZE) == "gpu4", "gpu2 gives to two already"


def test_what_hangs_on_a_host_that_is_gone_is_no_source_although_that_had_all() -> None:
    nodes = hosts(3, gpu1=SIZE, gpu2=50)
    nodes["gpu1"] = replace(nodes["gpu1"], gone=True)
    nodes["gpu2"] = replace(nodes["gpu2"], source="gpu1")
    assert source("gpu3", nodes, SIZE) == CONTROLLER
    whole = {"gpu1": TransferNode(SIZE)}
    assert source("gpu1", {**whole, "gpu2": TransferNode()}, SIZE) == CONTROLLER, "nobody takes it from himself"


def test_who_cannot_be_reached_is_not_asked_again_and_the_controller_gives_to_one_at_a_time() -> None:
    nodes = hosts(3)
    nodes["gpu1"] = replace(nodes["gpu1"], source=CONTROLLER)
    for name in ("gpu2", "gpu3"):
        nodes[name] = replace(nodes[name], refused=frozenset(nodes))
    assert source("gpu2", nodes, SIZE) is None
    nodes["gpu1"] = replace(nodes["gpu1"], has=SIZE, source=None)
    assert source("gpu2", nodes, SIZE) == CONTROLLER
    nodes["gpu2"] = replace(nodes["gpu2"], source=CONTROLLER)
    assert source("gpu3", nodes, SIZE) is None
    silent = {name: replace(node, serves=False) for name, node in hosts(3).items()}
    assert sources(seated(silent)) == {"gpu1": CONTROLLER, "gpu2": None, "gpu3": None}


node = st.builds(TransferNode, st.integers(0, SIZE), serves=st.booleans())


@settings(deadline=None)
@given(st.lists(node, min_size=1, max_size=12), st.data())
def test_whatever_fails_nobody_waits_for_himself_and_all_get_it(made: list[TransferNode], data: st.DataObject) -> None:
    """Hosts go and lose their sources in any order: no circle, no host gives to more than it may."""
    nodes = seated({f"gpu{number}": each for number, each in enumerate(made, 1)})
    for _step in range(data.draw(st.integers(0, 12))):
        name = data.draw(st.sampled_from(sorted(nodes)))
        if data.draw(st.booleans()):
            nodes[name] = replace(nodes[name], gone=True, source=None)
        lost = [each for each, of in nodes.items() if of.source and nodes[of.source].gone and not of.gone]
        for each in lost:
            nodes[each] = replace(nodes[each], source=None)
        for each in lost:
            nodes[each] = replace(nodes[each], source=source(each, nodes, SIZE))
        taking = [of.source for of in nodes.values() if of.source is not None and not of.gone and of.has < SIZE]
        assert all(taking.count(other) <= (FAN_OUT if other else 1) for other in taking)
        for each in nodes:
            path = [each]
            while (above := nodes[path[-1]].source) and nodes[path[-1]].has < SIZE:
                assert above not in path
                path.append(above)
    # with the controller free, the next that nobody feeds is fed
    idle = [name for name, of in nodes.items() if of.source is None and not of.gone and of.has < SIZE]
    busy = any(of.source == CONTROLLER and not of.gone and of.has < SIZE for of in nodes.values())
    assert not idle or busy or source(idle[0], nodes, SIZE) is not None


@pytest.mark.parametrize(("rate", "better"), [(1e6, True), (20e6, True), (118e6, False), (1e9, False)])
def test_packing_pays_on_slow_lines_only(rate: float, better: bool) -> None:
    """What was measured of a training image: a third of it, at 100 MB a second."""
    assert compression_worthwhile(100_000_000, 33_000_000, 1.0, rate) is better


def test_a_host_has_room_for_the_stream_and_for_what_docker_makes_of_it() -> None:
    assert SourceImage("x", frozenset(), 10).space == 30
