"""What `lab` says to type next names the lab that it was told of."""

import json
import os
from pathlib import Path

import pytest

from taco_launch.core.errors import TacoLaunchError
from taco_launch.lab import access
from taco_launch.lab import up as flow
from taco_launch.lab.docker import daemon, engine
from taco_launch.lab.docker.hosts import FoundHost
from taco_launch.lab.docker.labels import LabHost
from taco_launch.lab.down import RemovalResult
from taco_launch.lab.status import LabHostStatus, Status
from tests.support.command_line import call, failing
from tests.support.raisers import raiser


@pytest.mark.parametrize(
    ("name", "option", "word"), [("lab", "", "lab"), ("big", " --name big", "lab:big")], ids=["no name", "a name"]
)
def test_lab(name: str, option: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = () if name == "lab" else ("--name", name)
    host = LabHost(name, "gpu1", "10.0.0.1", 2, 2, "none")
    made = flow.Lab(name, (host, host), ("made",), (("gpu1", "paused"),))
    monkeypatch.setattr(flow, "plan", lambda *_args, **_more: flow.UpPlan((), ("create containers",)))
    monkeypatch.setattr(flow, "up", lambda *_args, **_more: made)
    said = call("lab", "up", *given).stderr
    assert f"taco-launch lab fault{option} gpu1 resume" in said
    assert said.endswith(f"next: taco-launch -i {word} setup\n")

    gone = RemovalResult(((name, 3),), (("images", "1 GB"),))
    monkeypatch.setattr("taco_launch.lab.down.down", lambda *_args, **_more: gone)
    assert f"(taco-launch lab down{option} --images removes them)" in call("lab", "down", *given).stderr
    assert "(taco-launch lab down --all --images removes them)" in call("lab", "down", "--all").stderr

    cut = Status(
        name, (LabHostStatus(host, "on", (), ""),), False, "registry:5000", "lab", "/password", "/authority", ""
    )
    monkeypatch.setattr("taco_launch.lab.status.status", lambda *_args: (cut,))
    shown = call("lab", "status").stdout
    up = f"taco-launch lab up{option}"
    for hint in (
        f"(incomplete; to continue: {up})",
        f"no image ({up} adds one if it is run from a checkout; or use taco-launch lab push{option} IMAGE)",
        f"({up} adds yours)\n",
    ):
        assert hint in shown
    assert f"taco-launch lab exec{option} gpu1 -- docker login" in shown


def test_an_inventory_of_a_lab_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "connect", raiser(engine.UnreachableError("no Docker Engine answers", engine._START)))
    for word, option in (("lab", ""), ("lab:big", " --name big")):
        said = call("-i", word, "facts").stderr
        assert said.endswith(f"let the lab start one: taco-launch lab up{option}\n")


@pytest.mark.parametrize(("name", "option", "word"), [("lab", "", "lab"), ("big", " --name big", "lab:big")])
def test_a_lab_without_a_training_image_leads_to_one(
    name: str, option: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a wheel: only a checkout has what the lab's own image is made of."""
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path))
    host = LabHost(name, "registry", "10.0.0.1", 0, 2, "none")
    made = flow.Lab(name, (host, host), (), has_image=False)
    monkeypatch.setattr(flow, "plan", lambda *_args, **_more: flow.UpPlan((), ()))
    monkeypatch.setattr(flow, "up", lambda *_args, **_more: made)
    said = call("lab", "up", "--name", name).stderr.splitlines()[-1]
    push, then = said.removeprefix("next: ").split(" (your own image for jobs), then ")
    assert push == f"taco-launch lab push{option} IMAGE"
    assert then == f"taco-launch -i {word} setup"

    monkeypatch.setattr("taco_launch.lab.status.one", lambda *_args: FoundHost(host, "c", "running"))
    monkeypatch.setattr("taco_launch.lab.registry.push", lambda *_args: None)
    words = [each.replace("IMAGE", "mine:1") for each in push.partition(",")[0].split()[1:]]
    files = access.access(os.environ, os.geteuid(), name)
    assert call(*words).stderr == "", "the lab of another user is left as it is"
    files.keep(files.known_hosts, "")
    assert call(*words).stderr == f"the lab now uses this image for training; next: {then}\n"
    assert files.image.read_text() == "registry:5000/mine:1\n"
    words[-1] = "mine:2"
    assert call(*words).stderr == "", "it has one"


def test_status_of_a_lab_of_another_user_names_no_file_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = LabHost("big", "gpu1", "10.0.0.1", 0, 2, "none")
    monkeypatch.setattr(engine, "connect", lambda _environ: None)
    monkeypatch.setattr("taco_launch.lab.docker.hosts.find", lambda _lab=None: [FoundHost(host, "running", "")])
    monkeypatch.setattr("taco_launch.lab.faults.in_force", lambda _found: ())
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path))
    shown = call("lab", "status").stdout
    assert str(tmp_path) not in shown
    assert "its password is not stored here" in shown
    assert "Training: not known here" in shown
    assert "the lab was made by another user or with another TACO_LAUNCH_STATE" in shown
    assert shown.endswith("taco-launch lab exec --name big gpu1 -- bash\n")
    registry = json.loads(call("lab", "status", "--json").stdout)["labs"][0]["registry"]
    assert (registry["password_file"], registry["authority_file"]) == (None, None)


@pytest.mark.parametrize(("lab", "name"), [("big", ("--name", "big")), (None, ("--all",))])
def test_down_tells_what_is_left_where_the_engine_hangs(
    lab: str | None, name: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def docker(*args: str) -> str:
        if args[:2] == ("volume", "rm"):
            raise TacoLaunchError(
                "docker volume rm: no answer in 120 s", hint="check whether it is running: docker info"
            )
        return "big" if args[:2] == ("volume", "ls") else ""

    monkeypatch.setattr(engine, "connect", lambda _environ: None)
    monkeypatch.setattr("taco_launch.lab.down.docker", docker)
    monkeypatch.setattr("taco_launch.lab.docker.hosts.find", lambda _lab=None: [])
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path))
    done = call("lab", "down", *name)
    of = "the labs" if lab is None else "the lab 'big'"
    assert done.exit_code == 1
    assert done.stderr == (
        f"error: docker volume rm: no answer in 120 s; these parts of {of} were not removed: volumes, networks, keys\n"
        "hint: check whether it is running: docker info; then run the command again to remove what is left: "
        f"taco-launch lab down {' '.join(name)}\n"
    )


def test_down_where_no_engine_runs_names_what_to_do_if_it_had_a_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "connect", raiser(engine.UnreachableError("no Docker Engine answers: no socket", None)))
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path))
    done = call("lab", "down")
    assert (done.exit_code, "this machine has no keys of a lab" in done.stderr) == (0, True)
    keys = tmp_path / "lab" / "lab" / "id_ed25519"
    keys.parent.mkdir(parents=True)
    keys.touch()
    for name, folder in (((), keys.parent), (("--all",), keys.parent.parent)):
        done = call("lab", "down", *name)
        assert (done.exit_code, keys.exists()) == (1, True)
        assert f"is not known, and its keys stay in {folder}\n" in done.stderr
        assert (
            f"then type: taco-launch lab down{''.join(f' {each}' for each in name)}; if that engine is gone"
            in done.stderr
        )


def test_changes_of_this_machine_are_shown_and_need_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ("install docker.io, iptables, iproute2 (apt-get)", "start a Docker Engine")
    monkeypatch.setattr(flow, "plan", lambda *_args, **_more: flow.UpPlan(machine, ("create containers",)))
    calls: list[object] = []

    def up(*_args: object, **_more: object) -> flow.Lab:
        calls.append(None)
        return flow.Lab("lab", (LabHost("lab", "gpu1", "10.0.0.1", 2, 2, "none"),), ("made",))

    monkeypatch.setattr(flow, "up", up)
    shown = call("lab", "up", "--dry-run")
    assert (shown.exit_code, shown.stdout.splitlines()) == (0, [*machine, "create containers"])
    refused = failing("lab", "up")
    assert f"  {machine[0]}\n  {machine[1]}\nerror: stdin is not a terminal" in refused
    assert "pass --yes" in refused
    assert calls == []
    assert call("lab", "up", "--yes").exit_code == 0
    assert len(calls) == 1


def test_an_engine_that_is_missing_is_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "connect", raiser(engine.UnreachableError("no Docker Engine answers", None)))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name == "dockerd" else f"/usr/bin/{name}")
    packages, start = daemon.needs({})
    assert packages == "install docker.io, iptables, iproute2 (apt-get)"
    assert start.startswith("start a Docker Engine")
    assert daemon.needs({"DOCKER_HOST": "tcp://10.0.0.1"}) == ()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert daemon.needs({}) == ()
