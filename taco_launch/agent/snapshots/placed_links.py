"""Links at absolute paths into a job's folder: a config file, or code where its program looks for it.

A link is made where nothing is, or where a job that has ended left one; what else stands there is never touched. It goes
with the attempt, and so do the folders that were made for it, if they are empty by then.
"""

import contextlib
import os
from pathlib import Path
from typing import List, Sequence, Set, Tuple

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import TacoLaunchError


class LinkError(Exception):
    """Why a link cannot be made."""


class PlacedLinks:
    """The links of one job on one host, kept in its folder so that whoever removes that finds them."""

    def __init__(self, folder: JobFolder) -> None:
        """Name the job; nothing is touched."""
        self._folder = folder
        self._file = folder.path / "links.json"

    def make(self, links: Sequence[Tuple[str, Path]]) -> None:
        """Make links (path, what it leads to); the folders above that are missing are made.

        Raises:
            LinkError: one cannot be made; says what stands in the way.
        """
        if not links:
            return
        folders = {f"{each}/" for path, _target in links for each in Path(path).parents if not os.path.lexists(each)}
        folders |= {path for path in self._noted() if path.endswith("/")}  # an earlier attempt's
        deepest_first = sorted(folders, key=len, reverse=True)
        records.write_json(self._file, [*(path for path, _target in links), *deepest_first])
        for path, target in links:
            _make(path, target, self._folder.path.parent)

    def remove(self) -> None:
        """Remove those that are still this job's, then the empty folders above them that were made for them."""
        above: Set[str] = set()
        for path in self._noted():
            with contextlib.suppress(OSError, ValueError):
                if path in above:  # a rank can write the list: it names no other folder
                    os.rmdir(path)  # noqa: PTH106
                elif _is_in(os.readlink(path), self._folder.path):
                    os.unlink(path)  # noqa: PTH108
                    above.update(f"{folder}/" for folder in Path(path).parents)

    def _noted(self) -> List[str]:
        """Return the paths of links, and of folders with a slash behind them."""
        try:
            paths = records.read_json(self._file)
        except (ValueError, TacoLaunchError):
            return []
        return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def _make(path: str, target: Path, jobs: Path) -> None:
    parts: List[str] = path.strip("/").split("/")
    above = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=above)
            # a link above would have it written elsewhere than its path says
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            os.close(above)
            above = inner
        name = parts[-1]
        try:
            os.symlink(target, name, dir_fd=above)
        except FileExistsError:
            _replace(path, name, above, target, jobs)
    except NotADirectoryError:
        raise LinkError(
            f"{path}: a part of this path is not a folder or is a symbolic link: use the real path"
        ) from None
    except OSError as error:
        raise LinkError(f"{path}: {error.strerror}") from None
    finally:
        os.close(above)


def _replace(path: str, name: str, above: int, target: Path, jobs: Path) -> None:
    """Put a link into the place of one that a job has left which has ended.

    Raises:
        LinkError: the path exists and was not left by an ended job.
    """
    try:
        there = os.readlink(name, dir_fd=above)
    except OSError:
        raise LinkError(f"{path}: this path already exists, and taco-launch does not replace files") from None
    if not _is_in(there, jobs):
        raise LinkError(
            f"{path}: a symbolic link with this path already exists, and taco-launch does not replace files"
        )
    other = Path(there).relative_to(jobs).parts[0]
    if jobs / other not in target.parents and _runs(JobFolder(jobs / other)):
        raise LinkError(f"{path}: job {other} is using this path")
    new = f".{name[:200]}.{os.urandom(4).hex()}"
    os.symlink(target, new, dir_fd=above)
    os.rename(new, name, src_dir_fd=above, dst_dir_fd=above)


def _is_in(path: str, folder: Path) -> bool:
    return path.startswith(f"{folder}/") and ".." not in Path(path).parts


def _runs(folder: JobFolder) -> bool:
    """Return whether a job's guard is on this host."""
    try:
        folder.connect().close()
    except OSError:
        return False
    return True
