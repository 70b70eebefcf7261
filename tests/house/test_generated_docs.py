"""The reference pages that are made from the code are those that the code gives now, and leave nothing out."""

import importlib.util
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

from taco_launch.core import protocol
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.message import KINDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "scripts" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_current(generator: ModuleType) -> None:
    for path, text in generator.pages().items():
        assert (ROOT / path).read_text("utf-8") == text, f"{path} is out of date: run scripts/generate_docs.py"


def test_a_page_that_differs_is_named(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "pages", lambda: {Path("docs/reference/messages.md"): "old"})
    assert generator.main(["--check"]) == 1
    assert "docs/reference/messages.md is out of date: run scripts/generate_docs.py" in capsys.readouterr().err


def test_every_message_is_in_the_reference(generator: ModuleType) -> None:
    for module in pkgutil.walk_packages(protocol.__path__, "taco_launch.core.protocol."):
        importlib.import_module(module.name)
    page = generator.pages()[Path("docs/reference/messages.md")]
    kinds = [*KINDS.values(), *Request.by_op.values(), *Reply.by_op.values()]
    ours = [kind for kind in kinds if kind.__module__.startswith("taco_launch.")]
    assert len(ours) > 60
    assert [kind.__name__ for kind in ours if f"### {kind.__name__} (`{kind.op}`)" not in page] == []


def test_comments_and_types_of_fields(generator: ModuleType) -> None:
    page = generator.pages()[Path("docs/reference/messages.md")]
    assert "| `count_slots` | boolean | required | whether to count the host's slots by its GPUs |" in page
    assert "| `occupancy` | `Occupancy` or null | `null` |" in page
