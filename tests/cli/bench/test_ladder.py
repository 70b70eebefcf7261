"""bench ladder: what a matrix comes to on an inventory, shown without starting anything; and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.command_line import call, failing, succeeding

pytest.importorskip("scipy")

TWO = """\
cluster: two
network: {interface: eth0}
versions: {openmpi: "4.1.4"}
mpirun: /usr/bin/mpirun
hosts:
  n[1-2]: {slots: 2}
"""
MATRIX = """\
name: m
workloads:
  loop: {{kind: regex, command: [bench, --quick], pattern: 'rate (.*)', unit: x/sec}}
sizes: {sizes}
variants:
  base: {{}}
  other: {{{other}}}
repeats: 2
{more}
"""


@pytest.fixture
def ladder(tmp_path: Path) -> Any:
    (tmp_path / "two.yaml").write_text(TWO)

    def ask(*words: str, sizes: str = "[1, 4]", other: str = "", more: str = "") -> Result:
        (tmp_path / "m.yaml").write_text(MATRIX.format(sizes=sizes, other=other, more=more))
        return call("-i", str(tmp_path / "two.yaml"), "bench", "ladder", str(tmp_path / "m.yaml"), *words)

    return ask


def shown(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("other", "typed"),
    [
        ("", ""),
        ("args: [--fp16, '2']", "--fp16 2"),
        ("transport: tcp, gdr: false", "--transport tcp --no-gdr"),
        ("light: true, knobs: {HOROVOD_FUSION_THRESHOLD: 64MiB}", "--light --knob HOROVOD_FUSION_THRESHOLD=64MiB"),
        ("env: {A: '1'}, mca: {pml: ob1}, profile: ack", "-x A=1 --mca pml ob1 --profile ack"),
        ("launcher: torchrun", "--launcher torchrun"),
        ("host: 'n2:2', exclude: []", "-H n2:2"),
        ("runPolicy: {gracePeriodSeconds: 3}, interface: bond0", "--grace 3 --interface bond0"),
    ],
)
def test_a_job_of_a_cell_has_the_line_that_run_gives_it(other: str, typed: str, ladder: Any, tmp_path: Path) -> None:
    np = "2" if "host:" in other else "4"
    found = shown(ladder("--dry-run", "--json", other=other, sizes=f"[1, {np}]"))
    lines = {line["variant"]: line["line"] for line in found["lines"] if line["ranks"] == int(np)}
    behind, options = (typed.split(), []) if typed.startswith("--fp16") else ([], typed.split())
    for variant, more, command in (("base", [], []), ("other", options, behind)):
        run = succeeding(
            "-i", str(tmp_path / "two.yaml"), "run", "--dry-run", "--np", np, *more, "--", "bench", "--quick", *command
        )
        assert f"{lines[variant]}\n" == run.stdout


def test_the_order_is_that_of_the_seed_and_all_is_every_slot(ladder: Any) -> None:
    found = shown(ladder("--dry-run", "--json", "--seed", "7", sizes="[1, all]", more="warmUps: 1"))
    runs = found["runs"]
    assert [run["run"] for run in runs] == list(range(1, 13))
    assert {(run["variant"], run["ranks"]) for run in runs} == {(v, n) for v in ("base", "other") for n in (1, 4)}
    assert [run["warm_up"] for run in runs] == [True] * 4 + [False] * 8
    assert shown(ladder("--dry-run", "--json", "--seed", "7", sizes="[1, all]", more="warmUps: 1")) == found
    result = ladder("--dry-run", "--seed", "7", "--repeats", "1", "-H", "n1:2", sizes="[1, 2, 4]", more="warmUps: 0")
    assert "warning: left out because there are too few slots: 4 ranks" in result.stderr
    assert result.stdout.splitlines()[0] == "4 cells, 4 runs, in the order of seed 7:"
    assert "-H n1:2" in result.stdout


@pytest.mark.parametrize(("sizes", "is_refused"), [("[1]", False), ("[1, 2]", True), ("[1, all]", True)])
def test_a_launcher_as_the_program_is_refused_where_a_cell_has_several_ranks(
    sizes: str, is_refused: bool, ladder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cli.bench.test_ladder.MATRIX", MATRIX.replace("[bench,", "[torchrun, bench,"))
    result = ladder("--dry-run", sizes=sizes)
    assert ("the command is a launcher itself" in result.stderr) is is_refused
    assert (result.exit_code != 0) is is_refused


ALIKE = "the variants base, other start the same job on these hosts: they cannot differ"


@pytest.mark.parametrize(
    ("other", "sizes", "alike"),
    [
        ("", "[1, 2]", True),
        ("interface: bond0", "[1, 2]", True),
        ("knobs: {NCCL_DEBUG: INFO}", "[1, 2]", False),
        ("", "[1, 4]", False),
    ],
)
def test_variants_that_cannot_differ_are_named(other: str, sizes: str, alike: bool, ladder: Any) -> None:
    """A dry run contacts no host, so for several hosts it cannot know."""
    assert (ALIKE in ladder("--dry-run", other=other, sizes=sizes).stderr) == alike


@pytest.mark.parametrize(
    ("repeats", "said"),
    [
        ("1", "1 repeat gives no confidence intervals, so no difference will show (--repeats 5)"),
        # Student's t table, 1, 2 and 4 degrees of freedom, 95 %: 12.706 / sqrt 2, 4.303 / sqrt 3, 2.776 / sqrt 5
        ("2", "2 repeats give intervals of ±9.0 standard deviations, 5 give ±1.2: only large differences will show"),
        ("3", "3 repeats give intervals of ±2.5 standard deviations"),
        ("5", ""),
    ],
)
def test_too_few_repeats_are_named_before_any_run(repeats: str, said: str, ladder: Any) -> None:
    result = ladder("--dry-run", "--repeats", repeats)
    assert (f"warning: {said}" in result.stderr) == bool(said)
    assert bool(said) == ("repeat" in result.stderr)


@pytest.mark.parametrize(
    ("words", "matrix", "code", "said"),
    [
        ((), {"sizes": "[8, 16]"}, 2, "the hosts have 4 slots, but the smallest size is 8 ranks"),
        ((), {"other": "image: 'other:1'"}, 2, "loop in variant other: "),
        ((), {"other": "perHost: true"}, 2, "loop in variant other: perHost: launcher mpirun starts a process"),
        ((), {"other": "transprot: tcp"}, 2, "transprot"),
        (("-H", "n9"), {}, 2, "n9"),
        (("--repeats", "0"), {}, 2, "--repeats"),
    ],
)
def test_what_cannot_be_measured(
    words: tuple[str, ...], matrix: dict[str, str], code: int, said: str, ladder: Any
) -> None:
    result = ladder("--dry-run", *words, **matrix)
    assert result.exit_code == code
    assert said in result.stderr


def test_hosts_on_the_command_line_go_before_those_of_the_matrix(ladder: Any) -> None:
    found = shown(ladder("--dry-run", "--json", "-H", "n1:2", other="host: 'n2:2'", sizes="[2]"))
    assert ["-H n1:2" in line["line"] for line in found["lines"]] == [True, True]


def test_bench_run_tells_how_more_ranks_than_slots_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.bench.run.run_ladder.slots", lambda *_of: 2)
    result = failing("bench", "run", "--np", "1,2,4", "--", "true")
    assert result.endswith("hint: --np 1,2, or -H localhost:4 for more ranks than slots\n")
    assert "warning: 1 repeat gives no confidence intervals" in result


def test_without_a_matrix_those_that_are_shipped_are_named() -> None:
    assert "MATRIX is missing: name a file, or one of gputopology, lab, taco" in failing("bench", "ladder")
    assert "variants" in json.loads(call("bench", "ladder", "--schema").stdout)["properties"]


def test_the_time_budget_names_what_it_does_not_count() -> None:
    words = " ".join(call("bench", "ladder", "--help").stdout.split())
    assert "without waits in the queue and the time between runs" in words
