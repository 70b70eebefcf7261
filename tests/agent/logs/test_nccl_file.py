"""The file in which NCCL describes its set-up: what of it comes into the rank's log, and how it stays small."""

import os
from pathlib import Path

import pytest

from taco_launch.agent.logs import nccl_file, segments

LINE = b"gpu1:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE\n"
WARNING = b"gpu1:7:9 [0] NCCL WARN Call to ibv_modify_qp failed with error Invalid argument\n"


@pytest.fixture
def stem(tmp_path: Path) -> Path:
    return tmp_path / "rank-0"


@pytest.fixture
def found(stem: Path) -> nccl_file.NcclFiles:
    return nccl_file.NcclFiles(stem, segments.Writer(stem, 1 << 20))


def written(stem: Path, process: int = 7) -> Path:
    """Name the file as NCCL does: %p is the process, and %% a %."""
    name = nccl_file.variables(stem)["NCCL_DEBUG_FILE"]
    return Path(name.replace("%p", str(process)).replace("%%", "%"))


def test_the_file_has_a_name_of_its_own_for_each_rank_and_process(tmp_path: Path) -> None:
    one, other = tmp_path / "100%h" / "rank-1", tmp_path / "100%h" / "rank-12"
    one.parent.mkdir()
    for path in (written(one, 7), written(one, 8), written(other)):
        path.write_bytes(LINE)
    assert nccl_file.files(one) == [written(one, 7), written(one, 8)]
    assert nccl_file.files(tmp_path / "gone" / "rank-1") == []


def test_warnings_are_copied_once_and_as_whole_lines(stem: Path, found: nccl_file.NcclFiles) -> None:
    with written(stem).open("ab", buffering=0) as file:
        file.write(LINE + WARNING + WARNING[:20])
        found.copy_warnings()
        found.copy_warnings()
        assert segments.first_words(stem, 1 << 20) == WARNING.decode()
        file.write(WARNING[20:] + LINE)
        found.remove()
    assert segments.first_words(stem, 1 << 20) == 2 * WARNING.decode()
    assert nccl_file.files(stem) == []


def test_the_files_of_very_many_processes_are_all_removed(stem: Path, found: nccl_file.NcclFiles) -> None:
    for process in range(20):
        written(stem, process).write_bytes(WARNING)
    found.remove()
    assert nccl_file.files(stem) == []
    assert segments.first_words(stem, 1 << 20) == 20 * WARNING.decode()


def test_a_file_that_grows_without_end_is_emptied(stem: Path, found: nccl_file.NcclFiles) -> None:
    with written(stem).open("wb", buffering=0) as file:  # without O_APPEND, as fopen(3) does it for NCCL
        file.write(LINE * (5 << 20 // len(LINE)))
        found.copy_warnings()
        file.write(WARNING)
        assert os.fstat(file.fileno()).st_blocks * 512 < 1 << 20
        found.copy_warnings()
    assert segments.first_words(stem, 1 << 20) == WARNING.decode()


def test_what_is_no_regular_file_is_left_alone(stem: Path, found: nccl_file.NcclFiles, tmp_path: Path) -> None:
    os.mkfifo(written(stem, 1))
    (tmp_path / "secret").write_bytes(WARNING)
    written(stem, 2).symlink_to(tmp_path / "secret")
    found.copy_warnings()
    assert segments.first_words(stem, 1 << 20) == ""
    assert [nccl_file.beginning(path, 100) for path in nccl_file.files(stem)] == [b"", b""]
