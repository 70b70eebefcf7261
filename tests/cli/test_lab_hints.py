"""What `lab` says to type next names the lab that it was told of."""

import pytest

from taco_launch.lab import up as flow
from taco_launch.lab.down import RemovalResult
from taco_launch.lab.labels import LabHost
from taco_launch.lab.status import LabHostStatus, Status
from tests.cli.test_cli import call


@pytest.mark.parametrize(
    ("name", "option", "word"), [("lab", "", "lab"), ("big", " --name big", "lab:big")], ids=["no name", "a name"]
)
def test_lab(name: str, option: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = () if name == "lab" else ("--name", name)
    host = LabHost(name, "gpu1", "10.0.0.1", 2, 2, "none")
    made = flow.Lab(name, (host, host), ("made",), (("gpu1", "paused"),))
    monkeypatch.setattr(flow, "up", lambda *_args, **_more: made)
    said = call("lab", "up", *given).stderr
    assert f"taco-launch lab fault{option} gpu1 resume" in said
    assert said.endswith(f"next: taco-launch -i {word} inventory; taco-launch lab status{option}\n")

    gone = RemovalResult(((name, 3),), (("images", "1 GB"),))
    monkeypatch.setattr("taco_launch.lab.down.down", lambda *_args, **_more: gone)
    assert f"(taco-launch lab down{option} --images removes them)" in call("lab", "down", *given).stderr
    assert "(taco-launch lab down --all --images removes them)" in call("lab", "down", "--all").stderr

    cut = Status(
        name, (LabHostStatus(host, "on", (), ""),), False, "registry:5000", "lab", "/password", "/authority", ""
    )
    monkeypatch.setattr("taco_launch.lab.status.status", lambda *_args: (cut,))
    shown = call("lab", "status").stdout
    for hint in ("(cut short: {} goes on)", "no image ({} puts one there)", "the keys are not here: {}\n"):
        assert hint.format(f"taco-launch lab up{option}") in shown
    assert f"taco-launch lab exec{option} gpu1 -- docker login" in shown
