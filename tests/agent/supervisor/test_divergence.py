"""--fail-on nan, and retries that are tied to hosts."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from taco_launch.agent.supervisor import deadlines, starting, supervised_attempt
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState, Policy
from tests.support.attempts import Made, make

HOSTS = (Host("gpu1", "10.0.0.1"), Host("gpu2", "10.0.0.2"))
SPEC = JobSpec("j", ("true",), HOSTS, policy=Policy(retry_on="same-host"))
AGAIN = JobRecord("1", JobState.RESTARTING, attempt=1, hosts=("gpu2",))


@pytest.fixture
def job(tmp_path: Any) -> Made:
    found = make(tmp_path)
    found.begin()
    return found


@pytest.mark.parametrize(("fail_on", "loss", "ends"), [("nan", "nan", True), ("nan", "0.5", False), ("", "nan", False)])
def test_a_loss_that_is_not_a_number_ends_the_job(job: Made, fail_on: str, loss: str, ends: bool) -> None:
    for step in range(4):
        job.write(0, f"step {step}/9 loss: {loss}\n".encode())
    end = deadlines.diverged(job.folder, Policy(fail_on=fail_on))
    assert (end is not None) == ends
    if end is not None:
        assert (end.state, end.exit_code, end.reason) == (
            JobState.FAILED,
            1,
            "the loss of rank 0 is not a number (--fail-on nan)",
        )


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        (["Epoch [1/10], Step [400/60000], Loss: nan"] * 2, True),
        (["epoch 4: loss=nan"] * 2, True),
        (["epoch 12 train loss nan"] * 2, True),
        (["{'loss': nan, 'lr': 0.1}"] * 2, True),
        (["step 1 val_loss: inf lr: 0.1"] * 2, True),
        (["loss: nan val_loss: 0.4"] * 2, True),
        (["loss: nan"], False),  # one step that is left out is no end
        (["loss: nan", "loss: nan", "loss: 0.5"], False),
        (["loss 0.52 best_train_loss inf best val loss: inf", "min_loss=inf"] * 2, False),
        (["loss scale: 0.5", "lossless: nan", "nan is no loss", "loss information"] * 2, False),
        (["loss: nano"] * 2, False),
    ],
)
def test_forms_in_which_a_loss_is_printed(job: Made, lines: list[str], *, ends: bool) -> None:
    """By any rank, whatever the others print."""
    for step in range(4):
        job.write(0, f"step {step}/9 loss: 0.5\n".encode())
    job.write(1, "".join(f"{line}\n" for line in lines).encode())
    assert (deadlines.diverged(job.folder, Policy(fail_on="nan")) is not None) == ends


def test_the_output_is_read_now_and_then(job: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(deadlines, "diverged", lambda folder, _policy: looks.append(folder))
    watch = deadlines.Divergence(job.folder, Policy(fail_on="nan"))
    watch.step()
    assert not looks
    monkeypatch.setattr(deadlines, "_LOSS_SECONDS", 0.0)
    watch = deadlines.Divergence(job.folder, Policy(fail_on="nan"))
    watch.step()
    assert len(looks) == 1


def test_a_retry_has_the_hosts_of_the_attempt_before() -> None:
    found = supervised_attempt._for_retry(SPEC, AGAIN)
    assert (found.hosts, found.head) == (HOSTS[1:], "gpu1")
    assert supervised_attempt._for_retry(SPEC, replace(AGAIN, attempt=0)) is SPEC
    free = replace(SPEC, policy=Policy())
    assert supervised_attempt._for_retry(free, AGAIN) is free


def test_a_retry_elsewhere_is_told_of() -> None:
    attempt: Any = SimpleNamespace(record=AGAIN, number=2)
    assert list(starting._moved(attempt, ["gpu2"])) == []
    (told,) = starting._moved(attempt, ["gpu1", "gpu2"])
    assert told.startswith("attempt 2 runs on gpu1: files that attempt 1 wrote on its hosts alone are not there; ")
    attempt.record = replace(AGAIN, hosts=())
    assert list(starting._moved(attempt, ["gpu1"])) == []
