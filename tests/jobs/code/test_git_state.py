"""What git says of a folder: its commit and what differs from it; nothing that the repository names is run."""

import os
import shutil
from pathlib import Path

import pytest

from taco_launch.jobs.code import git_state, snapshot
from taco_launch.jobs.code.git_state import GitState
from taco_launch.jobs.code.snapshot import Snapshot
from taco_launch.jobs.code.tree_walk import walk
from tests.support.git_server import ENVIRONMENT, commit, git, repository, served

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed (apt-get install git)")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return repository(tmp_path / "work", {"train.py": "1", "src/a": "a", ".gitignore": "*.log\n"})


def taken(folder: Path, tmp_path: Path) -> Snapshot:
    return snapshot.take(walk(str(folder), print), (), tmp_path / "cache")


def asked(folder: Path) -> GitState:
    found = git_state.ask(str(folder), ENVIRONMENT).answer()
    assert found is not None
    return found


def test_a_clean_work_tree(work: Path, tmp_path: Path) -> None:
    (work / "run.log").write_text("ignored")
    found = asked(work)
    assert (found.commit, found.ref, found.changed) == (git(work, "rev-parse", "HEAD"), "main", ())
    assert found.dirty_hash(taken(work, tmp_path)) == ""


def test_what_differs_has_a_hash(work: Path, tmp_path: Path) -> None:
    (work / "train.py").write_text("2")
    (work / "new file\n").write_text("new")
    (work / "src" / "a").unlink()
    found = asked(work)
    assert sorted(found.changed) == ["new file\n", "src/a", "train.py"]
    one = found.dirty_hash(taken(work, tmp_path))
    assert len(one) == 16
    assert found.dirty_hash(taken(work, tmp_path)) == one
    (work / "train.py").write_text("3")
    assert asked(work).dirty_hash(taken(work, tmp_path)) != one


def test_a_folder_of_a_work_tree_counts_for_itself(work: Path, tmp_path: Path) -> None:
    (work / "train.py").write_text("2")
    assert asked(work / "src").changed == ()
    (work / "src" / "a").write_text("b")
    assert asked(work / "src").changed == ("a",)
    link = tmp_path / "link"
    link.symlink_to(work / "src")
    assert asked(link).changed == ("a",)


def test_staged_and_detached(work: Path) -> None:
    git(work, "checkout", "-q", "--detach")
    (work / "train.py").write_text("2")
    git(work, "add", "train.py")
    found = asked(work)
    assert (found.ref, found.changed) == ("", ("train.py",))


def test_where_git_says_nothing(tmp_path: Path, work: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert git_state.ask(str(tmp_path / "plain"), ENVIRONMENT).answer() is None
    assert git_state.ask(str(work), {"PATH": "/nowhere"}).answer() is None
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    assert git_state.ask(str(empty), ENVIRONMENT).answer() is None
    (tmp_path / "broken" / ".git").mkdir(parents=True)
    assert git_state.ask(str(tmp_path / "broken"), ENVIRONMENT).answer() is None


def test_nothing_that_the_repository_names_is_run(work: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    commit(work, {".gitattributes": "* filter=evil diff=evil\n"})
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.external"):
        git(work, "config", key, str(program))
    git(work, "config", "filter.evil.required", "true")
    git(work, "config", "diff.evil.textconv", str(program))
    git(work, "config", "core.hooksPath", str(tmp_path / "hooks"))
    (tmp_path / "hooks").mkdir()
    shutil.copy(program, tmp_path / "hooks" / "post-index-change")
    shutil.copy(program, work / ".git" / "hooks" / "post-index-change")
    mark.unlink(missing_ok=True)
    os.utime(work / "train.py", (1, 1))  # so that git has to read it
    assert asked(work).commit
    assert not mark.exists()


def test_what_a_hook_left_in_the_environment_names_no_other_repository(work: Path, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", {"b": "b"})
    environ = {**ENVIRONMENT, "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": "/nowhere"}
    found = git_state.ask(str(work), environ).answer()
    assert found is not None
    assert found.commit == git(work, "rev-parse", "HEAD")


_HOSTILE = {
    "credential.helper": "credential.helper = !touch {mark}",
    "credential of a host": '[credential "https://localhost"]\n  helper = !touch {mark}',
    "core.askPass": "core.askPass = {program}",
    "cookies": "http.cookieFile = {mark}\nhttp.saveCookies = true",
    "core.sshCommand": "remote.origin.url = ssh://localhost/x\ncore.sshCommand = {program}",
    "core.gitProxy": "remote.origin.url = git://localhost/x\ncore.gitProxy = {program}\nprotocol.allow = always",
    "uploadpack": "remote.origin.url = {tmp}/work\nremote.origin.uploadpack = {program}",
    "uploadpack of file:": "remote.origin.url = file://{tmp}/work\nremote.origin.uploadpack = {program}",
    "ext": "remote.origin.url = ext::{program}\nprotocol.ext.allow = always",
    "vcs": "remote.origin.vcs = ext\nremote.origin.url = {program}\nprotocol.ext.allow = always",
    "include": "include.path = {tmp}/more",
    "filter": "include.path = {tmp}/filter",
}


@pytest.mark.enable_socket
@pytest.mark.parametrize("case", _HOSTILE)
def test_a_partial_clone_that_lacks_an_object_runs_and_fetches_nothing(work: Path, tmp_path: Path, case: str) -> None:
    """Git would fetch the object from where the folder's own settings say, by programs that these name."""
    mark, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    commit(work, {".gitattributes": "* filter=evil\n"})
    tree = git(work, "rev-parse", "HEAD:src")
    (work / "src" / "a").write_text("changed")
    git(work, "add", "-A")
    (work / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    with served(tmp_path, tmp_path / "tls") as server:
        origin = (
            "core.repositoryFormatVersion = 1\nextensions.partialClone = origin\nremote.origin.promisor = true\n"
            f"remote.origin.url = {server.url}/work\nremote.origin.fetch = +refs/heads/*:refs/remotes/origin/*\n"
            "http.sslVerify = false\n"
        )
        written = _sections(_HOSTILE[case].format(mark=mark, program=program, tmp=tmp_path) + "\n" + origin)
        helper = _sections(origin + f"credential.helper = !touch {mark}")
        (tmp_path / "more").write_text(helper)
        (tmp_path / "filter").write_text(f'[filter "evil"]\n  clean = {program}\n  required = true\n')
        (work / ".git" / "config").open("a").write(written)
        for path in work.rglob("*"):
            if path.is_file() and ".git/" not in str(path):
                os.utime(path, (1, 1))  # so that git has to read it
        git_state.ask(str(work), ENVIRONMENT).answer()
        git_state.ask(str(work), ENVIRONMENT, untracked="no").answer()
    assert not mark.exists()
    assert server.requests == []


def _sections(lines: str) -> str:
    """Write `section.name = value` as git's files have it; what is no such line stays."""
    found = []
    for line in lines.splitlines():
        names, equals, value = line.partition(" = ")
        section, _, rest = names.partition(".")
        sub, _, name = rest.rpartition(".")
        header = f'[{section} "{sub}"]' if sub else f"[{section}]"
        found.append(f'{header}\n  {name} = "{value}"' if equals and rest and line[0] not in " [" else line)
    return "\n".join((*found, ""))
