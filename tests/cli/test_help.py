"""The help: verbs in groups, options in groups, and the command that was meant."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from taco_launch.cli.main import cli
from taco_launch.cli.options.common import TacoOption
from taco_launch.cli.options.option_groups import USUAL, OptionGroup
from taco_launch.cli.verbs import Verb, all_verbs
from tests.support.command_line import call, failing

JOB_VERBS = ("run", "submit")
LONG_VERBS = (*JOB_VERBS, "bench run")
LINES_AT_MOST = 60
# Options of a command itself that --help leaves to --help-all.
RARE = {"ask_sudo_password"}


def help_of(*words: str, columns: int = 80) -> str:
    result = CliRunner().invoke(cli, list(words), terminal_width=columns)
    assert result.exit_code == 0, result.output
    return result.output


def listed(shown: str) -> set[str]:
    """Return the names in the first column of the options."""
    return {
        name for line in re.findall(r"^  (-.*?)(?:  |$)", shown, re.MULTILINE) for name in re.findall(r"-[\w-]+", line)
    }


def loaded(*words: str) -> click.Command:
    found = next(verb.load() for verb in all_verbs() if verb.name == words[0])
    for word in words[1:]:
        assert isinstance(found, click.Group)
        found = found.commands[word]
    return found


def test_verbs_are_in_groups_and_every_summary_is_whole_at_80_columns() -> None:
    shown = help_of("--help")
    titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", "Jobs:", "Hosts:", "Benchmarks and nightly runs:", "Lab:", "Tools:"]
    assert "..." not in shown.partition("Jobs:")[2].partition("Examples:")[0]


@pytest.mark.parametrize("verb", LONG_VERBS)
def test_help_fits_on_a_page_and_help_all_shows_every_option(verb: str) -> None:
    words = verb.split()
    usual, everything = help_of(*words, "--help"), help_of(*words, "--help-all")
    assert len(usual.splitlines()) <= LINES_AT_MOST
    options = [param for param in loaded(*words).params if isinstance(param, TacoOption) and not param.hidden]
    for option in options:
        assert option.opts[0] in listed(everything)
    own = {option.name for option in options if not option.group}
    assert own <= {option.name for option in options if listed(usual) & set(option.opts)} | RARE
    assert "--help-all lists every option." in usual
    assert "lists every option" not in everything
    for title in ("Job:", "Launcher:", "Network and tuning:", "Limits and retries:", "General:"):
        assert title in everything.splitlines()


def test_help_all_of_a_group_has_every_option_of_its_commands() -> None:
    shown, group = help_of("bench", "--help-all"), loaded("bench")
    assert isinstance(group, click.Group)
    for name, command in group.commands.items():
        assert (f"Usage: cli bench {name} " in shown) is not command.hidden
    options = {
        param.opts[0]
        for param in loaded("bench", "ladder").params
        if isinstance(param, TacoOption) and not param.hidden
    }
    assert options <= listed(shown)
    assert "Usage: cli bench ladder " in help_of("--help-all")


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_no_line_of_help_ends_within_a_word(columns: int) -> None:
    lines = help_of("--help-all", columns=columns).splitlines()
    assert [line for line in lines if re.search(r"\w-$", line)] == []


def test_each_text_of_the_short_help_is_of_an_option() -> None:
    known = {name for verb in LONG_VERBS for name in listed(help_of(*verb.split(), "--help-all"))}
    assert {name for texts in USUAL.values() for name in texts} <= known


@pytest.mark.parametrize("verb", JOB_VERBS)
def test_every_option_has_a_known_group(verb: str) -> None:
    groups = {option.group for option in loaded(verb).params if isinstance(option, TacoOption)} - {""}
    assert groups <= {group.value for group in OptionGroup}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ps", "taco-launch list"),
        ("status", "taco-launch get"),
        ("cancel", "taco-launch stop"),
        ("kill", "taco-launch stop"),
        ("show", "taco-launch get"),
        ("start", "taco-launch submit"),
        ("ssh", "taco-launch exec"),
        ("nodes", "taco-launch top node"),
        ("sumbit", "taco-launch submit"),
        ("bench lader", "taco-launch bench ladder"),
        ("nightly instal", "taco-launch nightly install"),
        ("top nod", "taco-launch top node"),
        ("lab start", "taco-launch lab status"),
        ("lab list", "taco-launch lab status"),
    ],
)
def test_an_unknown_command_is_answered_with_the_right_one(typed: str, meant: str) -> None:
    result = failing(*typed.split())
    assert f"has no command {typed.rsplit(maxsplit=1)[-1]!r}" in result
    assert result.endswith(f"hint: did you mean: {meant}\n")


@pytest.mark.parametrize(
    ("word", "hint"), [("retries", "all topics: taco-launch help"), ("metric", "did you mean 'metrics'?")]
)
def test_an_unknown_topic(word: str, hint: str) -> None:
    assert failing("help", word).endswith(f"no topic or command '{word}'\nhint: {hint}\n")


def test_a_command_like_no_other_is_answered_with_the_help() -> None:
    result = call("qqqq")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: taco-launch has no command 'qqqq'\nhint: all commands: taco-launch --help\n"


def test_errors_of_options_have_the_form_of_all_errors() -> None:
    first, hint = failing("run", "--0000", "--", "true").splitlines()
    assert first.startswith("error: No such option '--0000'")
    assert hint == "hint: taco-launch run --help"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("logs -n 5 j", "-n: use -t LINES for the last lines"),
        ("wait -n j", "'-n'"),
        ("prune --older-than 30", "'30': the unit is missing: 30s, 30m, 30h or 30d"),
        ("get j --ranks", "--ranks: taco-launch stacks NAME shows what each rank is doing"),
        ("run --ranks 4 -- true", "--ranks: use --np N for the number of ranks"),
    ],
)
def test_an_option_of_other_tools_is_answered_with_ours(typed: str, told: str) -> None:
    assert failing(*typed.split()).splitlines()[0].removesuffix(".").endswith(told)


def test_an_error_is_data_too_where_data_is_requested() -> None:
    result = call("get", "nope", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert (error["kind"], error["exit_code"], error["reasons"]) == ("job-not-found", 1, [])
    assert error["message"] in result.stderr
    assert error["host"] is None
    wrong = call("-i", "/no/such.yaml", "inventory", "-o", "yaml")
    assert yaml.safe_load(wrong.stdout)["error"]["kind"] == "invalid"


def _groups(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    command = command.load() if isinstance(command, Verb) else command
    if isinstance(command, click.Group):
        yield words, command
        for name, below in command.commands.items():
            yield from _groups(below, (*words, name))


def test_summaries_of_commands_are_whole_on_one_line() -> None:
    for words, _group in _groups(cli):
        if words:
            for line in filter(None, help_of(*words, "--help").partition("Commands:\n")[2].splitlines()):
                assert re.match(r"  \S+ +\S.*\.$", line), (words, line)  # one that goes on has no name
                assert not line.endswith("..."), (words, line)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--memory", "sets no limit on memory or cores"),
        ("--cpus", "sets no limit on memory or cores"),
        ("--retries", "--backoff-limit N"),
        ("--chdir", "--workdir PATH"),
        ("--detach", "taco-launch submit"),
        ("--after", "--dependency"),
        ("--logfile", "hint: taco-launch run --help"),  # as alike as --logdir is, it is another thing
        ("--tiemout", "did you mean: --timeout"),
    ],
)
def test_an_option_of_another_tool_is_not_answered_with_one_that_only_looks_like_it(option: str, says: str) -> None:
    assert says in failing("run", option, "4", "--", "true")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "--np", "1", "--", "LR=1", "python3", "a.py"), "hint: -x LR=1\n"),
        (("run", "--np", "1", "--", "cd", "/tmp"), "hint: to run it with what follows: sh -c 'cd ...; COMMAND'"),
        (("run", "--array", "0-3", "--", "true"), "taco-launch submit starts a job for each value"),
        (
            ("submit", "--name", "s", "--np", "1", "--each", "lr=1,2", "--", "mpirun", "{LR}"),
            "error: the command is a launcher",
        ),
        (("delete", "--all"), "taco-launch prune --older-than 1d"),
    ],
)
def test_what_other_tools_would_accept_is_answered_with_what_to_type(words: tuple[str, ...], says: str) -> None:
    assert says in failing(*words)


def test_a_command_of_one_job_says_so() -> None:
    for verb in ("get", "logs"):
        assert f"hint: taco-launch {verb} works on one job at a time: call it once for each NAME" in failing(
            verb, "a", "b"
        )


def test_a_job_file_is_told_of_its_own_keys(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text('command: ["true"]\nknobs: {FOO: 1}\n', "utf-8")
    assert "(put any other variable under env:, and any other MCA parameter under mca:)" in failing(
        "run", "-f", str(tmp_path / "job.yaml")
    )
