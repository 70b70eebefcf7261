"""A request's code as its job has it: one snapshot for all jobs that ask for the same, where Arena's tree lies, git's state."""

import shutil
from pathlib import Path

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.code.job_code import JobCode
from taco_launch.jobs.code.snapshot import Snapshot
from tests.support.git_server import ENVIRONMENT, git, repository


class Maker:
    """Attaches code, and keeps what was provided and said."""

    def __init__(self, tmp_path: Path) -> None:
        self.said: list[str] = []
        self.provided: list[Snapshot] = []
        environ = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        self.code = JobCode(environ, self.said.append, lambda snapshot, _say: self.provided.append(snapshot))

    def __call__(self, request: JobRequest, workdir: str = "") -> JobSpec:
        return self.code.attach(JobSpec("job", ("true",), (), workdir=workdir), request)


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> str:
    (tmp_path / "tree" / "src").mkdir(parents=True)
    (tmp_path / "tree" / "src" / "a").write_text("a")
    (tmp_path / "tree" / "link").symlink_to("src")
    return str(tmp_path / "tree")


def test_jobs_that_ask_for_the_same_have_the_same(make: Maker, tree: str) -> None:
    one, two = make(JobRequest(sync=tree)), make(JobRequest(sync=tree, np=4))
    (Path(tree) / "src" / "a").write_text("changed since")
    three = make(JobRequest(sync=tree, sync_max=1 << 20))
    assert one.code == two.code
    assert one.code is not None
    assert three.code is not None
    assert one.code.id != three.code.id
    assert [each.id for each in make.provided] == [one.code.id, three.code.id]
    assert (one.code.source, one.code.files, one.code.bytes, one.code.commit) == (tree, 1, 1, "")


@pytest.mark.parametrize("workdir", ["src", "link", ""])
def test_a_folder_of_the_code(make: Maker, tree: str, workdir: str) -> None:
    assert make(JobRequest(sync=tree), workdir).workdir == workdir


@pytest.mark.parametrize("workdir", ["sr", "src/a", "no/where"])
def test_one_that_is_not_there(make: Maker, tree: str, workdir: str) -> None:
    with pytest.raises(UsageError, match=f"workdir {workdir}: the code has no such folder"):
        make(JobRequest(sync=tree), workdir)


def test_arenas_place_is_a_link_to_the_code(make: Maker, tree: str) -> None:
    request = JobRequest(sync=tree, code_at="code/name")
    inside, link = make(request), make(request, "/root")
    assert inside.code is not None
    assert link.code is not None
    assert (inside.code.at, link.code.at) == ("", "/root/code/name")
    links = [dict(each.manifest.links).get("code/name") for each in make.provided]
    assert links == ["..", None]
    assert [[file.path for file in each.manifest.files] for each in make.provided] == [["src/a"], ["src/a"]]


@pytest.mark.parametrize("taken", ["code/name/own.py", "code"])
def test_arenas_place_is_left_to_the_tree_that_has_it(make: Maker, tree: str, taken: str) -> None:
    (Path(tree) / taken).parent.mkdir(parents=True, exist_ok=True)
    (Path(tree) / taken).write_text("1")
    make(JobRequest(sync=tree, code_at="code/name"))
    assert "code/name" not in dict(make.provided[0].manifest.links)


def test_config_files_alone_are_no_tree(make: Maker, tree: str) -> None:
    spec = make(JobRequest(config_files=(f"{tree}/src/a:/etc/a.conf",)))
    assert spec.code is not None
    assert (spec.code.source, spec.code.files, spec.code.bytes) == ("", 1, 1)
    with pytest.raises(UsageError, match="a relative path starts at the folder of the code, but this job has no code"):
        make(JobRequest(config_files=(f"{tree}/src/a:a.conf",)))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed (apt-get install git)")
def test_git_is_in_the_record(make: Maker, tmp_path: Path) -> None:
    work = repository(tmp_path / "work", {"train.py": "1", "docs/a": "a"})
    commit = git(work, "rev-parse", "HEAD")
    clean = make(JobRequest(sync=str(work))).code
    assert clean is not None
    assert (clean.commit, clean.ref, clean.dirty) == (commit, "main", "")
    (work / "train.py").write_text("2")
    dirty = make(JobRequest(sync=str(work), sync_max=1 << 30)).code
    assert dirty is not None
    assert (dirty.commit, len(dirty.dirty)) == (commit, 16)
    fetched = make(JobRequest(sync=f"git+file://{work}@main")).code
    assert fetched is not None
    assert (fetched.source, fetched.commit, fetched.ref, fetched.dirty) == (f"git+file://{work}", commit, "main", "")
    assert fetched.id == clean.id
    assert make.said == [f"fetching file://{work}"]
