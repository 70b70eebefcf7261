"""What README.md says is so: its first screen's commands run in a fresh copy, and its options exist."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from taco_launch.cli.main import cli
from taco_launch.cli.verbs import Verb
from taco_launch.request.documents.matrix_file import parse

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LONG_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_STEP = re.compile(r"^(\[\d+/\d+\] .+? \.\.\.) ", re.MULTILINE)
_SCRIPT_CALL = re.compile(r"(?<!\S)(scripts/[\w./-]+)(.*)")
_SCRIPTS = ("scripts/quickstart", "scripts/test", "scripts/pytorch_synthetic_benchmark.py")
_OPERATORS = frozenset("|&;<>()")


@dataclass(frozen=True)
class Shown:
    """One command of a ```console block, and the output that the README shows below it."""

    command: str
    output: str


@pytest.fixture(scope="module")
def readme() -> str:
    return (ROOT / "README.md").read_text("utf-8")


def first_screen(text: str) -> str:
    """Return all before the second heading of level two."""
    return "".join(re.split(r"^(?=## )", text, flags=re.MULTILINE)[:2])


def consoles(text: str) -> Iterator[Shown]:
    """Yield the commands of the ```console blocks: lines that begin with `$ `, joined where they end in a backslash."""
    for language, block in _FENCE.findall(text):
        if language == "console":
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = re.sub(r"\\\n(> )?", "", part).partition("\n")
                yield Shown(command, output)


def spans(text: str) -> Iterator[str]:
    """Yield what stands in backquotes outside of blocks."""
    for _, span in _SPAN.findall(_FENCE.sub("", text)):
        yield " ".join(span.split())


def prose(text: str) -> str:
    """Return what stands neither in a block nor in backquotes."""
    return _SPAN.sub("", _FENCE.sub("", text))


# --- the commands of the first screen, run ----------------------------------------------------------------------------


def fresh_copy(target: Path) -> None:
    """Copy the files of the working tree that git tracks, or would."""
    if not (ROOT / ".git").exists():
        pytest.skip("cannot: this is no git checkout, so nothing says which files belong to it")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    for name in sorted(os.fsdecode(name) for name in names.split(b"\0") if name):
        if (ROOT / name).exists():  # tracked and deleted
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def new_user(folder: Path) -> dict[str, str]:
    """Return the environment of somebody whose home is empty, and who has this machine's settings and wheel cache."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TACO_LAUNCH_", "XDG_", "PYTEST_", "PYTHON", "VIRTUAL_ENV"))
    }
    (folder / "home").mkdir()
    cache = Path.home() / ".cache" / "taco-launch" / "wheels"
    return environ | {
        "HOME": str(folder / "home"),
        "PATH": os.pathsep.join(
            part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != ROOT / ".venv" / "bin"
        ),
        "TACO_LAUNCH_STATE": str(folder / "state"),  # this machine's own jobs stay as they are
        "TACO_LAUNCH_WHEEL_CACHE": os.environ.get("TACO_LAUNCH_WHEEL_CACHE", str(cache)),
    }


@pytest.mark.nightly  # in the gate too, where scripts/test finds its inputs changed since the last full run
@pytest.mark.timeout(1500)  # a Horovod that is not in the cache is built
def test_the_commands_of_the_first_screen_run_in_a_fresh_copy(readme: str, tmp_path: Path) -> None:
    shown = tuple(one for one in consoles(first_screen(readme)) if "scripts/test" not in one.command)
    assert any("scripts/quickstart" in one.command for one in shown)
    copy = tmp_path / "taco launch"
    fresh_copy(copy)
    script = "\n".join(["set -e", *(one.command for one in shown)])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=copy,
        env=new_user(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0
    assert re.search(r"^RANKS +IMG/SEC", done.stdout, re.MULTILINE)
    assert re.search(r"^ *1 +[\d.]+ +[\d.]+ +-$", done.stdout, re.MULTILINE)
    if shutil.which("nvidia-smi") is None:  # with one GPU there are no two ranks
        assert re.search(r"^ *2 +[\d.]+ +[\d.]+ +[\d.]+%$", done.stdout, re.MULTILINE)
    promised = {step for one in shown for step in _STEP.findall(one.output)}
    assert promised <= set(_STEP.findall(done.stdout))


# --- every command and option, looked up ------------------------------------------------------------------------------


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell line, without what sets variables before it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if set(word) <= _OPERATORS:
            if words:
                yield words
            words = []
        elif words or not re.match(r"\w+=", word):
            words.append(word)


def options_of(context: click.Context) -> dict[str, click.Option]:
    """Return the options of a command by each of their names."""
    found = [param for param in context.command.get_params(context) if isinstance(param, click.Option)]
    return {name: option for option in found for name in (*option.opts, *option.secondary_opts)}


def loaded(command: click.Command) -> click.Command:
    """Return a verb with its options; the list of all verbs has them by name and help alone."""
    return command.load() if isinstance(command, Verb) else command


def every_option(context: click.Context) -> set[str]:
    """Return the names of the options of a command and of all below it."""
    names = set(options_of(context))
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            _name, command, _rest = context.command.resolve_command(context, [name])
            assert command is not None
            names |= every_option(click.Context(command, info_name=name, parent=context))
    return names


def fault(words: list[str]) -> str:
    """Return what is wrong with the words of a `taco-launch` call up to `--`; "" when nothing is.

    A word in capitals, or in brackets, stands for any.
    """
    context = top()
    rest = [word.strip("[]") for word in words[1:]]
    while rest and rest[0] != "--":
        word = rest.pop(0)
        options = options_of(context)
        name, has_value, _ = word.partition("=")
        if name.startswith("-") and name != "-":
            together = [name] if name.startswith("--") else [f"-{letter}" for letter in name[1:]]
            unknown = [one for one in together if one not in options]
            if unknown:
                return f"{context.command_path}: no option {unknown[0]}"
            last = options[together[-1]]
            if not (last.is_flag or last.count or has_value):
                del rest[: last.nargs]
        elif isinstance(context.command, click.Group):
            if word.isupper() or word == "...":
                return ""
            command = context.command.get_command(context, word)
            if command is None:
                return f"{context.command_path}: no command {word}"
            context = click.Context(loaded(command), info_name=word, parent=context)
    return ""


def top() -> click.Context:
    return click.Context(cli, info_name="taco-launch", **cli.context_settings)


def commands(text: str) -> Iterator[str]:
    """Yield what the blocks show to type."""
    yield from (one.command for one in consoles(text))
    for language, block in _FENCE.findall(text):
        if language in ("sh", "bash"):
            yield from block.splitlines()


def test_every_taco_launch_command_exists(readme: str) -> None:
    lines = [*commands(readme), *(span for span in spans(readme) if span.startswith("taco-launch "))]
    calls = [words for line in lines for words in simple_commands(line) if words[0].endswith("taco-launch")]
    assert calls
    assert [(" ".join(words), fault(words)) for words in calls if fault(words)] == []


def script_options(script: str) -> set[str]:
    """Return the options that a file of scripts/ names in its --help."""
    argv = [sys.executable, script] if script.endswith(".py") else [script]
    shown = subprocess.run([*argv, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(_LONG_OPTION.findall(shown.stdout))


def test_every_option_of_a_script_exists(readme: str) -> None:
    calls = [found for line in (*commands(readme), *spans(readme)) for found in _SCRIPT_CALL.findall(line)]
    assert calls
    for script, rest in calls:
        assert (ROOT / script).exists()
        used = set(_LONG_OPTION.findall(rest))
        assert not used or used <= script_options(script), script


def test_every_option_that_stands_alone_exists(readme: str) -> None:
    alone = [span for span in spans(readme) if span.startswith("-")]
    named = {name for text in (*alone, prose(readme)) for name in _LONG_OPTION.findall(text)}
    known = every_option(top()).union(*(script_options(script) for script in _SCRIPTS))
    assert named - known == set()


def document(text: str, key: str) -> str:
    """Return the one ```yaml block that begins with a key."""
    blocks: list[tuple[str, str]] = _FENCE.findall(text)
    (found,) = [block for language, block in blocks if language == "yaml" and block.startswith(f"{key}:")]
    return found


def test_the_matrix_is_what_its_ladder_shows(readme: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(document(readme, "name"))
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (shown,) = [one for one in consoles(readme) if one.command == "taco-launch bench ladder mine.yaml"]
    counts = re.match(r"ladder mine-[0-9a-f]{6}: (\d+) cells, (\d+) runs, seed ", shown.output)
    assert counts is not None
    ladder = (sys.executable, "-m", "taco_launch", "bench", "ladder")
    done = subprocess.run(
        [*ladder, "mine.yaml", "-H", "localhost:2", "--seed", "0", "--dry-run", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]  # with seed 0 as listed
    cells = {(run["workload"], run["variant"], run["ranks"]) for run in runs}
    assert (len(cells), len(runs)) == tuple(map(int, counts.groups()))
    columns = shown.output.partition("\nRANKS ")[2].splitlines()[0].replace(" LINEAR", "").split()
    assert columns[::2] == list(dict.fromkeys(run["variant"] for run in runs))


def test_the_workloads_that_stand_alone_are_a_matrix_s(readme: str) -> None:
    alone = [span for span in spans(readme) if span.startswith("{kind: ")]
    assert len(alone) == 2
    for span in alone:
        matrix = f"{{name: a, workloads: {{a: {span}}}, sizes: [1], variants: {{a: }}}}"
        parse(matrix.encode(), "README.md", {})


def test_every_plan_is_as_it_is_shown(readme: str, tmp_path: Path) -> None:
    """Run each command with --dry-run, in a folder that has the README's inventory as hcc.yaml."""
    (tmp_path / "inventories").symlink_to(ROOT / "inventories")
    (tmp_path / "hcc.yaml").write_text(document(readme, "cluster"))
    shown = [*consoles(readme), *(Shown(span, "") for span in spans(readme) if span.startswith("taco-launch "))]
    plans = [one for one in shown if "--dry-run" in one.command and " run " in one.command]
    assert len(plans) > 3
    for one in plans:
        done = subprocess.run(
            [sys.executable, "-m", "taco_launch", *shlex.split(one.command)[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert one.output in ("", done.stdout)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("taco-launch run --np 2 -- python3 train.py --no-option-of-ours", ""),
        ("taco-launch -v bench run --np 1,2 -- python3 x.py", ""),
        ("taco-launch logs -f night", ""),
        ("taco-launch VERB --help", ""),
        ("A=1 taco-launch nosuch", "taco-launch: no command nosuch"),
        ("cat log | taco-launch bench nosuch -", "taco-launch bench: no command nosuch"),
        ("taco-launch run --nosuch 3 -- true", "taco-launch run: no option --nosuch"),
        ("taco-launch --np 2 run", "taco-launch: no option --np"),
        ("taco-launch logs -fZ night", "taco-launch logs: no option -Z"),
    ],
)
def test_the_look_up_sees_what_is_wrong(line: str, wrong: str) -> None:
    assert fault(next(words for words in simple_commands(line) if words[0] == "taco-launch")) == wrong
