"""The reference pages that are made from the code are those that the code gives now, and leave nothing out."""

import importlib.util
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest
import yaml

from taco_launch.core import protocol
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.message import KINDS
from taco_launch.core.signatures.qualifiers import QUALIFIERS
from taco_launch.core.signatures.table import TABLE

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


def test_a_page_that_is_made_no_more_is_removed(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "docs" / "reference" / "cli" / "old.md"
    old.parent.mkdir(parents=True)
    old.write_text("")
    monkeypatch.setattr(generator, "_ROOT", tmp_path)
    monkeypatch.setattr(generator, "pages", lambda: {Path("docs/reference/cli/run.md"): "new"})
    assert (generator.main(["--check"]), generator.main([])) == (1, 0)
    assert [(path.name, path.read_text()) for path in old.parent.iterdir()] == [("run.md", "new")]


def test_a_text_without_chinese_is_named(generator: ModuleType) -> None:
    assert generator.chinese.say("Name of the cluster.") == "集群的名称。"
    assert generator.chinese.say("auto") == "auto"
    with pytest.raises(SystemExit, match=r"chinese\.yaml has no Chinese for this text: (?s:.*)\nA new key\."):
        generator.chinese.say("A new key.")


def test_every_chinese_text_is_used(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    say = Mock(side_effect=generator.chinese.say)
    monkeypatch.setattr(generator.chinese, "say", say)
    generator.pages()
    used = {call.args[0] for call in say.call_args_list}
    assert set(yaml.safe_load(generator.chinese.TABLE.read_text("utf-8"))) - used == set()


def command_pages(generator: ModuleType) -> dict[str, str]:
    return {path.stem: text for path, text in generator.pages().items() if path.parent.name == "cli"}


def test_every_command_has_a_page_and_is_in_the_index(generator: ModuleType) -> None:
    pages = command_pages(generator)
    index = pages.pop("index")
    assert {"run", "bench-run", "nightly-baseline-accept", "lab-up", "completion"} <= set(pages)
    assert [name for name in pages if f"]({name}.md) |" not in index] == []
    assert "nightly-check" not in pages  # it is hidden


def test_an_option_of_most_commands_is_explained_once(generator: ModuleType) -> None:
    pages = command_pages(generator)
    assert [name for name, text in pages.items() if "On stderr, print only errors" in text] == ["index"]
    assert "Also: `-i`, `-o`, `--json`, `-q`, `-v`, `--ask-sudo-password`, `-h`" in pages["run"]
    assert [name for name, text in pages.items() if "`--mps` | With --procs-per-gpu" in text] == ["run"]
    assert "`--mps`" in pages["submit"]


def test_a_bar_in_a_table_has_no_backslash(generator: ModuleType) -> None:
    assert (
        "<code>--launcher [mpirun&#124;hydra&#124;torchrun&#124;env&#124;horovod]</code>"
        in command_pages(generator)["run"]
    )
    assert [str(path) for path, text in generator.pages().items() if path.suffix == ".md" and r"\|" in text] == []


def test_every_failure_is_a_heading_of_one_page(generator: ModuleType) -> None:
    pages = {path: text for path, text in generator.pages().items() if path.parent.name == "failures"}
    found = [name for text in pages.values() for name in re.findall("^## (.+)$", text, re.MULTILINE)]
    more = [f"{name} ({number})" for name, rows in QUALIFIERS.items() for number, _row in enumerate(rows, 2)]
    assert sorted(found) == sorted([*(signature.name for signature in TABLE), *more])


def test_a_failure_has_its_texts_cause_and_next_step(generator: ModuleType) -> None:
    page = generator.pages()[Path("docs/reference/failures/docker.md")]
    text = page.partition("## docker-no-gpu-support\n")[2].partition("\n## ")[0]
    assert "In the log: `could not select device driver`, " in text
    assert "Cause: containerd / Docker on {host} has no GPU support" in text
    assert "Next: Install nvidia-container-toolkit, " in text
    assert "it may not be executed / it is a folder / there is no such file" in page
    assert 'Set "features": {"cdi": true} in' in page


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
