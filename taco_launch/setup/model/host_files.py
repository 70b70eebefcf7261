"""What of set-up's files is on a host, by its facts: which of those that are wanted differ, and what exists after them."""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

from taco_launch.core.model.host.fact_value import Unknown
from taco_launch.core.model.host.facts import HostFacts, SetupFile, SetupState
from taco_launch.setup.model.ops import FileTarget, Problem, Stage


def files_of(facts: HostFacts) -> dict[str, SetupFile] | None:
    """Return what exists by its path; None where that is not known."""
    if not isinstance(facts.made, SetupState) or not isinstance(facts.made.files, tuple):
        return None
    return {each.path: each for each in facts.made.files}


def unread(facts: HostFacts, stage: Stage) -> Problem:
    """Return why it is not known what exists."""
    why = facts.made.files if isinstance(facts.made, SetupState) else facts.made
    reason = why.reason if isinstance(why, Unknown) else "there is no answer"
    return Problem(
        stage, f"what set-up has made there cannot be read: {reason}", "is the user root, or allowed to sudo?"
    )


def differing(facts: HostFacts, wanted: Iterable[FileTarget]) -> tuple[FileTarget, ...]:
    """Return the files that do not exist, or not with this content and mode."""
    there = files_of(facts) or {}
    return tuple(file for file in wanted if there.get(file.path) != _as_made(file))


def with_files(facts: HostFacts, files: Iterable[FileTarget]) -> HostFacts:
    """Return the facts with these files there."""
    return with_made(facts, map(_as_made, files))


def with_made(facts: HostFacts, new: Iterable[SetupFile]) -> HostFacts:
    """Return the facts with these files, folders and links there."""
    there = files_of(facts)
    if there is None or not isinstance(facts.made, SetupState):
        return facts
    there.update((each.path, each) for each in new)
    return replace(facts, made=replace(facts.made, files=tuple(there.values())))


def without(facts: HostFacts, gone: Iterable[str]) -> HostFacts:
    """Return the facts with nothing at these paths."""
    there = files_of(facts)
    if there is None or not isinstance(facts.made, SetupState):
        return facts
    gone = frozenset(gone)
    return replace(
        facts, made=replace(facts.made, files=tuple(each for path, each in there.items() if path not in gone))
    )


def _as_made(file: FileTarget) -> SetupFile:
    return SetupFile(file.path, sha256(file.data).hexdigest(), file.mode)
