"""Hosts of a job whose containers are of different images start no rank; what engines call an image may differ."""

import pytest

from taco_launch.agent.gang.placement_errors import check_images as check
from taco_launch.core.errors import HostError

ONE, TWO, DIGEST = (f"sha256:{letter * 64}" for letter in "abc")


@pytest.mark.parametrize(
    "images",
    [
        {},
        {"gpu1": [ONE], "gpu2": [ONE]},
        {"gpu1": [ONE, DIGEST], "gpu2": [TWO, DIGEST]},
        {"gpu1": [ONE], "gpu2": []},
        {"gpu1": [], "gpu2": []},
        {"gpu1": [ONE], "gpu2": [ONE, DIGEST], "gpu3": [TWO, DIGEST]},
    ],
)
def test_the_same(images: dict[str, list[str]]) -> None:
    check(images)


def test_two_images_are_named_with_their_hosts() -> None:
    with pytest.raises(HostError) as caught:
        check({"gpu1": [ONE], "gpu2": [TWO], "gpu3": [ONE]})
    assert caught.value.message == (
        f"the containers of its hosts have different images: {ONE[:19]} on gpu1, gpu3; {TWO[:19]} on gpu2"
    )
    assert caught.value.hint
