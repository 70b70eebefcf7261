"""What setup and teardown show: lines on a terminal, the last line, Ctrl-C."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from taco_launch.cli.main import cli
from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import render, setup_output
from taco_launch.core.errors import HostError
from taco_launch.core.facts.reports.health.verdict import HealthVerdict
from taco_launch.hosts.inventory.load import load
from taco_launch.setup.apply import setup_run as setup_flow
from taco_launch.setup.apply import teardown_run as flow
from taco_launch.setup.apply.findings import Findings
from taco_launch.setup.apply.host_ops import SetupEvent
from taco_launch.setup.apply.setup_run import HostResult, SetupResult
from taco_launch.setup.model.ops import Op, ProofFailure
from taco_launch.setup.plan.host_plan import HostPlan
from tests.support.raisers import raiser


def test_lines_on_a_terminal_say_for_how_long_a_step_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: Callable[[], Sequence[str]] = list

    @contextmanager
    def shown(_settings: Settings, asked: Callable[[], Sequence[str]]) -> Iterator[bool]:
        nonlocal lines
        lines = asked
        yield True

    clock = [100.0]
    monkeypatch.setattr(render, "host_lines", shown)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = setup_output.SetupProgress(Settings())
    pull = Op("image", "pull train", "it is not here")
    with progress.live(("gpu1", "gpu2"), (HostPlan("gpu1", (pull,)), HostPlan("gpu2", (pull,)))):
        assert lines() == ["gpu1: waits", "gpu2: waits"]
        progress.step(SetupEvent("gpu1", "image", "pull train", "begins"))
        clock[0] += 7
        none = "stage 4 of 7, image: done on 0 of 2 hosts"
        assert lines() == ["gpu1: (7 s) stage 4 of 7, image: pull train", "gpu2: waits", none]
        progress.step(SetupEvent("gpu1", "image", "pull train: 2 of 7 layers", "begins"))
        assert lines()[0] == "gpu1: (7 s) stage 4 of 7, image: pull train: 2 of 7 layers"
        progress.step(SetupEvent("gpu1", "image", "pull train", "done"))
        clock[0] += 5
        one = "stage 4 of 7, image: done on 1 of 2 hosts"
        assert lines() == ["gpu1: stage 4 of 7, image: pull train: done (7 s)", "gpu2: waits", one]
        progress.proof("proof: mpirun")
        assert lines()[2:] == ["proof: mpirun"]
        assert capsys.readouterr().err == ""
    monkeypatch.undo()
    setup_output.SetupProgress(Settings()).proof("proof: mpirun")
    assert capsys.readouterr().err == "proof: mpirun\n"


@pytest.mark.parametrize("page", ["guides/setup.md", "zh/setup.md"])
def test_the_guides_show_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], page: str
) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text(encoding="utf-8")
    clock = [100.0]
    lines: list[Callable[[], Sequence[str]]] = []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    pull = "pull registry:5000/train-cpu:abbc2b0b79e4"
    op = Op("image", pull, "it is not here")

    def play(progress: setup_output.SetupProgress, *steps: tuple[float, str, str, str]) -> None:
        for seconds, host, more, kind in steps:
            clock[0] = 100 + seconds
            progress.step(SetupEvent(host, "image", pull + more, kind))  # type: ignore[arg-type]

    begins = (0, "gpu1", "", "begins"), (0, "gpu2", "", "begins"), (5, "gpu1", ": 1 of 7 layers", "begins")
    play(
        setup_output.SetupProgress(Settings()),
        *begins,
        (20, "gpu1", ": 2 of 7 layers", "begins"),
        (21, "gpu2", "", "done"),
        (29, "gpu1", ": 3 of 7 layers", "begins"),
        (40, "gpu1", "", "done"),
    )
    assert f"```text\n{capsys.readouterr().err}```" in text

    @contextmanager
    def shown(_settings: Settings, asked: Callable[[], Sequence[str]]) -> Iterator[bool]:
        lines.append(asked)
        yield True

    monkeypatch.setattr(render, "host_lines", shown)
    progress = setup_output.SetupProgress(Settings())
    with progress.live(("gpu1", "gpu2"), (HostPlan("gpu1", (op,)), HostPlan("gpu2", (op,)))):
        play(progress, *begins, (21, "gpu2", "", "done"), (29, "gpu1", ": 3 of 7 layers", "begins"))
        clock[0] = 133
        told = "\n".join(lines[0]())
    assert f"```text\n{told}\n```" in text


def test_without_a_terminal_a_long_step_tells_how_far_it_is_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = setup_output.SetupProgress(Settings(), ("docker", "image"))
    for layer in range(25):
        progress.step(SetupEvent("gpu1", "image", f"pull train: {layer} of 25 layers", "begins"))
        clock[0] += 1
    progress.step(SetupEvent("gpu1", "image", "pull train", "done"))
    progress.step(SetupEvent("gpu1", "image", "look at it", "begins"))
    assert capsys.readouterr().err.splitlines() == [
        "gpu1: stage 2 of 2, image: pull train: 10 of 25 layers",
        "gpu1: stage 2 of 2, image: pull train: 20 of 25 layers",
        "gpu1: stage 2 of 2, image: pull train: done (25 s)",
    ]


def test_lines_of_files_keep_their_tabs() -> None:
    assert render.file_line("+a\tb\t\x1b[1m") == "+a\tb\t\\x1b[1m"


def test_the_last_line_counts_hosts_and_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("cluster: c\nhosts: {gpu1: {}, gpu2: {}}\n")
    inventory = load(str(tmp_path / "c.yaml"), {})

    def said(*flaws: ProofFailure, error: HostError | None = None) -> tuple[int, str]:
        done = SetupResult((HostResult("gpu1", 1), HostResult("gpu2", 0, error)), flaws, "")
        code = setup_output.show_done(Settings(), done, inventory, 3, ("ready", "failed"))
        return code, capsys.readouterr().err.splitlines()[-1]

    flaw = ProofFailure(("gpu1",), "cannot reach gpu2", "timed out")
    rerun = " (see the errors above) and rerun the command: completed steps are skipped"
    assert said() == (0, "2 of 2 hosts ready after 3 s")
    assert said(flaw) == (5, f"1 of 2 hosts ready after 3 s, and 1 fault was found; fix gpu1{rerun}")
    typed = "taco-launch -i c.yaml setup --only ssh_mesh"
    unaware = ProofFailure(("gpu3",), "has an outdated host list", "only gpu2 was set up", typed, is_fault=False)
    done = SetupResult((HostResult("gpu2", 1),), (unaware,), "")
    assert setup_output.show_done(Settings(), done, inventory, 3, ("ready", "failed")) == 5
    assert capsys.readouterr().err == (
        f"1 of 1 host ready after 3 s\ngpu3 has an outdated host list: only gpu2 was set up; next: {typed}\n"
    )
    elsewhere = ProofFailure(("gpu1",), "cannot reach gpu2", "timed out", at=("gpu2",))
    done = SetupResult((HostResult("gpu1", 1), HostResult("gpu2", 0)), (elsewhere,), "")
    assert setup_output.show_done(Settings(), done, inventory, 3, ("ready", "failed")) == 5
    told = capsys.readouterr()
    assert [line.split()[:2] for line in told.out.splitlines()[1:]] == [["gpu1", "ready"], ["gpu2", "fault"]]
    mended = "; fault that set-up did not fix: gpu2, see above"
    failed = HealthVerdict("fabric manager", "fault", "is failed", "NVIDIA")
    broken = Findings(((failed, ("gpu2",)),), ())
    done = SetupResult((HostResult("gpu1", 1), HostResult("gpu2", 0)), (), "")
    assert setup_output.show_done(Settings(), done, inventory, 3, ("ready", "failed"), broken) == 3
    told = capsys.readouterr()
    assert [line.split()[:2] for line in told.out.splitlines()[1:]] == [["gpu1", "ready"], ["gpu2", "fault"]]
    assert told.err == f"1 of 2 hosts ready after 3 s{mended}\n"
    as_json = Settings(output="json")
    assert setup_output.show_done(as_json, replace(done, found=(flaw,)), inventory, 3, ("ready", "failed"), broken) == 5
    document = json.loads(capsys.readouterr().out)
    assert [each["state"] for each in document["hosts"]] == ["fault", "fault"]
    assert document["remarks"][0]["name"] == "fabric manager"
    assert said(error=HostError("gpu2: no")) == (5, f"1 of 2 hosts ready after 3 s; fix gpu2{rerun}")
    done = SetupResult((HostResult("gpu1", 1), HostResult("gpu2", 0, HostError("gpu2: no"))), (), "")
    assert setup_output.show_done(Settings(), done, inventory, 3, ("ready", "failed"), told={"gpu2"}) == 5
    assert "gpu2: no" not in capsys.readouterr().err, "it was shown with the plan"


def test_teardown_of_nothing_and_its_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("cluster: c\ncontainer: {image: train}\nhosts: {gpu1: {}}\n")
    plans = [HostPlan("gpu1", (), ())]
    monkeypatch.setattr(flow.Teardown, "refresh", lambda *_args: tuple(plans))
    words = ("-i", str(file), "teardown", "--yes")
    told = CliRunner().invoke(cli, (*words, "--json"))
    assert (told.exit_code, json.loads(told.stdout)["hosts"][0]["state"]) == (0, "clear")
    plans[:] = [HostPlan("gpu1", (Op("container", "remove it", "", ":"),), ())]
    monkeypatch.setattr(flow.Teardown, "apply", raiser(KeyboardInterrupt()))
    stopped = CliRunner().invoke(cli, (*words, "--images", "--host", "gpu1"))
    assert stopped.exit_code == 130
    again = f"taco-launch -i {file} teardown -H gpu1 --images\n"
    assert stopped.stderr.endswith(
        f"interrupted: each host still finishes the step that it has started; to continue: {again}"
    )


@pytest.mark.parametrize("verb", ["setup", "teardown"])
def test_no_is_an_answer(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("cluster: c\ncontainer: {image: train}\nhosts: {gpu1: {}}\n")
    plans = (HostPlan("gpu1", (Op("container", "change it", "", ":"),), ()),)
    monkeypatch.setattr(flow.Teardown, "refresh", lambda *_args: plans)
    monkeypatch.setattr(setup_flow.Setup, "refresh", lambda *_args: None)
    monkeypatch.setattr(setup_flow.Setup, "plan", lambda *_args: plans)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
    refused = CliRunner().invoke(cli, ("-i", str(file), verb), input="n\n")
    assert refused.exit_code == 1
    assert refused.stderr.endswith("nothing was done\n")


def test_setup_goes_on_with_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("cluster: c\ncontainer: {image: train}\nhosts: {gpu1: {}}\n")
    monkeypatch.setattr(setup_flow.Setup, "refresh", lambda *_args: None)
    monkeypatch.setattr(
        setup_flow.Setup, "plan", lambda *_args: (HostPlan("gpu1", (Op("image", "pull it", "", ":"),), ()),)
    )
    monkeypatch.setattr(setup_flow.Setup, "apply", raiser(KeyboardInterrupt()))
    words = ("--yes", "--only", "image", "--only", "docker", "--disrupt", "docker", "--pull")
    stopped = CliRunner().invoke(cli, ("-i", str(file), "setup", *words))
    assert stopped.exit_code == 130
    assert stopped.stderr.endswith(
        f"to continue: taco-launch -i {file} setup --only docker,image --disrupt docker --pull\n"
    )
