"""The lab of four hosts that tests/faults and some modules of tests/lab share, each with clusters of its own on it.

Both folders register this as a plugin: a fixture of one conftest is not seen by the other, and an imported one is made twice.
"""

from collections.abc import Iterator

import pytest

from tests.lab.rig import Image, Lab, made

NAME = "shared-labs"


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four hosts of two slots, bare but for what the clusters of modules that ran before have set up."""
    with made("four", tmp_path_factory.mktemp("four"), "--hosts", "4", "--slots", "2", image=Image.SMALL) as lab:
        yield lab
