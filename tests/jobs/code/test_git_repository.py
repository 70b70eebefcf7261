"""Repositories by URL: fetched with the user's password and by nobody else's settings, and the files of one commit."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.errors import HostError, UsageError
from taco_launch.jobs.code.git_repository import Checkout, checked_out
from tests.support import sshd as ssh_server
from tests.support.git_server import ENVIRONMENT, PASSWORD, USER, GitServer, commit, git, repository, served

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed (apt-get install git)"),
    pytest.mark.enable_socket,
]
SECRETS = {"GIT_SYNC_USERNAME": USER, "GIT_SYNC_PASSWORD": PASSWORD}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The caller's environment, with nothing of this machine's user."""
    (tmp_path / "home").mkdir()
    own = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("GIT_AUTHOR", "GIT_COMMITTER"))}
    return {**own, "HOME": str(tmp_path / "home")}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return repository(tmp_path / "srv" / "code.git", {"train.py": "print(1)\n", "src/a": "a"})


@pytest.fixture
def server(tmp_path: Path, origin: Path) -> Iterator[GitServer]:
    with served(origin.parent, tmp_path / "tls") as found:
        yield found


class Fetcher:
    """Checks out into a cache of its own, and keeps what is said."""

    def __init__(self, cache: Path, environ: dict[str, str]) -> None:
        self.cache, self.environ = cache, environ
        self.said: list[str] = []

    def __call__(self, url: str, ref: str = "") -> Checkout:
        return checked_out(url, ref, self.cache, self.environ, self.said.append)


@pytest.fixture
def fetched(tmp_path: Path, environ: dict[str, str]) -> Fetcher:
    return Fetcher(tmp_path / "cache", environ)


def test_a_branch_a_tag_and_a_commit(fetched: Fetcher, origin: Path) -> None:
    url = f"file://{origin}"
    first = git(origin, "rev-parse", "HEAD")
    git(origin, "tag", "-a", "v1", "-m", "v1")
    second = commit(origin, {"train.py": "print(2)\n"})
    git(origin, "branch", "other/name", first)
    found = {ref: fetched(url, ref) for ref in ("", "main", "v1", "other/name", first, first[:9])}
    assert [found[ref].commit for ref in found] == [second, second, first, first, first, first]
    assert [found[ref].ref for ref in found] == ["main", "main", "v1", "other/name", first, first[:9]]
    assert Path(found["main"].folder, "train.py").read_text() == "print(2)\n"
    assert Path(found["v1"].folder, "train.py").read_text() == "print(1)\n"
    assert {path.name for path in Path(found["main"].folder).iterdir()} == {"train.py", "src"}
    with pytest.raises(UsageError, match=r"it has no branch, tag or commit nowhere$"):
        fetched(url, "nowhere")
    with pytest.raises(UsageError, match="0000000 is not a commit"):
        fetched(url, "0000000")


def test_a_branch_that_moves_is_fetched_again_and_one_that_does_not_is_not(fetched: Fetcher, origin: Path) -> None:
    url = f"file://{origin}"
    fetched(url, "main")
    fetched.said.clear()
    assert fetched(url, "main").commit == git(origin, "rev-parse", "HEAD")
    assert fetched.said == []
    new = commit(origin, {"new": "new"})
    found = fetched(url, "main")
    assert (found.commit, Path(found.folder, "new").read_text()) == (new, "new")
    assert fetched.said == [f"fetching {url}"]


def test_a_repository_that_is_not_there(fetched: Fetcher, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"file:///.*/nowhere: git: .*does not appear to be a git repository") as error:
        fetched(f"file://{tmp_path}/nowhere")
    assert error.value.hint is not None
    assert error.value.hint == "check the address: git ls-remote URL"


def test_one_without_a_commit(fetched: Fetcher, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    with pytest.raises(UsageError, match="it has no commit yet"):
        fetched(f"file://{tmp_path}/empty")


def test_no_git(fetched: Fetcher) -> None:
    fetched.environ["PATH"] = "/nowhere"
    with pytest.raises(HostError, match="this machine has no git"):
        fetched("file:///nowhere")


def test_a_private_repository_over_https(fetched: Fetcher, server: GitServer) -> None:
    url = f"{server.url}/code.git"
    fetched.environ.update(server.environment)
    with pytest.raises(HostError, match=r"could not read Username|Authentication failed") as error:
        fetched(url)
    assert "GIT_SYNC_USERNAME" in str(error.value.hint)
    fetched.environ.update(SECRETS)
    assert Path(fetched(url).folder, "train.py").read_text() == "print(1)\n"
    assert any(who == f"{USER}:{PASSWORD}" for _path, who in server.requests)
    kept = [path for path in fetched.cache.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert kept == []
    fetched.environ["GIT_SYNC_PASSWORD"] = "wrong"
    with pytest.raises(HostError) as error:
        checked_out(url, "main", fetched.cache / "other", fetched.environ, print)
    assert "wrong" not in f"{error.value.message} {error.value.hint}"


def test_the_password_may_stand_in_a_file(fetched: Fetcher, server: GitServer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    more = {"GIT_SYNC_USERNAME": USER, "GIT_SYNC_PASSWORD_FILE": str(tmp_path / "password")}
    fetched.environ.update({**server.environment, **more})
    assert fetched(f"{server.url}/code.git").ref == "main"
    fetched.environ["GIT_SYNC_PASSWORD_FILE"] = str(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"GIT_SYNC_PASSWORD_FILE: .*/nowhere: cannot be read"):
        fetched(f"{server.url}/code.git")


def test_the_password_is_in_no_argv(fetched: Fetcher, server: GitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, ...]] = []
    popen = subprocess.Popen

    def noted(argv: tuple[str, ...], **more: Any) -> object:
        started.append(argv)
        process = popen(argv, **more)
        for child in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                assert PASSWORD.encode() not in child.read_bytes()
            except OSError:
                continue
        return process

    monkeypatch.setattr(subprocess, "Popen", noted)
    fetched.environ.update({**server.environment, **SECRETS})
    fetched(f"{server.url}/code.git")
    assert started
    assert PASSWORD not in repr(started)


def test_no_other_host_is_given_the_password(fetched: Fetcher, server: GitServer, origin: Path, tmp_path: Path) -> None:
    """A submodule on another server asks for one, and is given none."""
    other = repository(tmp_path / "evil" / "sub.git", {"sub": "sub"})
    with served(other.parent, tmp_path / "evil-tls") as evil:
        both = tmp_path / "both.pem"
        both.write_text(server.ca.read_text() + evil.ca.read_text())
        (origin / ".gitmodules").write_text(f'[submodule "sub"]\n\tpath = sub\n\turl = {evil.url}/sub.git\n')
        git(origin, "update-index", "--add", "--cacheinfo", f"160000,{git(other, 'rev-parse', 'HEAD')},sub")
        git(origin, "add", ".gitmodules")
        git(origin, "commit", "-q", "-m", "sub")
        fetched.environ.update({"GIT_SSL_CAINFO": str(both), **SECRETS})
        with pytest.raises(HostError):
            fetched(f"{server.url}/code.git")
        assert evil.requests
        assert {who for _path, who in evil.requests} == {""}


def test_submodules_of_the_same_server(fetched: Fetcher, server: GitServer, origin: Path) -> None:
    sub = repository(origin.parent / "sub.git", {"inner": "inner"})
    (origin / ".gitmodules").write_text('[submodule "sub"]\n\tpath = lib/sub\n\turl = ../sub.git\n')
    git(origin, "update-index", "--add", "--cacheinfo", f"160000,{git(sub, 'rev-parse', 'HEAD')},lib/sub")
    git(origin, "add", ".gitmodules")
    git(origin, "commit", "-q", "-m", "sub")
    fetched.environ.update({**server.environment, **SECRETS})
    inner = Path(fetched(f"{server.url}/code.git").folder, "lib", "sub", "inner")
    assert inner.read_text() == "inner"
    inner.write_text("other")
    fetched(f"{server.url}/code.git")
    assert inner.read_text() == "inner"


def test_a_password_is_not_sent_in_the_clear(fetched: Fetcher) -> None:
    fetched.environ.update(SECRETS)
    with pytest.raises(UsageError, match="a password is not sent over http"):
        fetched("http://localhost/code.git")
    fetched.environ["GIT_SYNC_PASSWORD"] = "two\nlines"
    with pytest.raises(UsageError, match="the password must be a single line"):
        fetched("https://localhost/code.git")


@pytest.mark.parametrize("transport", ["ext::sh -c 'touch {}'", "--upload-pack=touch {}"])
def test_no_program_is_run_for_a_transport(fetched: Fetcher, origin: Path, tmp_path: Path, transport: str) -> None:
    mark = tmp_path / "ran"
    (origin / ".gitmodules").write_text(f'[submodule "sub"]\n\tpath = sub\n\turl = "{transport.format(mark)}"\n')
    git(origin, "update-index", "--add", "--cacheinfo", f"160000,{git(origin, 'rev-parse', 'HEAD')},sub")
    git(origin, "add", ".gitmodules")
    git(origin, "commit", "-q", "-m", "sub")
    with pytest.raises(HostError):
        fetched(f"file://{origin}")
    assert not mark.exists()


def test_hooks_of_templates_and_filters_of_trees_do_not_run(fetched: Fetcher, origin: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    hooks = tmp_path / "templates" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / name).chmod(0o755)
    fetched.environ["GIT_TEMPLATE_DIR"] = str(hooks.parent)
    commit(origin, {".gitattributes": "* filter=evil\n"})
    fetched(f"file://{origin}")
    assert not mark.exists()


def test_files_of_git_lfs_are_no_pointers(fetched: Fetcher, origin: Path) -> None:
    if shutil.which("git-lfs"):
        pytest.skip("cannot: git-lfs is here, and would fetch them")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    commit(origin, {"model.bin": pointer})
    with pytest.raises(UsageError, match=r"model\.bin: in Git LFS, but git-lfs is not installed here"):
        fetched(f"file://{origin}")


def test_over_ssh_with_an_agent(fetched: Fetcher, origin: Path, tmp_path: Path) -> None:
    if reason := ssh_server.why_not():
        pytest.skip(reason)
    with ssh_server.sshd(tmp_path / "sshd") as made:
        socket = tmp_path / "agent"
        agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
        try:
            while not socket.exists():
                assert agent.poll() is None
            own = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
            subprocess.run(["ssh-add", "-q", str(made.login)], env=own, check=True, stderr=subprocess.DEVNULL)
            known = tmp_path / "known_hosts"
            known.write_text(f"[127.0.0.1]:{made.port} {made.host_key()}\n")
            ssh = f"ssh -F none -o BatchMode=yes -o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null"
            fetched.environ["GIT_SSH_COMMAND"] = ssh
            url = f"ssh://root@127.0.0.1:{made.port}{origin}"
            with pytest.raises(HostError, match="Permission denied"):
                fetched(url)
            fetched.environ["SSH_AUTH_SOCK"] = str(socket)
            assert Path(fetched(url).folder, "train.py").read_text() == "print(1)\n"
        finally:
            agent.kill()
            agent.wait()


def test_old_commits_are_removed_from_the_cache(fetched: Fetcher, origin: Path) -> None:
    for number in range(13):
        commit(origin, {"number": str(number)})
        found = fetched(f"file://{origin}")
    trees = fetched.cache / "trees"
    assert len([path for path in trees.iterdir() if not path.name.startswith(".")]) == 10
    assert Path(found.folder).is_dir()
    assert len(list((fetched.cache / "git").glob("*.seal"))) == 10


def _byte(tree: Path) -> None:
    """Change a byte, and nothing that `ls -l` shows."""
    file = tree / "train.py"
    before = file.stat()
    with open(file, "r+b") as opened:
        opened.write(b"P")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        _byte,
        lambda tree: (tree / "src" / "a").unlink(),
        lambda tree: (tree / "src" / "sitecustomize.py").touch(),
        lambda tree: (tree / "empty").mkdir(),
        lambda tree: (tree / "train.py").chmod(0o755),
    ],
    ids=["byte", "gone", "new", "folder", "mode"],
)
def test_a_tree_that_has_changed_in_the_cache_is_written_again(
    fetched: Fetcher, origin: Path, change: Callable[[Path], object]
) -> None:
    url = f"file://{origin}"
    first = fetched(url)
    tree = Path(first.folder)

    def contents() -> dict[str, tuple[int, bytes]]:
        found = {str(path.relative_to(tree)): path for path in tree.rglob("*")}
        return {
            name: (path.stat().st_mode, path.read_bytes() if path.is_file() else b"") for name, path in found.items()
        }

    files = contents()
    fetched.said.clear()
    assert (fetched(url), fetched.said) == (first, [])
    change(tree)
    assert fetched(url) == first
    assert contents() == files
    assert fetched.said == [f"{url}: the files of {first.commit[:12]} in the cache have changed: writing them again"]
    assert fetched(url) == first
    assert len(fetched.said) == 1


@pytest.mark.parametrize(
    ("url", "hint"),
    [("http://127.0.0.1:1/x.git", "that this machine reaches it"), ("file:///dev", "git ls-remote URL")],
)
@pytest.mark.enable_socket
def test_an_address_without_a_repository_needs_no_password(fetched: Fetcher, url: str, hint: str) -> None:
    with pytest.raises(HostError) as error:
        fetched(url)
    assert hint in str(error.value.hint)
    assert "GIT_SYNC" not in str(error.value.hint)
