"""Jobs of a test of the queue: submitted to this machine, and what became of them; the queue's own processes."""

import json
import subprocess
from typing import Any

from tests.conftest import Taco, eventually
from tests.e2e.process_table import command_lines


def submit(taco: Taco, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return taco.ok("submit", "--name", name, *words)


def hold(taco: Taco, name: str = "holder", np: int = 2, *options: str) -> None:
    """Start a job that has its slots until it is stopped."""
    submit(taco, name, "--np", str(np), *options, "--", "sleep", "600")
    eventually(lambda: "running" in kinds(taco, name), what=f"{name} to run")


def events(taco: Taco, name: str) -> list[dict[str, Any]]:
    lines = (taco.folder(name) / "events.jsonl").read_text(encoding="ascii").splitlines()
    return [json.loads(line) for line in lines]


def kinds(taco: Taco, name: str) -> list[str]:
    return [event["kind"] for event in events(taco, name)]


def began(taco: Taco, name: str) -> float:
    return next(float(event["time"]) for event in events(taco, name) if event["kind"] == "placed")


def schedulers(taco: Taco) -> list[int]:
    """Return the processes that schedule for this test."""
    return of_queue(taco, "schedule")


def keepers(taco: Taco) -> list[int]:
    """Return the processes that start those again."""
    return of_queue(taco, "keep-queue")


def of_queue(taco: Taco, op: str) -> list[int]:
    own = str(taco.state)
    return [pid for pid, words in command_lines() if op in words and any(w.startswith(own) for w in words)]
