"""No page is longer than five screens, but for those that list what the code has.

A screen of the site (1,400 by 900 pixels) shows about 260 words, with the tables and blocks around them; two Chinese characters take
the place of a word.
"""

import re

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.docs

WORDS = 5 * 260
# Pages that list what the code has, and grow with it.
LISTS = {
    *(
        f"docs/reference/{name}.md"
        for name in ("cli/index", "cli/run", "inventory", "job", "knobs", "matrix", "messages", "python")
    ),
    *("docs/zh/inventory.md", "docs/zh/job.md"),
}
# Known failures are looked up by their names, so a page of them may be long: each one is short.
FAILURES = "docs/reference/failures/"
FAILURE_WORDS = 200
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def words(text: str) -> int:
    """Return the number of words of a page, of which a Chinese character is half a one."""
    return len(_CHINESE.sub(" ", text).split()) + len(_CHINESE.findall(text)) // 2


PAGES = {path.relative_to(ROOT).as_posix(): words(path.read_text("utf-8")) for path in (ROOT / "docs").rglob("*.md")}


@pytest.mark.parametrize("page", sorted(page for page in set(PAGES) - LISTS if not page.startswith(FAILURES)))
def test_a_page_is_no_longer_than_five_screens(page: str) -> None:
    assert PAGES[page] <= WORDS, f"split {page}, or move a part of it to another page"


def test_every_listed_page_exists() -> None:
    assert set(PAGES) >= LISTS


@pytest.mark.parametrize("page", sorted(page for page in PAGES if page.startswith(FAILURES)))
def test_a_known_failure_is_short(page: str) -> None:
    parts = re.split("^## ", (ROOT / page).read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert [part.partition("\n")[0] for part in parts if words(part) > FAILURE_WORDS] == []


def test_words_are_counted_in_both_languages() -> None:
    assert words("a page of five words") == 5
    assert words("运行作业前 taco-launch doctor") == 2 + 2
