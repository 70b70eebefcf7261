"""The site: every page is in it, every link leads somewhere, and what readers need is there in both languages."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, text_of

pytestmark = pytest.mark.docs

README_LINES = 150


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site; a broken link is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_the_site_has_every_page(site: Path) -> None:
    built = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= built


def test_nothing_of_the_site_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(https?:)?//", re.IGNORECASE)
    assert [str(page) for page in site.rglob("*.html") if loaded.search(page.read_text("utf-8"))] == []


def search_index(site: Path) -> Any:
    """Return what the search of the site has."""
    return json.loads((site / "search" / "search_index.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("卡住", "troubleshooting"),
        ("回退", "nightly"),
        ("基准测试", "research"),
        ("主机清单", "setup"),
        ("夜间回归", "nightly"),
        ("退出码", "quickstart"),
        ("槽位", "quickstart"),
        ("退出码", "exit-codes"),
        ("挂起", "watch-jobs"),
        ("监管进程", "watch-jobs"),
        ("头节点", "queue"),
        ("作业文件", "queue"),
        ("配置模板", "command-line"),
        ("调优变量", "command-line"),
        ("看护进程", "launchers"),
    ],
)
def test_the_search_finds_chinese_words(site: Path, word: str, page: str) -> None:
    """Words are separated as the page's script does it, which looks for tokens that start with what readers type."""
    index = search_index(site)
    separator = re.compile(index["config"]["separator"])
    found = {
        entry["location"].partition("#")[0]
        for entry in index["docs"]
        for token in separator.split(re.sub(r"<[^>]*>", " ", f"{entry['title']} {entry['text']}"))
        if token.startswith(word)
    }
    assert f"zh/{page}.html" in found


@pytest.mark.parametrize(
    ("page", "other"),
    [
        ("quickstart", "zh/quickstart"),
        ("guides/setup", "zh/setup"),
        ("guides/jobs", "zh/jobs"),
        ("reference/exit-codes", "zh/exit-codes"),
        ("reference/inventory", "zh/inventory"),
        ("guides/lab", "zh/lab"),
        ("explanation/threat-model", "zh/threat-model"),
        ("compatibility", "zh/compatibility"),
        ("zh/troubleshooting", "troubleshooting"),
        ("zh/guides/arena-pytorch", "index"),
        ("glossary", "zh/index"),
    ],
)
def test_a_page_links_to_itself_in_the_other_language(site: Path, page: str, other: str) -> None:
    text = (site / f"{page}.html").read_text("utf-8")
    own, others = ("zh", "en") if page.startswith("zh/") else ("en", "zh")
    links = dict(re.findall(r'<a href="([^"]+)" hreflang="(\w+)"', text))
    found = {lang: (site / page).parent.joinpath(link).resolve() for link, lang in links.items()}
    assert re.search(rf'<html lang="{own}"', text)
    assert found == {own: site / f"{page}.html", others: site / f"{other}.html"}


def tabs(page: Path) -> list[str]:
    """Return the titles of the sections in a page's menu."""
    listed = page.read_text("utf-8").partition('class="md-tabs__list"')[2].partition("</ul>")[0]
    return [" ".join(title.split()) for title in re.findall(r"md-tabs__link[^>]*>([^<]+)", listed)]


def test_each_language_has_its_own_menu(site: Path) -> None:
    assert tabs(site / "guides/jobs.html") == [
        *("Start", "Train", "Operate", "Measure", "Migrate", "Reference", "Contribute"),
    ]
    assert tabs(site / "zh/jobs.html") == ["开始", "训练", "运维", "测量", "迁移", "参考"]


def test_the_menu_of_a_folder_is_its_index(site: Path) -> None:
    text = " ".join((site / "reference/cli/run.html").read_text("utf-8").split())
    assert re.search(r'href="bench-run.html" class="md-nav__link">.{0,80}bench run', text)
    assert "Benchmarks and nightly runs" in text


@pytest.mark.parametrize(
    ("page", "titles"),
    [
        ("guides/nightly", ["cron", "systemd"]),
        ("zh/nightly", ["cron", "systemd"]),
        ("index", ["This machine", "The lab", "Your hosts"]),
        ("zh/index", ["本机", "演练集群", "你的主机"]),
    ],
)
def test_choices_are_tabs(site: Path, page: str, titles: list[str]) -> None:
    text = (site / f"{page}.html").read_text("utf-8")
    assert re.findall(r'<label for="__tabbed_1_\d">([^<]+)</label>', text) == titles
    assert all(f"**{title}**" in text_of(f"docs/{page}.md") for title in titles)  # as GitHub shows them


@pytest.mark.parametrize(("page", "title"), [("guides/launchers", "Warning"), ("zh/launchers", "注意")])
def test_warnings_stand_out(site: Path, page: str, title: str) -> None:
    text = (site / f"{page}.html").read_text("utf-8")
    assert re.search(rf'admonition warning">\s*<p class="admonition-title">{title}</p>\s*<p>[^<]*Horovod', text)
    assert "[!WARNING]" not in text


def test_llms_txt_lists_every_page(site: Path) -> None:
    listed = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text("utf-8"))
    assert {site / page for page in listed} == set(site.rglob("*.html")) - {site / "404.html"}


def test_the_search_leaves_out_what_contributors_alone_read(site: Path) -> None:
    found = {entry["location"].partition("#")[0] for entry in search_index(site)["docs"]}
    assert "reference/messages.html" not in found
    assert {"reference/cli/run.html", "reference/failures/nccl.html", "contributing/messages.html"} <= found


def test_the_search_has_options_as_words_of_their_own(site: Path) -> None:
    index = search_index(site)
    separator = re.compile(index["config"]["separator"])
    found = {
        entry["location"].partition("#")[0]
        for entry in index["docs"]
        if "\u2060sync" in separator.split(re.sub(r"<[^>]*>", " ", entry["text"]))
    }
    assert {"guides/code.html", "reference/cli/run.html"} <= found
    assert "reference/failures/frameworks.html" not in found  # it has the word alone
    assert "trimmer" not in index["config"]["pipeline"]
    assert "\\u2060" in (site / "assets/site.js").read_text("utf-8")


def test_a_page_has_what_its_script_leaves_out_of_a_copy(site: Path) -> None:
    page = (site / "quickstart.html").read_text("utf-8")
    assert 'src="assets/site.js"' in page
    assert '<span class="gp">$ </span>scripts/quickstart' in page
    assert '<span class="go">' in page
    assert ".gp, .go" in (site / "assets/site.js").read_text("utf-8")


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_of_the_first_pages_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text_of(page))
    assert links
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []


def test_the_readme_fits_on_two_screens() -> None:
    assert len(text_of("README.md").splitlines()) <= README_LINES
