"""Every command and option that a page names exists, and every plan is printed as it is shown."""

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import click
import pytest

from taco_launch.jobs.command_lines.arena import arena_line
from tests.docs.pages import (
    ROOT,
    Shown,
    commands,
    consoles,
    environment_of,
    offline,
    prose,
    spans,
    text_of,
    working_folder,
    written,
)
from tests.support.shown_commands import fault, options_of, simple_commands, top

pytestmark = pytest.mark.docs

_LONG_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_SCRIPT_CALL = re.compile(r"(?<!\S)(scripts/[\w./-]+)(.*)")
_SCRIPTS = ("scripts/quickstart", "scripts/test", "scripts/docs", "scripts/pytorch_synthetic_benchmark.py")
each_page = pytest.mark.parametrize("page", written())


def every_option(context: click.Context) -> set[str]:
    """Return the names of the options of a command and of all below it."""
    names = set(options_of(context))
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            _name, command, _rest = context.command.resolve_command(context, [name])
            assert command is not None
            names |= every_option(click.Context(command, info_name=name, parent=context))
    return names


@each_page
def test_every_taco_launch_command_exists(page: str) -> None:
    text = text_of(page)
    lines = [*commands(text), *(span for span in spans(text) if span.startswith("taco-launch "))]
    calls = [words for line in lines for words in simple_commands(line) if words[0].endswith("taco-launch")]
    assert [(" ".join(words), fault(words)) for words in calls if fault(words)] == []


@cache
def script_options(script: str) -> set[str]:
    """Return the options that a file of scripts/ names in its --help."""
    argv = [sys.executable, script] if script.endswith(".py") else [script]
    shown = subprocess.run([*argv, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(_LONG_OPTION.findall(shown.stdout))


@each_page
def test_every_option_of_a_script_exists(page: str) -> None:
    text = text_of(page)
    for script, rest in (found for line in (*commands(text), *spans(text)) for found in _SCRIPT_CALL.findall(line)):
        assert (ROOT / script).exists(), script
        used = set(_LONG_OPTION.findall(rest))
        assert not used or used <= script_options(script), script


@cache
def known_options() -> frozenset[str]:
    """Return every option of taco-launch and of the scripts."""
    return frozenset(every_option(top()).union(*(script_options(script) for script in _SCRIPTS)))


# Options of sbatch and srun that the page on Slurm explains.
_OF_SLURM = {"--gpus-per-task", "--gres", "--nodes", "--ntasks", "--ntasks-per-node", "--overlap", "--time"}


# What a page on another tool's guide has in its first column is that tool's.
@pytest.mark.parametrize("page", [page for page in written() if not page.startswith("docs/zh/guides/")])
def test_every_option_that_stands_alone_exists(page: str) -> None:
    text = text_of(page)
    alone = [span for span in spans(text) if span.startswith("-")]
    named = {name for part in (*alone, prose(text)) for name in _LONG_OPTION.findall(part)}
    arenas = {f"--{flag}" for flag in arena_line.FLAGS} if page.endswith("/arena.md") else set()
    slurms = _OF_SLURM if page.endswith("/slurm.md") else set()
    assert named - known_options() - arenas - slurms == set()


@pytest.mark.parametrize("page", [page for page in written() if page.endswith("/arena.md")])
def test_every_line_of_arena_is_read(page: str) -> None:
    lines = [line for line in commands(text_of(page)) if line.startswith("arena ")]
    assert lines
    for words in (words for line in lines for words in simple_commands(line)):
        own = words[2:] if words[1] == "-v" else words[1:]
        assert arena_line.read(own, ("default", "demo")).words, words


@pytest.mark.parametrize("page", [page for page in written() if re.search("--dry-run|launch translate", text_of(page))])
def test_every_plan_is_as_it_is_shown(page: str, tmp_path: Path) -> None:
    """Run each `run --dry-run` and each `translate` of a page, in a folder that has the files of all pages."""
    text = text_of(page)
    folder = working_folder(tmp_path)
    shown = [*consoles(text), *(Shown(span, "") for span in spans(text) if span.startswith("taco-launch "))]
    for one in shown:
        if not is_plan(one.command):
            continue
        done = subprocess.run(
            offline(*shlex.split(one.command)[1:]),
            cwd=folder,
            env=environment_of(page, tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{one.command}: {done.stderr}"
        assert one.output in ("", done.stdout), one.command


@pytest.mark.parametrize("page", written())
def test_every_error_is_as_it_is_shown(page: str, tmp_path: Path) -> None:
    """Run each command below which a page shows nothing but an error, in a folder that has the files of all pages."""
    for one in consoles(text_of(page)):
        if one.output.startswith("error: "):
            done = subprocess.run(
                [sys.executable, "-m", "taco_launch", *shlex.split(one.command)[1:]],
                cwd=working_folder(tmp_path),
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "TACO_LAUNCH_STATE": str(tmp_path / "state")},
            )
            assert done.stderr == one.output, one.command
            assert done.returncode != 0, one.command


_SAMPLE = re.compile(
    r"[Ss]ample (?:output )?.{0,80}machine|[Oo]utput is from a .*machine|机.{0,12}示例|输出来自.*机|机.{0,6}输出示例"
)


@pytest.mark.parametrize("page", written())
def test_outputs_that_depend_on_the_machine_are_labelled(page: str) -> None:
    text = text_of(page)
    depend = [one.command for one in consoles(text) if one.output.strip() and not one.output.startswith("error: ")]
    if any(not is_plan(command) for command in depend if command.startswith(("taco-launch ", "scripts/"))):
        assert _SAMPLE.search(" ".join(text.split())), f"{page}: say of which machine the output of {depend[0]} is"


def is_plan(command: str) -> bool:
    """Return whether a command is `taco-launch run --dry-run` or `translate`, and needs no lab and no other program."""
    words = shlex.split(command)
    options = words[: words.index("--")] if "--" in words else words
    placeholders = any(word.isupper() and word.isalpha() for word in options)
    return (
        words[0] == "taco-launch"
        and ({"run", "--dry-run"} <= set(options) or "translate" in words[:-1])
        and "lab" not in options
        and not placeholders
        and not set("|;<>") & set("".join(options))
    )


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
