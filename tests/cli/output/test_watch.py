"""What is refreshed in place: nothing of it is cut, on terminals of any width and kind."""

import io
import re
import sys

import pytest

from taco_launch.cli.output import render

ROW = "vgg16 " * 20 + "end"


class Screen(io.StringIO):
    """A terminal that keeps what is printed."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("term", "columns"), [("xterm", "40"), ("xterm", "300"), ("dumb", "40")])
def test_watch_cuts_nothing(monkeypatch: pytest.MonkeyPatch, term: str, columns: str) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", columns)
    screens = iter((ROW, ROW))
    with pytest.raises(StopIteration):
        render.watch(lambda: next(screens), 0.0)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n")
    assert "end" in shown
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) == (36 if (term, columns) == ("xterm", "40") else len(ROW))
