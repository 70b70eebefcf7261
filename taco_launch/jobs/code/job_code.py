"""The code that a request asks for, as a snapshot that its job names and a backend sends."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from taco_launch.agent.store.folders import cache_folder
from taco_launch.core import trace
from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import CodeSnapshot, JobSpec
from taco_launch.jobs.code import config_files, git_repository, git_state, snapshot
from taco_launch.jobs.code.ignore_rules import TACO_IGNORE
from taco_launch.jobs.code.snapshot import Snapshot
from taco_launch.jobs.code.tree_walk import Say, Tree, walk
from taco_launch.jobs.request.code_options import GIT, git_address

_Asked = tuple[str | None, int | None, tuple[str, ...], str]


class JobCode:
    """The snapshots of one command: jobs that ask for the same code have the same one."""

    def __init__(self, environ: Mapping[str, str], say: Say, provide: Callable[[Snapshot, Say], None]) -> None:
        """Take no snapshot yet; `say` is given what is left out, and what takes long, `provide` each snapshot."""
        self._environ, self._say, self._provide = environ, say, provide
        self._taken: dict[_Asked, tuple[CodeSnapshot, Snapshot]] = {}

    def attach(self, spec: JobSpec, request: JobRequest) -> JobSpec:
        """Return the job with its code.

        Raises:
            UsageError: the code cannot be copied as it is: too large, unreadable, links out of it.
            HostError: a repository cannot be reached.
        """
        # Arena's code/NAME is a link to the code: below an absolute folder, else in the code itself.
        alias, link = request.code_at or "", ""
        if alias and spec.workdir.startswith("/"):
            alias, link = "", f"{spec.workdir.rstrip('/')}/{alias}"
        asked = (request.sync, request.sync_max, request.config_files, alias)
        if asked not in self._taken:
            self._taken[asked] = self._take(request, alias)
            self._provide(self._taken[asked][1], self._say)
        found, taken = self._taken[asked]
        start = spec.workdir
        if start and not start.startswith("/") and not _has_folder(taken, start):
            raise UsageError(f"{request.called('workdir')} {start}: the code has no such folder")
        return replace(spec, code=replace(found, at=link))

    def _take(self, request: JobRequest, alias: str) -> tuple[CodeSnapshot, Snapshot]:
        called = request.called("config_files")
        config = config_files.read(request.config_files, called, has_tree=request.sync is not None)
        cache = cache_folder(self._environ, os.geteuid()) / "code"
        most = snapshot.DEFAULT_MOST_BYTES if request.sync_max is None else request.sync_max
        tree: Tree | None = None
        source = ref = ""
        state: git_state.GitState | None = None
        if request.sync is not None and request.sync.startswith(GIT):
            url, ref = git_address(request.sync, request.called("sync"))
            checkout = git_repository.checked_out(url, ref, cache, self._environ, self._say)
            tree, source = walk(checkout.folder, self._say, (TACO_IGNORE,)), GIT + url
            state = git_state.GitState(checkout.commit, checkout.ref, ())
        elif request.sync is not None:
            source = os.path.abspath(os.path.expanduser(request.sync))  # noqa: PTH100, PTH111 - as it is, with its links
            asking = git_state.ask(source, self._environ)
            tree = walk(source, self._say)
            state = asking.answer()
        taken = snapshot.take(tree, config, cache, most, alias)
        commit, dirty = ("", "") if state is None else (state.commit, state.dirty_hash(taken))
        found = CodeSnapshot(
            id=taken.id,
            source=source,
            ref=ref if state is None else state.ref,
            commit=commit,
            dirty=dirty,
            files=len(taken.manifest.files) + len(taken.manifest.config),
            bytes=taken.manifest.bytes,
        )
        trace.decision("code: snapshot %s of %s: %s files, %s bytes", taken.id[:12], source, found.files, found.bytes)
        return found, taken


def _has_folder(taken: Snapshot, path: str) -> bool:
    """Return whether a snapshot has a folder, as far as that is known without following its links."""
    found = taken.manifest
    below = f"{path.rstrip('/')}/"
    paths = (file.path for file in found.files)
    others = (*found.folders, *(link for link, _target in found.links))
    return any(each.startswith(below) for each in paths) or any(
        each == path or each.startswith(below) or below.startswith(f"{each}/") for each in others
    )
