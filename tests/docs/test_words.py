"""The documentation is in plain English: standard terms, and sentences that can be read at once."""

import re

import pytest

from tests.docs.pages import prose, text_of, written

pytestmark = pytest.mark.docs

LONGEST = 40
# Invented terms, and what to write instead.
BANNED = {
    r"\ba night\b": "a nightly run",
    r"\bfirst contact\b": "bootstrap",
    r"\b(?:is|was|are|were) told\b": "reported, or passed",
    r"\basked for\b": "requested",
    r"\bstands? (?:in|for|below|above)\b": "is",
    r"\bcomes? to nothing\b": "has no effect",
    r"\bthere is none\b": "not found",
    r"\bnobody to ask\b": "stdin is not a terminal",
    r"\bmachine that you type on\b": "controller",
    r"\bwhat is there\b": "what exists",
    r"\bmend(?:ed|s)?\b": "fix",
    r"\bbegins?\b": "start",
    r"\bproven\b": "verified",
    r"\byou want \|": "Task |",
}
ENGLISH = [page for page in written() if not page.startswith("docs/zh/")]


def sentences(page: str) -> list[str]:
    """Return the sentences of a page outside of code, cells of tables and items of lists each by themselves."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)|\|", prose(text_of(page))):
        found += re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split()))
    return found


@pytest.mark.parametrize("page", ENGLISH)
def test_no_invented_terms(page: str) -> None:
    text = " ".join(prose(text_of(page)).split())
    found = {term: instead for term, instead in BANNED.items() if re.search(term, text, re.IGNORECASE)}
    if page == "docs/glossary.md":
        return
    assert found == {}


@pytest.mark.parametrize("page", ENGLISH)
def test_no_sentence_is_too_long(page: str) -> None:
    assert [one for one in sentences(page) if len(one.split()) > LONGEST] == []
