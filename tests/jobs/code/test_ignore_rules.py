"""Files of rules leave out what git leaves out, which is asked; .tacoignore goes before .gitignore."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import UsageError
from taco_launch.jobs.code import ignore_rules, tree_walk
from taco_launch.jobs.code.tree_walk import walk

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed (apt-get install git)")

_NAMES = st.sampled_from(["a", "b", "ab", "a.py", "c", "a*", "[a]", "a b", "a\\", "ab]"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)
_PARTS = st.sampled_from(
    [
        *(
            "a",
            "b",
            "ab",
            "a.py",
            "*",
            "**",
            "*.py",
            "?",
            "[ab]",
            "[!a]",
            "a*",
            "c",
            "[a-b]*",
            "***",
            "a**",
            "**b",
            "*a*",
        ),
        *("[]a]*", "[!]a]", "[[:alpha:]]", "[^[:alpha:][:punct:]]", "[b-a]", "[a", "a[]", "a\\*", "[\\a]", "\\[a\\]"),
        *("*a*b*", "[a-]?", "*\\\\", "??*", "a b"),
    ]
)
_RULES = st.builds(
    lambda negated, anchored, parts, folder: f"{'!' * negated}{'/' * anchored}{'/'.join(parts)}{'/' * folder}",
    st.booleans(),
    st.booleans(),
    st.lists(_PARTS, min_size=1, max_size=3),
    st.booleans(),
)
_LINES = st.lists(
    _RULES | st.sampled_from(["", "# a", " a", "\\!a", "a ", "\\#c", "a\r", "a\\ b", "b\\ ", "a  ", "a\t", "ab\\"]),
    max_size=5,
)


def files(root: Path) -> set[str]:
    return {file.path for file in walk(str(root), print).files}


@given(
    st.lists(_PATHS, min_size=1, max_size=8),
    st.dictionaries(st.sampled_from(["", "a", "b", "a/b", "a/a"]), _LINES, max_size=3),
)
def test_as_git_does(paths: Sequence[str], rules: Mapping[str, Sequence[str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path in paths:
            try:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).touch()
            except OSError:  # a file is not a folder
                continue
        for folder, lines in rules.items():
            if (root / folder).is_dir():
                (root / folder / ".gitignore").write_text("\n".join([*lines, ""]))
        subprocess.run(["git", "init", "-q", root], check=True)
        argv = ["git", "-c", "core.excludesFile=/dev/null", "-C", name, "ls-files", "-o", "--exclude-standard", "-z"]
        told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert files(root) == set(filter(None, told.split("\0")))


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        (("!*", "b"), {".gitignore", "c"}),  # of a folder, too, the last rule decides
        (("[b/[a-b]*",), {".gitignore", "c"}),  # a slash of a set separates nothing
        (("/**/",), {".gitignore", "c"}),  # leaves out folders, and no file
        (("b", "!b/"), {".gitignore", "b/a", "c"}),
    ],
)
def test_rules_for_folders(tmp_path: Path, rules: Sequence[str], left: set[str]) -> None:
    (tmp_path / "b").mkdir()
    for path in ("b/a", "c"):
        (tmp_path / path).touch()
    (tmp_path / ".gitignore").write_text("\n".join(rules))
    assert files(tmp_path) == left


def test_names_and_ends_of_names_are_not_compared_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / ".gitignore").write_text("*.pyc\nbuild/\n.venv\n*~\n")
    monkeypatch.setattr(ignore_rules, "_fits", lambda *_words: pytest.fail("a rule was looked at"))
    assert files(tmp_path) == {".gitignore", "a.py"}


def test_tacoignore_goes_before_gitignore(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("kept.bin", "left.bin", "notes.txt", "inner/own.bin"):
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.bin\n")
    (tmp_path / ".tacoignore").write_text("!kept.bin\nnotes.txt\n")
    (tmp_path / "inner" / ".tacoignore").write_text("!own.bin\n")
    assert files(tmp_path) == {".gitignore", ".tacoignore", "kept.bin", "inner/.tacoignore", "inner/own.bin"}


def test_a_folder_whose_name_would_be_a_rule(tmp_path: Path) -> None:
    for folder in ("#a", "!a", "[ab]", "a ", "*", "a\\b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / ".gitignore").write_text("*.bin\n!/kept.bin\n/.gitignore\n")
        for name in ("left.bin", "kept.bin"):
            (tmp_path / folder / name).touch()
    (tmp_path / "beside.bin").touch()
    kept = {f"{folder}/kept.bin" for folder in ("#a", "!a", "[ab]", "a ", "*", "a\\b")}
    assert files(tmp_path) == {"beside.bin", *kept}


def test_a_rule_that_is_none(tmp_path: Path) -> None:
    (tmp_path / ".tacoignore").write_text("fine\n!\n")
    with pytest.raises(UsageError, match=r"\.tacoignore: line 2: "):
        files(tmp_path)


def test_a_file_of_rules_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("a\n")
    (tmp_path / ".gitignore").symlink_to("rules")
    (tmp_path / "a").touch()
    assert files(tmp_path) == {"a", "rules"}


@pytest.mark.parametrize(
    "rule", ["*a" * 12 + "*b", "*[a]" * 12 + "[b]", "**/a/" * 30 + "b", "a*" * 2000, "[" * 4000, "[[:x:]" * 600]
)
def test_no_rule_takes_for_ever(tmp_path: Path, rule: str) -> None:
    """An expression that goes back to try each star again would not end."""
    (tmp_path / ".gitignore").write_text(f"{rule}\n")
    deep = tmp_path.joinpath(*["a"] * 60)
    deep.mkdir(parents=True)
    (deep / ("a" * 200)).touch()
    begun = time.process_time()
    assert len(files(tmp_path)) == 2
    assert time.process_time() - begun < 5


def test_a_walk_that_takes_too_long_names_the_rule_or_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_walk, "_MOST_SECONDS", 0.2)
    for number in range(50):
        (tmp_path / f"a{number}").touch()
    (tmp_path / ".gitignore").write_text("\n" + "*a*b\n" * 20_000)
    with pytest.raises(UsageError, match=r"\.gitignore: line \d+: the files of the folder could not all be compared"):
        files(tmp_path)
    (tmp_path / ".gitignore").unlink()
    monkeypatch.setattr(tree_walk, "_MOST_SECONDS", -1)
    with pytest.raises(UsageError, match=r"test_a_walk\w+: reading the files"):
        files(tmp_path)


def test_a_rule_has_a_longest_length(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("a\n" + "a" * 5000)
    with pytest.raises(UsageError, match=r"\.gitignore: line 2: longer than 4096 characters"):
        files(tmp_path)
