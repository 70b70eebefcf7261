"""list, get, top, exec and prune over real jobs: one truth, in Arena's words."""

import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.conftest import Taco, eventually
from tests.e2e.process_table import line, running
from tests.support.patience import patience

pytestmark = pytest.mark.e2e


def start(taco: Taco, name: str, *command: str) -> None:
    taco.ok("submit", "--name", name, "--np", "2", "--", *command)
    eventually(lambda: taco.job(name)["state"] != "STARTING", 20, f"{name} to run")


def lines(taco: Taco, *args: str) -> list[list[str]]:
    done = taco.ok(*args)
    return [line.split() for line in done.stdout.splitlines()]


def is_gone(argument: str) -> bool:
    return not running(argument)


def test_list_get_and_top_tell_the_same(taco: Taco) -> None:
    start(taco, "done", "true")
    taco.ended("done")
    start(taco, "train", "sleep", "600")
    listed, top, got = lines(taco, "list"), lines(taco, "top", "job"), lines(taco, "get", "train")
    assert [row[:5] for row in listed[1:]] == [
        ["train", "RUNNING", "mpirun", "2", "localhost"],
        ["done", "SUCCEEDED", "mpirun", "2", "localhost"],
    ]
    assert top[1][:6] == ["train", "RUNNING", "2", "2", "mpirun", "localhost"]
    assert not [row for row in top if row[:1] == ["done"]]
    assert [row[0] for row in lines(taco, "list", "-n", "1")[1:]] == ["train"]
    assert top[-1][-2:] == ["2", "held"]
    assert got[0] == ["STATUS:", "RUNNING"]
    assert ["HOSTS:", "localhost", "(ranks", "0-1)"] in got
    document = yaml.safe_load(taco("get", "train", "-o", "yaml").stdout)
    assert (document["kind"], document["status"]["conditions"][-1]["type"]) == ("MPIJob", "Running")
    assert document["status"]["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {"active": 1}}
    node = json.loads(taco("top", "node", "--json").stdout)["nodes"][0]
    assert (node["status"], node["role"]) == ("ready", "head")
    assert [slot["holder"]["job"] for slot in node["slots"] if slot["holder"]] == ["train", "train"]
    taco("stop", "train", "--grace", "0")
    node = json.loads(taco("top", "node", "--json").stdout)["nodes"][0]
    assert node["free"] == node["total"]


def test_only_some_are_listed(taco: Taco) -> None:
    start(taco, "a", "true")
    taco.ended("a")
    for options, names in (
        (("--mine",), ["a"]),
        (("--state", "succeeded", "--state", "FAILED"), ["a"]),
        (("--state", "running"), []),
        (("--queue", "default"), ["a"]),
        (("--queue", "night"), []),
    ):
        assert [row[0] for row in lines(taco, "list", *options)[1:]] == names, options
    assert "unknown state 'done'; states: QUEUED" in taco("list", "--state", "done").stderr


def test_exec(taco: Taco, tmp_path: Path) -> None:
    taco.env["GREETING"] = "it's $HOME"
    taco.ok("submit", "--name", "e", "--np", "2", "-x", "GREETING", "--", "sleep", "600", cwd=tmp_path)
    eventually(lambda: taco.job("e")["state"] == "RUNNING")
    script = 'echo "$RANK $WORLD_SIZE $TACO_LAUNCH_JOB $GREETING"; pwd; echo no >&2; exit 7'
    told = taco("exec", "e", "--rank", "1", "--", "sh", "-c", script)
    assert (told.stdout, told.stderr, told.returncode) == (f"1 2 e it's $HOME\n{tmp_path}\n", "no\n", 7)
    assert taco("exec", "e", "--rank", "2", "--", "true").returncode == 2
    assert taco("exec", "e", "--", "nosuchprogram").returncode == 127
    assert taco.job("e")["state"] == "RUNNING"


def test_what_exec_runs_ends_with_the_job_and_with_its_caller(taco: Taco) -> None:
    start(taco, "e", "sleep", "600")
    for end in ("interrupt", "stop"):
        seconds = f"{3600 + ord(end[0])}.{os.getpid():08}"  # nobody else's
        process = taco.start(
            "exec", "e", "--", "sh", "-c", f"trap '' TERM; echo on; sleep {seconds}; true", start_new_session=True
        )
        assert line(process) == b"on\n"
        eventually(partial(running, "sleep", seconds))
        if end == "interrupt":
            process.send_signal(signal.SIGINT)
        else:
            assert taco("stop", "e", "--grace", "1").returncode == 0
        assert process.wait(patience(20)) in (130, 137)
        process.communicate()
        eventually(partial(is_gone, seconds), 10, f"it to be gone after {end}")
    assert taco.job("e")["state"] == "CANCELLED"


def test_watch(taco: Taco) -> None:
    start(taco, "w", "true")
    begin = time.monotonic()
    process = taco.start("list", "-w")
    shown = [line(process)]
    while shown.count(b"\n") < 2:  # what ends a screen
        shown.append(line(process))
        assert shown[-1], shown
    assert time.monotonic() - begin > 2  # from its start: what is read may have been written long before
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=patience(10))
    screens = b"".join(shown) + out
    assert shown[0].startswith(b"NAME  STATUS")
    assert (screens.count(b"NAME  STATUS"), err.strip(), process.returncode) == (screens.count(b"\n\n"), b"", 130)
    assert taco("get", "w", "-w", "--json").returncode == 2


def test_prune(taco: Taco) -> None:
    for name in ("a", "b"):
        start(taco, name, "true")
        taco.ended(name)
    start(taco, "c", "sleep", "600")
    assert lines(taco, "prune", "--since", "1h") == []
    dry = taco("prune", "--since", "0s", "--dry-run")
    assert [line.split()[0] for line in dry.stdout.splitlines()[1:]] == ["b", "a"]
    assert dry.stderr == "2 jobs would be removed\n"
    assert taco("prune", "--since", "0s").stderr == "2 jobs removed\n"
    assert [row[0] for row in lines(taco, "list")[1:]] == ["c"]
    assert taco("prune").returncode == 2
