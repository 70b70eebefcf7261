"""What a request says of code: addresses, folders, Arena's spelling."""

from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.core.model.host.hosts import Container
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.request import code_options


@pytest.mark.parametrize(
    ("sync", "url", "ref"),
    [
        ("git+https://host/a/b.git", "https://host/a/b.git", ""),
        ("git+https://host/a/b.git@main", "https://host/a/b.git", "main"),
        ("git+https://host:8443/a/b.git@feature/x-1", "https://host:8443/a/b.git", "feature/x-1"),
        ("git+https://me@host/a/b.git@v1.0", "https://me@host/a/b.git", "v1.0"),
        ("git+ssh://git@host/a/b.git", "ssh://git@host/a/b.git", ""),
        ("git+ssh://git@host:22/a/b.git@0123abc", "ssh://git@host:22/a/b.git", "0123abc"),
        ("git+file:///srv/a.git@main", "file:///srv/a.git", "main"),
        ("git+file:///srv/a", "file:///srv/a", ""),
    ],
)
def test_addresses(sync: str, url: str, ref: str) -> None:
    assert code_options.git_address(sync) == (url, ref)


@pytest.mark.parametrize(
    ("sync", "words"),
    [
        ("git+host/a", "write git+https://"),
        ("git+ext::sh -c id", "write git+https://"),
        ("git+ftp://host/a", "write git+https://"),
        ("git+https:///a", "write git+https://"),
        ("git+https://host", "write git+https://"),
        ("git+https://me:secret@host/a", "a password in the address would be"),
        ("git+https://host/a b", "the address has a blank or a control character"),
        ("git+ssh://-oProxyCommand=id/a", "the address has a blank or a control character"),
        ("git+https://host/a@-x", "'-x' is not a branch, tag or commit"),
        ("git+https://host/a@a..b", "'a..b' is not a branch, tag or commit"),
        ("git+https://host/a@a b", "not a branch, tag or commit"),
        ("git+https://host/a@", "'' is not a branch, tag or commit"),
        ("git+https://[host/a", "write git+https://"),
    ],
)
def test_what_is_no_address(sync: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        code_options.git_address(sync)
    assert words in error.value.message or "Invalid IPv6 URL" in error.value.message
    assert "secret" not in error.value.message


@pytest.mark.parametrize(
    ("request_", "folder"),
    [
        (JobRequest(sync="."), ""),
        (JobRequest(sync=".", workdir="."), ""),
        (JobRequest(sync=".", workdir="src/"), "src"),
        (JobRequest(sync=".", workdir="./a//b"), "a/b"),
        (JobRequest(workdir="/root"), "/root"),
        (JobRequest(sync=".", workdir="/"), "/"),
    ],
)
def test_the_folder_that_ranks_start_in(request_: JobRequest, folder: str) -> None:
    assert code_options.check(request_) == folder


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            JobRequest(workdir="src"),
            "workdir src: a relative path starts at the folder of the code, but this job has no code",
        ),
        (JobRequest(sync=".", workdir="../x"), "workdir ../x: the path must not contain . or .. or empty parts"),
        (JobRequest(sync=".", workdir="a/../../x"), "the path must not contain . or .. or empty parts"),
        (JobRequest(workdir="/a/../b"), "the path must not contain . or .. or empty parts"),
        (JobRequest(workdir="/a\0b"), "invalid path: 'a\\x00b' (at most"),
        (JobRequest(sync_max=5), "sync_max: requires sync"),
        (JobRequest(sync="git+nothing"), "write git+https://"),
    ],
)
def test_what_cannot_be(request_: JobRequest, words: str) -> None:
    with pytest.raises(UsageError) as error:
        code_options.check(request_)
    assert words in error.value.message


@pytest.mark.parametrize(
    ("mode", "source", "sync", "at"),
    [
        (
            "git",
            "https://host/370272561/mnist-pytorch.git",
            "git+https://host/370272561/mnist-pytorch.git",
            "mnist-pytorch",
        ),
        ("git", "git@host:group/name.git", "git+ssh://git@host/group/name.git", "name"),
        ("git", "ssh://git@host/group/name", "git+ssh://git@host/group/name", "name"),
        ("git", "git+https://host/name.git/", "git+https://host/name.git/", "name"),
        ("rsync", "/home/me/name", "/home/me/name", "name"),
        ("rsync", "name/", "name/", "name"),
    ],
)
def test_arenas_spelling(mode: str, source: str, sync: str, at: str) -> None:
    found = code_options.from_arena(JobRequest(command=("true",)), mode, source)
    assert (found.sync, found.code_at) == (sync, f"code/{at}")
    assert found == replace(found, command=("true",))
    assert code_options.check(found) == ""


@pytest.mark.parametrize(
    ("line", "workdir", "folder"),
    [
        ("python /root/code/a/main.py --lr 1", None, "/root"),
        ("sh -c 'cd /w/x/code/a && python main.py'", None, "/w/x"),
        ("python /root/code/a/main.py", "/other", "/other"),
        ("python /root/code/another/main.py", None, None),
        ("python code/a/main.py", None, None),
    ],
)
def test_the_folder_that_arenas_command_names_is_its_workdir(
    line: str, workdir: str | None, folder: str | None
) -> None:
    request = JobRequest(command=tuple(line.split()), workdir=workdir)
    assert code_options.from_arena(request, "git", "https://host/you/a.git").workdir == folder


@pytest.mark.parametrize(
    ("mode", "source", "words"),
    [
        ("svn", "https://host/a", "must be one of git, rsync"),
        ("git", "", "requires --sync-source"),
        ("rsync", "10.0.0.1::backup/code", "rsync mode copies only a folder of this machine"),
        ("rsync", "host:code", "rsync mode copies only a folder of this machine"),
        ("rsync", "rsync://host/code", "rsync mode copies only a folder of this machine"),
        ("rsync", "..", "it does not end with the name"),
        ("git", "/srv/a", "--sync-source '/srv/a': write https://"),
    ],
)
def test_what_arenas_options_cannot_say(mode: str, source: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        code_options.from_arena(JobRequest(), mode, source)
    assert words in error.value.message


@pytest.mark.parametrize(
    ("command", "workdir", "left"),
    [
        ("python3 train.py --out out", "", ["train.py"]),
        ("python3 train.py", "/data/me", []),
        ("python3 sub/eval.py train.py", "/opt", ["sub/eval.py", "train.py"]),
        ("hostname", "", []),
        ("./hostname -f", "", ["./hostname"]),
        ("python3 {here}/train.py", "", ["{here}/train.py"]),
        ("/bin/sh -c true", "", []),
        ("python3 ../train.py " + "x" * 5000, "", []),
    ],
)
def test_files_that_no_container_has_are_found(command: str, workdir: str, left: list[str], tmp_path: Path) -> None:
    for name in ("train.py", "hostname", "sub/eval.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    spec = JobSpec(
        name="a",
        command=tuple(command.format(here=tmp_path).split()),
        hosts=(),
        container=Container("image", mounts=(("/mnt/data", "/data", "rw"),)),
        workdir=workdir,
    )
    assert code_options.left_here(spec, str(tmp_path)) == [word.format(here=tmp_path) for word in left]
    assert code_options.left_here(replace(spec, container=None), str(tmp_path)) == []
    assert code_options.left_here(replace(spec, command=("/bin/sh", "x.sh")), "/") == []
