"""The agent's own operations: each entry exists, and takes the arguments that the table names."""

import importlib
import inspect
from pathlib import Path

import pytest

from taco_launch.agent.__main__ import _NEEDS_AGENT, COMMAND, OPERATIONS, named_arguments
from taco_launch.agent.api.serve import _MODULES


@pytest.mark.parametrize("op", OPERATIONS)
def test_an_entry_takes_the_words_of_its_operation(op: str) -> None:
    operation = OPERATIONS[op]
    module = importlib.import_module(f"taco_launch.agent.{operation.module}")
    signature = inspect.signature(getattr(module, operation.function))
    named = dict.fromkeys(operation.words, "")
    signature.bind(**named, **({"agent": ""} if op in _NEEDS_AGENT else {}))


def test_no_operation_hides_a_call_of_the_controller() -> None:
    assert OPERATIONS.keys().isdisjoint(op for ops in _MODULES for op in ops)
    assert OPERATIONS.keys() >= _NEEDS_AGENT


def test_words_become_arguments() -> None:
    words = {"first": int, "state": Path, "dry_run": bool, COMMAND: str}
    assert named_arguments(words, ["3", "/x", "y", "--", "--", "a"]) == {
        "first": 3,
        "state": Path("/x"),
        "dry_run": True,
        COMMAND: ["--", "a"],
    }
    assert named_arguments({"job_id": str, "leases": str}, ["j"]) == {"job_id": "j"}
