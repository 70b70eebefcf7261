"""The end of a merged log: the last line of a rank, and the progress that it tells."""

import time
from pathlib import Path

import pytest

from taco_launch.agent.logs import output_end
from taco_launch.agent.logs.segments import Writer
from taco_launch.agent.store.folders import JobFolder
from tests.support.patience import HANG

AT = 1_795_700_000_000_000


def written(tmp_path: Path, *lines: str, apart: int = 1_000_000) -> Path:
    tmp_path.mkdir(exist_ok=True)
    writer = Writer(tmp_path / "merged", 1 << 24)
    for number, line in enumerate(lines):
        writer.write(f"{line}\n".encode(), AT + number * apart)
    writer.close()
    return tmp_path / "merged"


def test_the_last_line_is_that_of_a_rank(tmp_path: Path) -> None:
    found = output_end.read(
        written(tmp_path, "gpu1/0 | hello", "gpu2/11 | \x41 b\rgpu2/11 | c", "gpu1/0 |  ", "mpirun: x")
    )
    assert (found.labelled, found.line, found.progress) == ("gpu2/11 | c", "c", None)
    assert output_end.read(tmp_path / "none") == output_end.OutputEnd()


def test_progress_is_of_the_first_rank_that_tells_some(tmp_path: Path) -> None:
    lines = [f"gpu1/{rank} | step {step}/200 | loss 0.5 | norm 1 | 1,234 tok/s" for step in range(5) for rank in (3, 1)]
    found = output_end.read(written(tmp_path, *lines)).progress
    assert found is not None
    assert (found.rank, found.step, found.total, found.rate) == (1, 4, 200, 1234)
    assert found.eta == pytest.approx(196 * 2)
    assert found.text(found.time + 50) == "step 4/200, loss 0.5, 1234 tokens/s, 6m32s left"
    assert found.text(found.time + 95) == "step 4/200, loss 0.5, 1234 tokens/s, no line for 1m35s"
    assert found.text(None) == "step 4/200, loss 0.5, 1234 tokens/s"


def test_a_loss_that_is_no_number_is_told_as_that(tmp_path: Path) -> None:
    lines = [f"gpu1/0 | step {step}/200 | loss nan | norm 1 | 1,234 tok/s" for step in range(3)]
    found = output_end.read(written(tmp_path, *lines)).progress
    assert found is not None
    assert (found.loss, found.diverged) == (None, True)
    assert "loss is not a number" in found.text(None)


@pytest.mark.parametrize(
    "line", ["Epoch 1 step {} loss: nan", "{{'loss': nan, 'step': {}}}", "Step {}, train loss: nan"]
)
def test_a_loss_in_any_form_of_line(tmp_path: Path, line: str) -> None:
    found = output_end.read(written(tmp_path, *(f"gpu1/3 | {line.format(step)}" for step in range(3)))).progress
    assert found is not None
    assert (found.rank, found.loss, found.diverged) == (3, None, True)
    assert "loss is not a number" in found.text(None)


def test_progress_is_of_the_present_attempt(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path).of_attempt(2)
    lines = [f"step {step}/200 | loss 0.5 | norm 1 | 1,234 tok/s" for step in (100, 101, 102, 1, 2, 3)]
    merged = written(tmp_path / "logs", *(f"gpu1/0 | {line}" for line in lines))
    before = output_end.read(merged, "", folder).progress
    folder.rank(0).parent.mkdir()
    own = Writer(folder.rank(0), 1 << 20)
    own.write(f"{lines[3]}\n".encode(), AT + 3_000_000)
    own.close()
    found = output_end.read(merged, "", folder).progress
    assert before is not None  # its rank has written nothing: there is only what the last attempt told
    assert found is not None
    assert found.step == 3
    assert found.steps_per_second == pytest.approx(1.0)


def test_when_the_first_step_was_printed(tmp_path: Path) -> None:
    lines = ["loading", "it 7 of 9", *(f"step {step}/200 | loss 0.5 | norm 1 | 1,234 tok/s" for step in range(3))]
    log = written(tmp_path, *lines)
    assert output_end.first_step(log) == AT / 1e6 + 2
    assert output_end.first_step(log, r"it (?P<step>\d+) of (?P<total>\d+)") == AT / 1e6 + 1
    assert output_end.first_step(written(tmp_path / "other", "loading")) is None
    assert output_end.first_step(tmp_path / "none") is None


def test_of_a_long_log_the_end_is_read(tmp_path: Path) -> None:
    noise = [f"gpu1/0 | {'x' * 1000}"] * 1000
    lines = [f"gpu1/0 | Iter #{step}: 11.0 img/sec per CPU" for step in range(3)]
    assert output_end.read(written(tmp_path, *lines, *noise)).progress is None
    assert output_end.read(written(tmp_path, *noise, *lines)).progress is not None


def test_a_users_pattern_reads_its_own_lines(tmp_path: Path) -> None:
    lines = [f"gpu1/0 | it {step} of 9 :: L=0.5" for step in range(4)]
    merged = written(tmp_path, *lines)
    assert output_end.read(merged).progress is None
    found = output_end.read(merged, r"it (?P<step>\d+) of (?P<total>\d+) :: L=(?P<loss>[\d.]+)").progress
    assert found is not None
    assert (found.step, found.total, found.loss) == (3, 9, 0.5)


def test_a_pattern_that_takes_for_ever_costs_a_second(tmp_path: Path) -> None:
    merged = written(tmp_path, *[f"gpu1/0 | {'a' * 500}"] * 200)
    begun = time.monotonic()
    found = output_end.read(merged, r".*a.*a.*a.*a.*b(?P<step>\d+)")
    assert (found.line, found.progress) == ("a" * 200, None)
    assert time.monotonic() - begun < HANG


def test_a_loss_of_an_earlier_attempt_is_not_that_of_the_present_one(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path).of_attempt(2)
    lines = ["loss: nan", "loss: nan", "loading", "gradient norm nan"]
    merged = written(tmp_path / "logs", *(f"gpu1/0 | {line}" for line in lines))
    folder.rank(0).parent.mkdir()
    own = Writer(folder.rank(0), 1 << 20)
    own.write(b"loading\n", AT + 2_000_000)
    own.close()
    assert output_end.ranks_without_a_number(merged) == [0]
    assert output_end.ranks_without_a_number(merged, folder) == []
    assert output_end.read(merged, "", folder).progress is None
