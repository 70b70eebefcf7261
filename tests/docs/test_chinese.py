"""A Chinese page has what the English one has: its commands; those of the reference also its rows, code and numbers."""

import re
from collections import Counter
from itertools import zip_longest

import pytest

from tests.docs.pages import commands, spans, text_of

pytestmark = pytest.mark.docs

# Guides of several pages.
SPLIT = (
    *("jobs", "watch-jobs", "job-failures"),
    *("setup", "setup-changes", "setup-problems", "migrate-hosts"),
    *("research", "sweeps", "history"),
    *("check", "measure-hosts", "health-policy"),
    *("nightly", "nightly-report", "nightly-baseline"),
    *("launchers", "command-line", "migrate", "translate"),
)
# The English page of each Chinese one that follows it row by row.
SAME_ROWS = {
    "compatibility": "compatibility",
    "environment": "reference/environment",
    "error-rates": "explanation/error-rates",
    "scale": "explanation/scale",
    "inventory": "reference/inventory",
    "job": "reference/job",
    "lab": "guides/lab",
    "remaining-risks": "explanation/remaining-risks",
    "statistics": "explanation/statistics",
    "threat-model": "explanation/threat-model",
    "threat-model-ranks": "explanation/threat-model-ranks",
}
_ROW = re.compile(r"(?:#+|\||-) ")
_LINK = re.compile(r"\]\([^)]*\)")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
each_pair = pytest.mark.parametrize(("chinese", "english"), SAME_ROWS.items())


def rows(page: str) -> list[str]:
    """Return the headings, the rows of tables and the items of lists of a page below docs/, in their order."""
    return [line for line in text_of(f"docs/{page}.md").splitlines() if kind(line)]


def kind(line: str) -> str:
    """Return how a heading, a row or an item starts; nothing for another line."""
    found = _ROW.match(line)
    return found[0] if found else ""


def facts(text: str) -> Counter[str]:
    """Return what is the same in both languages: the code and the numbers of a text, by how often it has them; without the addresses of links."""
    return Counter([*spans(text), *_NUMBER.findall(_LINK.sub("]", text))])


@pytest.mark.parametrize(
    ("chinese", "english"),
    [
        ("README.zh-CN", "README"),
        ("docs/zh/quickstart", "docs/quickstart"),
        ("docs/zh/examples", "docs/guides/examples"),
        *((f"docs/zh/{page}", f"docs/guides/{page}") for page in SPLIT),
        *((f"docs/zh/{chinese}", f"docs/{english}") for chinese, english in SAME_ROWS.items()),
        ("docs/zh/troubleshooting", "docs/troubleshooting"),
        ("docs/zh/frameworks", "docs/guides/frameworks"),
        ("docs/zh/faq", "docs/faq"),
        ("docs/zh/queue", "docs/guides/queue"),
        ("docs/zh/slurm", "docs/guides/slurm"),
        ("docs/zh/exit-codes", "docs/reference/exit-codes"),
    ],
)
def test_a_chinese_page_has_the_commands_of_the_english_one(chinese: str, english: str) -> None:
    here = {" ".join(line.split()) for line in commands(text_of(f"{chinese}.md"))}
    there = {" ".join(line.split()) for line in commands(text_of(f"{english}.md"))}
    assert there - here == set()


@each_pair
def test_a_chinese_page_has_the_rows_of_the_english_one(chinese: str, english: str) -> None:
    pairs = zip_longest(rows(english), rows(f"zh/{chinese}"), fillvalue="")
    differ = [(there, here) for there, here in pairs if kind(there) != kind(here) or facts(there) - facts(here)]
    assert differ[:1] == [], f"docs/zh/{chinese}.md differs from docs/{english}.md first in this row"


@each_pair
def test_a_chinese_page_has_the_code_and_the_numbers_of_the_english_one(chinese: str, english: str) -> None:
    assert facts(text_of(f"docs/{english}.md")) - facts(text_of(f"docs/zh/{chinese}.md")) == Counter()
