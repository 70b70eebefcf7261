"""Folders of documents: a good one has the values beside it that it gives, a bad one the message."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from taco_launch.core.errors import USAGE, SpecError


@dataclass(frozen=True)
class Cases:
    """The documents of a folder, by the ends of their names."""

    folder: Path
    end: str = ".yaml"

    def __post_init__(self) -> None:
        assert self.good
        assert self.bad

    @property
    def good(self) -> list[Path]:
        return sorted(self.folder.glob(f"good_*{self.end}"))

    @property
    def bad(self) -> list[Path]:
        return sorted(self.folder.glob(f"bad_*{self.end}"))

    def unmatched(self) -> set[str]:
        """Return the names of expectations that are missing, and of files that belong to no case."""
        found = {path.name for path in self.folder.iterdir()}
        expected = {path.with_suffix(".json").name for path in self.good}
        expected |= {path.with_suffix(".txt").name for path in self.bad}
        return found ^ (expected | {path.name for path in (*self.good, *self.bad)})


def stem(path: Path) -> str:
    """Return the name of a case."""
    return path.stem


def check_refused(case: Path, parse: Callable[[bytes], object]) -> None:
    """See a document refused with exactly the message beside it."""
    with pytest.raises(SpecError) as caught:
        parse(case.read_bytes())
    assert f"{caught.value}\n" == case.with_suffix(".txt").read_text("utf-8")
    assert caught.value.exit_code == USAGE
