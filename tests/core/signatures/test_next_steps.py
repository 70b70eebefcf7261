"""The next step of every known failure tells what to do: a verb or a command comes first, and it is short."""

import re

import pytest

from taco_launch.core.signatures.known import Qualifier, Signature
from taco_launch.core.signatures.qualifiers import QUALIFIERS
from taco_launch.core.signatures.table import TABLE

_PART = re.compile(r"\[\[(?P<name>\w+)\?(?P<then>.*?)(?:\|\|(?P<other>.*?))?\]\]")
_VERBS = (
    "Accept Add Allow Ask Begin Bind Build Call Change Check Choose Communicate Compare Continue Convert Correct Create "
    "Delete Do Download End Enroll Exit Find Fix Follow Generate Give Ignore Install Keep Leave Limit List Load Look Lower "
    "Make Mount Move Name Open Pass Print Put Quote Raise Read Register Remove Replace Request Run Save Search See Send Set "
    "Show Start Stop Submit Test Try Turn Unset Update Use Wrap Write"
)
# A condition or a place, and behind it what to do.
_CONDITION = re.compile(r"(?:If|On|In|Inside|To|For)\b(?:[^.;]|\.(?! ))*?[,:] \S")
_COMMAND = re.compile(r"[a-z-][\w.=/-]*(?: |$)(?![^.:;]*\b(?:must|has to|have to)\b)")
_SENTENCE_END = re.compile(r"[.?](?:\s+(?=[A-Z-])|$)")
_MOST_SENTENCES, _MOST_WORDS = 2, 60


def told(text: str) -> set[str]:
    """Return what a next step says where none of its values is known, and where one is."""
    names = {part["name"] for part in _PART.finditer(text)}

    def with_value(given: str) -> str:
        return _PART.sub(lambda part: (part["then"] if part["name"] == given else part["other"]) or "", text).strip()

    # A text of which only the value's own part is left is never told.
    return {said for said in map(with_value, (*names, "")) if " " in said}


def fault(text: str) -> str:
    """Return what is wrong with a next step, or nothing."""
    if not (text.split(maxsplit=1)[0].rstrip(":") in _VERBS.split() or _CONDITION.match(text) or _COMMAND.match(text)):
        return "it states"
    words = sum(any(map(str.isalnum, word)) for word in text.split())
    if len(_SENTENCE_END.findall(text)) > _MOST_SENTENCES or words > _MOST_WORDS:
        return "it is long"
    return ""


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_a_next_step_tells_what_to_do(entry: Signature) -> None:
    assert [(text, fault(text)) for text in told(entry.next) if fault(text)] == []


@pytest.mark.parametrize("one", [one for rows in QUALIFIERS.values() for one in rows], ids=lambda one: one.cause[:30])
def test_so_does_that_of_a_qualifier(one: Qualifier) -> None:
    assert [(text, fault(text)) for text in told(one.next) if fault(text)] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("The reason is in its log.", "it states"),
        ("Every rank has to do the same steps.", "it states"),
        ("ulimit -l must show unlimited.", "it states"),
        ("If memory ran out, use smaller batches.", ""),
        ("In containers this happens.", "it states"),
        ("nvidia-smi -L shows them.", ""),
        ("Run it. Read it. Do it.", "it is long"),
        ("Run it " + "again " * 60, "it is long"),
    ],
)
def test_statements_and_long_texts_are_found(text: str, why: str) -> None:
    assert fault(text) == why
