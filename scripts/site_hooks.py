"""Hooks of MkDocs for the site: Chinese pages are in Chinese throughout, and each page links to itself in the other language."""

import atexit
import json
import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import jieba
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

# Where the English counterpart of a page below zh/ may be.
_ENGLISH = ("{}", "guides/{}", "reference/{}", "explanation/{}")
# Terms that readers type as one word, which jieba would separate.
_TERMS = (
    "基准测试",
    "主机清单",
    "夜间回归",
    "故障排查",
    "退出码",
    "槽位",
    "头节点",
    "作业文件",
    "挂起",
    "监管进程",
    "看护进程",
    "配置模板",
    "调优变量",
)
# Of an option in the texts that the search has: its hyphens, behind which a mark makes another word of its name.
_OPTION = re.compile(r"(?<![\w-])--(?=[a-z])")
_MARK = "\u2060"
# What GitHub shows as titles and texts, the site shows as tabs.
_TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- /tabs -->$", re.MULTILINE | re.DOTALL)
_TAB = re.compile(r"^\*\*(.+)\*\*$")
# A callout, as GitHub writes it.
_CALLOUT = re.compile(r"^> \[!(\w+)\]\n((?:>.*\n?)+)", re.MULTILINE)
_QUOTE = re.compile(r"^> ?", re.MULTILINE)
_HOME = {"en": "index.md", "zh": "zh/index.md"}


def on_startup(command: str, **_: object) -> None:
    """Print warnings alone. With --quiet, MkDocs would not count them, and --strict would have no effect."""
    if command == "build":
        logging.getLogger("mkdocs").setLevel(logging.WARNING)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Prepare jieba: its messages are no warnings, and no other user may write its cache, which it loads unchecked."""
    logging.getLogger("jieba").setLevel(logging.WARNING)
    cache = tempfile.TemporaryDirectory()
    atexit.register(cache.cleanup)
    jieba.dt.tmp_dir = cache.name
    for term in _TERMS:
        jieba.suggest_freq(term, tune=True)
    return config


def counterparts(pages: set[str]) -> dict[str, str]:
    """Return the English page of each Chinese one, and the other way round."""
    found: dict[str, str] = {}
    for page in sorted(pages):
        english = [name for form in _ENGLISH if (name := form.format(page.removeprefix("zh/"))) in pages]
        if page.startswith("zh/") and english:
            found |= {page: english[0], english[0]: page}
    return found


def tabbed(text: str) -> str:
    """Return a page with each part between `<!-- tabs -->` and `<!-- /tabs -->` as tabs, whose titles stand alone in bold."""
    return _TABS.sub(lambda part: "\n".join(_as_tab(line) for line in part[1].splitlines()), text)


def _as_tab(line: str) -> str:
    return _TAB.sub(r'=== "\1"', line) if _TAB.match(line) else f"    {line}".rstrip()


def called_out(text: str, title: str = "") -> str:
    """Return a page with GitHub's callouts, such as `> [!WARNING]`, as those of the site.

    Args:
        text: The page.
        title: What stands above a callout; the kind of the callout by default.
    """
    shown = f' "{title}"' if title else ""
    return _CALLOUT.sub(lambda one: f"!!! {one[1].lower()}{shown}\n\n{_QUOTE.sub('    ', one[2])}", text)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Make the tabs and the callouts of one page."""
    return called_out(tabbed(markdown), "注意" if page.file.src_uri.startswith("zh/") else "")


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, **_: object) -> dict[str, Any]:
    """Set the language of one page, which is rendered next, and where its language switch leads."""
    here = page.file.src_uri
    urls = {file.src_uri: file.url for file in context["pages"]}
    other = counterparts(set(urls)).get(here)
    config.theme["language"] = "zh" if here.startswith("zh/") else "en"
    for entry in config.extra["alternate"]:
        entry["link"] = urls[here if entry["lang"] == config.theme["language"] else other or _HOME[entry["lang"]]]
    return context


def on_post_build(config: MkDocsConfig) -> None:
    """Mark the options in the texts of the search: --sync is another word than sync, and docs/assets/site.js asks for it."""
    path = Path(config.site_dir, "search", "search_index.json")
    index = json.loads(path.read_text("utf-8"))
    for entry in index["docs"]:
        entry["text"] = _OPTION.sub(f"--{_MARK}", entry["text"])
    path.write_text(json.dumps(index, separators=(",", ":")), "utf-8")
