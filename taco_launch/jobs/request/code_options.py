"""What a request says of code: where it comes from, where the ranks start in it; Arena's way to say so."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from taco_launch.core.errors import UsageError
from taco_launch.core.manifest import check_path
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec

GIT = "git+"
_SCHEMES = ("https", "http", "ssh", "file")
# Nothing that git takes for an option, and no more than one ref can be (git-check-ref-format(1)).
_REF = re.compile(r"[A-Za-z0-9_./+][A-Za-z0-9_./+-]{0,250}")
# user@host:path, as ssh and git have it
_SCP = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9._-]+:(?!//)\S+")
_ARENA_MODES = ("git", "rsync")


def git_address(sync: str, called: str = "--sync") -> tuple[str, str]:
    """Return the URL and the ref, "" for none, of git+URL[@REF].

    Raises:
        UsageError: it has another form, another protocol, or a password in it.
    """
    text = sync.removeprefix(GIT)
    head, at, tail = text.rpartition("@")
    # the last @ may stand before the host: git+ssh://git@host/path
    url, ref = (head, tail) if at and "/" in head.partition("://")[2] else (text, "")
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError as error:
        raise UsageError(f"{called} {sync!r}: {error}") from None
    git = GIT if sync.startswith(GIT) else ""  # Arena's source has no such prefix
    if scheme not in _SCHEMES or "://" not in url or not (parts.hostname or scheme == "file") or not parts.path:
        raise UsageError(
            f"{called} {sync!r}: write {git}https://HOST/REPOSITORY[@REF], {git}ssh://... or {git}file:///PATH"
        )
    if password is not None:
        raise UsageError(
            f"{called}: a password in the address would be stored in the job's record",
            hint="put the password into GIT_SYNC_PASSWORD, and the user name into GIT_SYNC_USERNAME",
        )
    if not url.isprintable() or " " in url or (parts.hostname or "").startswith("-"):
        raise UsageError(
            f"{called} {sync!r}: the address has a blank or a control character, or its host starts with '-'",
            hint=f"write {git}https://HOST/REPOSITORY[@REF]",
        )
    if at and url != text and not (_REF.fullmatch(ref) and ".." not in ref):
        raise UsageError(f"{called} {sync!r}: {ref!r} is not a branch, tag or commit")
    return url, ref


def check(request: JobRequest) -> str:
    """Check what a request says of its code; return the folder that the ranks start in, "" for where they do without.

    Raises:
        UsageError: something of it has another form, or lacks something else.
    """
    if request.sync is not None and request.sync.startswith(GIT):
        git_address(request.sync, request.called("sync"))
    if request.sync is None and request.sync_max is not None:
        raise UsageError(f"{request.called('sync_max')}: requires {request.called('sync')}")
    folder = request.workdir or ""
    called = request.called("workdir")
    if not folder.startswith("/") and folder:
        if request.sync is None:
            raise UsageError(
                f"{called} {folder}: a relative path starts at the folder of the code, but this job has no code",
                hint=f"write an absolute path, or add {request.called('sync')}",
            )
        folder = str(PurePosixPath(folder))
    if folder not in ("", "/", "."):
        inside = folder.strip("/")
        if {"", ".", ".."} & set(inside.split("/")):
            raise UsageError(f"{called} {folder}: the path must not contain . or .. or empty parts")
        try:
            check_path(inside)
        except ValueError as error:
            raise UsageError(f"{called} {folder}: {error}") from None
    if request.code_at is not None:
        check_path(request.code_at)
    return "" if folder == "." else folder


def left_here(spec: JobSpec, folder: str) -> list[str]:
    """Return the words of a job's command that name a file below `folder` on this machine, but none in the job's containers.

    Relative words count from the folder that the ranks start in. What lies below a mount may exist on the hosts.
    """
    if spec.container is None or folder == "/":  # every machine has what is below /
        return []
    inside = [PurePosixPath(place) for _, place, _ in (*spec.container.mounts, *spec.container.data)]
    found = []
    for number, word in enumerate(spec.command):
        path = PurePosixPath(spec.workdir or "/", word)
        if (number == 0 and "/" not in word) or any(path.is_relative_to(place) for place in inside):
            continue
        here = Path(folder, word)
        with contextlib.suppress(OSError, ValueError):  # longer than a name can be, or with a NUL in it
            if here.is_relative_to(folder) and here.is_file():
                found.append(word)
    return found


def from_arena(request: JobRequest, mode: str, source: str) -> JobRequest:
    """Return a request with the code that Arena's --sync-mode and --sync-source name, found at code/NAME below workdir as well.

    Without --working-dir, the folder that the command names above code/NAME is it: Arena's own default is /root.

    Raises:
        UsageError: the mode is none of Arena's, or the source is none that can be copied.
    """
    if mode not in _ARENA_MODES:
        raise UsageError(f"--sync-mode {mode}: must be one of {', '.join(_ARENA_MODES)}")
    if not source:
        raise UsageError(
            "--sync-mode requires --sync-source", hint="--sync-source requires a repository's address or a folder"
        )
    sync = _git(source) if mode == "git" else source
    if mode == "rsync" and (source.startswith("rsync://") or _SCP.fullmatch(source)):
        raise UsageError(
            f"--sync-source {source}: rsync mode copies only a folder of this machine",
            hint="copy it here first, or mount it; or use --sync-mode git",
        )
    address = git_address(sync.removeprefix(GIT), "--sync-source")[0] if mode == "git" else source
    name = re.sub(r"\.git/?$", "", address.rstrip("/")).rpartition("/")[2]
    written = {**request.written, "sync": "--sync-source"}
    if name in ("", ".", ".."):
        raise UsageError(f"--sync-source {source}: it does not end with the name of a folder or repository")
    named = re.search(rf"(?:^|[\s'\"=])(/[^\s'\"]*)/code/{re.escape(name)}(?=[/\s'\"]|$)", " ".join(request.command))
    workdir = request.workdir or (named[1] if named else None)
    return replace(request, sync=sync, code_at=f"code/{name}", workdir=workdir, written=written)


def _git(source: str) -> str:
    """Return an address of Arena's as --sync has it: git@host:path is ssh's."""
    if "://" not in source and _SCP.fullmatch(source):
        host, _colon, path = source.partition(":")
        return f"{GIT}ssh://{host}/{path}"
    return GIT + source.removeprefix(GIT)
