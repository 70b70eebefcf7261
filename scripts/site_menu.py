"""The menus of the site: one for each language, the pages of a folder as its index lists them, and llms.txt."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure import StructureItem
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

# What an index has in its lines: a title, or a link to a page of its folder.
_ENTRY = re.compile(r"^## (.+)$|\]\(([\w-]+\.md)\)", re.MULTILINE)
# The menu of each language, of the last build.
_MENUS: dict[str, Navigation] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the folders in the menu by their pages."""
    config.nav = [_filled(each, Path(config.docs_dir)) for each in config.nav or ()]
    return config


def _filled(entry: Any, docs: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _filled(below, docs) for title, below in entry.items()}
    if isinstance(entry, list):
        return [_filled(each, docs) for each in entry]
    return listed(entry, (docs / entry / "index.md").read_text("utf-8")) if entry.endswith("/") else entry


def listed(folder: str, index: str) -> list[Any]:
    """Return the index of a folder and the pages that it links to, below the titles that are above them.

    Args:
        folder: The folder's path, which ends with a slash.
        index: The text of its index.
    """
    found: list[Any] = [f"{folder}index.md"]
    level = found
    for title, page in _ENTRY.findall(index):
        if title:
            level = []
            found.append({title: level})
        else:
            level.append(f"{folder}{page}")
    return [each for each in found if not isinstance(each, dict) or all(each.values())]


def on_nav(nav: Navigation, **_: object) -> Navigation:
    """Make the last section the menu of the Chinese pages."""
    chinese = nav.items.pop()
    assert isinstance(chinese, Section)
    for section in chinese.children:
        section.parent = None
    _MENUS["en"], _MENUS["zh"] = (_menu(items) for items in (nav.items, chinese.children))
    return nav


def _menu(items: list[StructureItem]) -> Navigation:
    """Return a menu: its first page is its home, and no page of the other one comes before or after its own."""
    pages = list(_pages(items))
    pages[0].previous_page = pages[-1].next_page = None
    menu = Navigation(items, pages)
    menu.homepage = pages[0]
    return menu


def _pages(items: list[StructureItem]) -> Iterator[Page]:
    for item in items:
        if isinstance(item, Page):
            yield item
        elif isinstance(item, Section):
            yield from _pages(item.children)


def on_page_context(context: dict[str, Any], page: Page, **_: object) -> dict[str, Any]:
    """Set the menu of one page."""
    context["nav"] = _MENUS["zh" if page.file.src_uri.startswith("zh/") else "en"]
    return context


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt: the pages by section, with their addresses below the site's root."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for section in (section for language in ("en", "zh") for section in _MENUS[language].items):
        lines += ["", f"## {section.title}", ""]
        lines += [f"- [{page.title}]({page.url})" for page in _pages([section])]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
