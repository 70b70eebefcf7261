"""The examples that are shipped: complete, valid, in both languages, and copied by `init --example`."""

import configparser
from pathlib import Path

import pytest
import yaml

import taco_launch
from taco_launch.bench.run import matrix_file
from taco_launch.cli.hosts import examples
from taco_launch.hosts.inventory import load
from taco_launch.jobs.command_lines.arena import arena_line
from taco_launch.jobs.documents import job_file
from tests.docs.pages import ROOT, commands, prose, spans
from tests.support.command_line import call, failing
from tests.support.shown_commands import fault, simple_commands
from tests.support.words import BANNED_IN_PAGES, invented, long_sentences

FOLDER = Path(taco_launch.__file__).parent / "examples"
each_example = pytest.mark.parametrize("name", examples.names())


def files_of(name: str) -> list[Path]:
    return [path for path in sorted((FOLDER / name).rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def test_the_link_of_the_checkout_leads_to_them() -> None:
    assert (ROOT / "examples").resolve() == (ROOT / "taco_launch/examples").resolve()
    folders = [path.name for path in sorted(FOLDER.iterdir()) if path.name != "__pycache__"]
    assert folders == examples.names()


@each_example
def test_each_has_both_readmes_with_the_same_commands(name: str) -> None:
    english, chinese = (FOLDER / name / f"README{language}.md" for language in ("", ".zh"))
    texts = english.read_text("utf-8"), chinese.read_text("utf-8")
    assert texts[0].startswith(f"# {name}: ")
    assert texts[1].startswith(f"# {name}\N{FULLWIDTH COLON}")
    assert list(commands(texts[0])) == list(commands(texts[1]))


@each_example
def test_every_command_of_a_readme_exists(name: str) -> None:
    text = (FOLDER / name / "README.md").read_text("utf-8")
    lines = [*commands(text), *(span for span in spans(text) if span.startswith("taco-launch "))]
    calls = [words for line in lines for words in simple_commands(line) if words[0] == "taco-launch"]
    assert calls
    for words in calls:
        if "arena" in words:
            assert arena_line.read(words[words.index("arena") + 1 :], ("default", "demo")).words
        else:
            assert fault(words) == "", words


@each_example
def test_a_readme_has_the_words_of_the_documentation(name: str) -> None:
    text = prose((FOLDER / name / "README.md").read_text("utf-8"))
    assert invented(name, " ".join(text.split()), BANNED_IN_PAGES) == []
    assert long_sentences(name, text) == []


@each_example
def test_every_file_is_valid(name: str) -> None:
    found = {path.name: path for path in files_of(name)}
    assert "hosts.yaml" in found
    for path in found.values():
        if path.suffix == ".py":
            compile(path.read_text("utf-8"), path, "exec")
        if path.suffix != ".yaml":
            continue
        data = path.read_bytes()
        document = yaml.safe_load(data)
        if path.name == "hosts.yaml":
            assert load.parse(data, str(path)).hosts
        elif "workloads" in document:
            assert matrix_file.parse(data, str(path), {}).workloads
        else:
            job_file.parse(data, str(path), {})


@each_example
def test_a_wheel_has_every_file(name: str) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    patterns = config["options.package_data"]["taco_launch"].split(", ")
    packed = {path for pattern in patterns for path in FOLDER.parent.glob(pattern)}
    assert set(files_of(name)) - packed == set()


def test_the_inventory_of_the_taco_guide_is_the_shipped_one() -> None:
    shipped = (ROOT / "inventories/taco-bare-metal.yaml").read_text("utf-8")
    assert (FOLDER / "11-taco-bare-metal/hosts.yaml").read_text("utf-8") == shipped.partition("\n")[2]


@pytest.mark.parametrize("page", ["docs/guides/examples.md", "docs/zh/examples.md"])
def test_the_guide_has_a_row_for_each(page: str) -> None:
    rows = [line.split("`")[1] for line in (ROOT / page).read_text("utf-8").splitlines() if line.startswith("| `")]
    assert rows == examples.names()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_copy_has_every_file(tmp_path: Path, is_there: bool) -> None:
    target = tmp_path / "deep" / "mine"
    if is_there:
        target.mkdir(parents=True)
    done = call("init", "--example", "01-hello", str(target))
    assert (done.exit_code, done.stdout) == (0, f"{target}: where each rank runs\n"), done.stderr
    assert done.stderr == f"next: read {target}/README.md\n"
    copies = {path.name: path.read_bytes() for path in target.iterdir()}
    assert copies == {path.name: path.read_bytes() for path in files_of("01-hello")}


def test_the_folder_has_the_examples_name_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("init", "--example", "01-hello").exit_code == 0
    assert (tmp_path / "01-hello" / "job.yaml").is_file()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("mine")
    done = call("init", "--example", "01-hello", str(tmp_path))
    assert (done.exit_code, [path.name for path in tmp_path.iterdir()]) == (2, ["job.yaml"])
    assert f"error: {tmp_path} is not empty" in done.stderr
    assert (tmp_path / "job.yaml").read_text() == "mine"
    onto_a_file = call("init", "--example", "01-hello", str(tmp_path / "job.yaml"))
    assert (onto_a_file.exit_code, f"{tmp_path}/job.yaml exists" in onto_a_file.stderr) == (2, True)


def test_the_names_are_listed_and_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = call("init", "--example", "list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == examples.names()
    completing = {"_TACO_LAUNCH_COMPLETE": "bash_complete"}
    words = {"COMP_WORDS": "taco-launch init --example 02", "COMP_CWORD": "3"}
    assert "02-horovod-resnet" in call(env={**completing, **words}).stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--example", "hello"], "there is no example 'hello'\nhint: examples: 01-hello, 02-"),
        (["--example", "01-hello", "a", "b"], "--example copies to one FOLDER, not 2: a b"),
        (["--example", "01-hello", "--cluster", "c"], "--cluster is for an inventory and has no effect with --example"),
        (["--example", "01-hello", "--no-facts"], "is for an inventory"),
        ([], "HOST... is missing\nhint: name the hosts: taco-launch init gpu1 gpu2; examples: --example list"),
    ],
)
def test_what_is_refused(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in failing("init", *words)
    assert list(tmp_path.iterdir()) == []
