"""Watches of hosts: what they tell, that they end and are started again, that none is left."""

import json
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent.scheduler.slot_watch import HERE, SlotQuery, SlotWatchers
from tests.agent.conftest import write_agent
from tests.conftest import eventually

WISH = SlotQuery(HERE, "2", "auto")
# `watch SIZE GPUS`: says each line of a file as it comes, and `nudged` where its stdin does.
AGENT = """
import os, select, sys, time
here = os.path.dirname(sys.argv[0])
with open(here + "/started", "a") as started:
    started.write(" ".join(sys.argv[1:]) + "\\n")
said = 0
while True:
    lines = open(here + "/lines").read().splitlines()
    for line in lines[said:]:
        if line == "end":
            sys.exit("it has ended")
        print(line, flush=True)
    said = len(lines)
    if select.select([0], [], [], 0.01)[0]:
        if not os.read(0, 10):
            open(here + "/gone", "w").close()
            sys.exit()
        open(here + "/nudged", "w").close()
"""


def line(*holders: str) -> str:
    """Return what `agent watch` says."""
    slots = [
        {
            "name": f"slot-{number}",
            "holder": {"job": job, "id": job, "since": 0.0, "cluster": "", "owner": ""} if job else None,
            "foreign": "",
        }
        for number, job in enumerate(holders)
    ]
    return json.dumps({"host": "me", "occupancy": {"host": "me", "slots": slots, "gpus": 0}})


class Watched:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_agent(folder / "agent.pyz", AGENT)
        self.say()
        self.watchers = SlotWatchers(str(folder / "agent.pyz"))

    def say(self, *lines: str) -> None:
        with (self.folder / "lines").open("a") as file:
            file.writelines(f"{text}\n" for text in lines)

    def step(self, *wishes: SlotQuery, ahead: float = 0.0) -> None:
        self.watchers.want(frozenset(wishes), time.monotonic() + ahead)
        descriptors = self.watchers.descriptors()
        if descriptors:
            self.watchers.read(select.select(descriptors, [], [], 0.05)[0])

    def free(self, *wishes: SlotQuery, ahead: float = 0.0) -> int | None:
        self.step(*wishes, ahead=ahead)
        found = self.watchers.occupancies().get(WISH)
        return None if found is None else found.free

    def started(self) -> list[str]:
        file = self.folder / "started"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    yield found
    found.watchers.close()


def test_the_last_line_counts(watched: Watched) -> None:
    watched.say("welcome to this machine", line("a", "a"), line("a", ""))
    eventually(lambda: watched.free(WISH) == 1)
    watched.say(line("", ""))
    eventually(lambda: watched.free(WISH) == 2)
    assert watched.started() == ["watch 2 auto"]
    assert watched.watchers.down() == {}


def test_a_host_that_is_wanted_no_longer_is_not_watched(watched: Watched) -> None:
    watched.say(line("", ""))
    eventually(lambda: watched.free(WISH))
    watched.step()
    assert watched.watchers.occupancies() == {}
    assert watched.watchers.descriptors() == []


def test_a_nudge_comes_over(watched: Watched) -> None:
    watched.say(line("", ""))
    eventually(lambda: watched.free(WISH))
    watched.watchers.nudge()
    eventually((watched.folder / "nudged").exists)


def test_a_watch_that_ends_is_begun_again_after_a_while(watched: Watched) -> None:
    watched.say(line("", ""), "end")
    eventually(lambda: watched.free(WISH) is None and watched.watchers.down())
    assert watched.watchers.down() == {HERE: "it has ended"}
    watched.step(WISH)
    assert len(watched.started()) == 1
    (watched.folder / "lines").write_text(line("a", "") + "\n")
    eventually(lambda: watched.free(WISH, ahead=5) == 1)
    assert watched.watchers.down() == {}
    assert len(watched.started()) == 2


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('{"host": "", "problem": "nobody knows how many"}', "nobody knows how many"),
        ('{"host": "me", "occupancy": {"slots": 7}}', "occupancy.slots: a list is needed"),
    ],
)
def test_what_is_no_answer(watched: Watched, said: str, why: str) -> None:
    watched.say(said)
    eventually(lambda: watched.free(WISH) is None and watched.watchers.down())
    assert why in watched.watchers.down()[HERE]


@pytest.mark.parametrize("broken", [False, True])
def test_a_host_that_has_not_got_the_agent_is_given_it(
    tmp_path: Path, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the start of a job; once, where it cannot be put there."""
    here, there = tmp_path / "state/agent", tmp_path / "state/jobs/.agents"
    for folder in (here, there, tmp_path / "bin"):
        folder.mkdir(parents=True)
    (there / "lines").write_text(line("a", "") + "\n")
    script = tmp_path / "bin/ssh"  # the other host is this one, without the head's own agent
    full = 'case $last in *"wc -c"*) echo the disk is full >&2; exit 1; esac\n' if broken else ""
    run = f'exec sh -c "$(printf %s "$last" | sed s#{here}/#/nowhere/#)"\n'
    script.write_text(f"#!/bin/sh\nfor last; do :; done\n{full}{run}")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    found, wish = Watched(here), WISH._replace(host="n2")
    try:
        if broken:
            eventually(lambda: found.free(wish) is None and found.watchers.down())
            why = f"the agent cannot be copied to {there}: the disk is full"
            assert found.watchers.down() == {"n2": why}
            eventually(lambda: found.free(wish) is None and "can't open file" in found.watchers.down()["n2"])
            return
        eventually(lambda: found.free(wish) is None and found.watchers.occupancies())
        assert found.watchers.occupancies()[wish].free == 1
        assert found.watchers.down() == {}
    finally:
        found.watchers.close()


def test_a_host_that_says_nothing(watched: Watched) -> None:
    watched.step(WISH)
    assert watched.watchers.down() == {}
    watched.step(WISH, ahead=60)
    assert watched.watchers.down() == {HERE: "sent nothing within 40 s"}


def test_a_line_without_an_end_ends_a_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.agent.scheduler.slot_watch.LINE_BYTES", 1 << 12)
    (tmp_path / "lines").write_text("x" * (1 << 16) + "\n")
    found = Watched(tmp_path)
    write_agent(tmp_path / "agent.pyz", AGENT.replace("print(line, flush=True)", "print(line, end='', flush=True)"))
    try:
        eventually(lambda: found.free(WISH) is None and found.watchers.down())
        assert found.watchers.down() == {HERE: "sent a line of more than 4096 bytes"}
    finally:
        found.watchers.close()
