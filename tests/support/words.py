"""Terms and sentences that texts for users must not have."""

import re
from collections.abc import Mapping

# Invented terms, and what to write instead: docs/glossary.md.
BANNED = {
    r"\bmend(?:ed|s)?\b": "fix",
    r"\bbegins\b|\bbegun\b|\bbegan\b|\bto begin\b": "start",
    r"\bfirst contact\b": "bootstrap",
    r"\b(?:is|was|are|were) (?:not )?told\b": "is reported, or passed",
    r"\basked for\b": "requested",
    r"\bstands? (?:in|for|behind|before|there|twice|beside|above|below)\b": "is",
    r"\bc[ao]mes? to nothing\b": "has no effect",
    r"\bthere (?:is|are) none\b": "not found",
    r"\bnobody to ask\b": "stdin is not a terminal",
    r"\bwhat is there\b": "what exists",
    r"\b(?:the|a|no|each) nights?\b(?![/.])": "a nightly run",
    r"\bgoes on\b|\bgo on\b": "continues",
    r"\bhas it not\b": "lacks it",
    r"\bmachine that you type on\b": "controller",
    r"\banew\b": "again",
    r"\bbe had\b": "available",
}


# Names in the code too, and so only looked for in the documentation.
PEOPLE = {r"\b(?:nobody|somebody|whoever)\b": "no one, another user, anyone who"}


BANNED_IN_PAGES = {**BANNED, **PEOPLE, r"\bbegins?\b": "start", r"\bproven\b": "verified", r"\byou want \|": "Task |"}


LONGEST = 40


def invented(where: str, text: str, banned: Mapping[str, str] = BANNED) -> list[str]:
    found = {term: instead for term, instead in banned.items() if re.search(term, text, re.IGNORECASE)}
    return [f"{where}: {text}: write for {term}: {instead}" for term, instead in found.items()]


def long_sentences(where: str, text: str) -> list[tuple[str, str]]:
    """Return what is too long outside of code, cells of tables and items of lists each by themselves."""
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)|\|", text)
    sentences = (one for part in parts for one in re.split(r"(?<=[.!?:;])\s+", " ".join(part.split())))
    return [(where, one) for one in sentences if len(one.split()) > LONGEST]
