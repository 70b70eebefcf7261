"""Labs that several modules share, here and in tests/faults, for as long as tests of their group run.

Both folders register this as a plugin: a fixture of one conftest is not seen by the other, and an imported one is made twice.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests import budget
from tests.lab.rig import Image, Lab, made

NAME = "shared-labs"
_UP = ExitStack()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of two plain hosts; the first one of a machine takes a minute, in which its image is made."""
    with _UP:
        yield _UP.enter_context(made("plain", tmp_path_factory.mktemp("lab-state"), "--hosts", "2", "--slots", "3"))


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four hosts of two slots, bare but for what the clusters of modules that ran before have set up."""
    words = ("--hosts", "4", "--slots", "2", "--docker")
    with _UP:
        yield _UP.enter_context(made("four", tmp_path_factory.mktemp("four"), *words, image=Image.SMALL))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Take labs down with the last test of their group, on workers, where a group's tests run one after the other.

    A machine has inotify instances for about fifteen hosts (fs.inotify.max_user_instances).
    """
    if hasattr(item.config, "workerinput") and _group(item) != _group(nextitem):
        _UP.close()


def _group(item: pytest.Item | None) -> str:
    """Return the group of a test's module, "" for none."""
    return _groups().get(item.path, "") if item else ""


@cache
def _groups() -> dict[Path, str]:
    return {budget.FILE.parent / module.path: module.group for module in budget.load().sections["lab"].modules}
