"""Files of variables: docker's form, checked as -x is, and no value in a message."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import SpecError
from taco_launch.jobs.request import variables

ENVIRON = {"HOME": "/root", "NCCL_DEBUG": "WARN"}


def read(tmp_path: Path, *texts: "str | bytes") -> dict[str, "str | None"]:
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.env"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        paths.append(str(path))
    return dict(variables.read(paths, ENVIRON, allow_unknown=False))


def test_lines(tmp_path: Path) -> None:
    text = '\ufeff# a comment\n\nA=1\n  B = two = 2 \nC="as it is"\nHOME\nNOT_SET\nNCCL_DEBUG=INFO\r\nD=\nA=last\n'
    with pytest.raises(SpecError):  # `B ` is not a name
        read(tmp_path, text)
    found = read(tmp_path, text.replace("B = two", "B= two"))
    assert found == {"A": "last", "B": " two = 2 ", "C": '"as it is"', "HOME": None, "NCCL_DEBUG": "INFO", "D": ""}


def test_a_later_file_goes_before_an_earlier_one(tmp_path: Path) -> None:
    assert read(tmp_path, "A=1\nB=1\n", "B=2\n") == {"A": "1", "B": "2"}


def test_all_faults_at_once_without_values(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        read(tmp_path, "A B=hunter2\nNCCL_DEBUG=hunter2\nfine=1\n=hunter2\nNCCL_DEBUGG=hunter2\nbad line\n")
    assert [fault.path for fault in error.value.faults] == ["line 1", "line 2", "line 4", "line 5", "line 6"]
    assert "hunter2" not in str(error.value)


def test_what_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="line 2: is not UTF-8"):
        read(tmp_path, b"A=1\nB=\xff\n")
    with pytest.raises(SpecError, match="--env-file: file not found: /nowhere"):
        variables.read(["/nowhere"], ENVIRON, allow_unknown=False)


@given(st.binary(max_size=60))
def test_whatever_stands_there_is_variables_or_an_error(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            found = variables.read([file.name], ENVIRON, allow_unknown=True)
        except SpecError:
            return
    assert all("=" not in name and "\0" not in f"{name}{value}" for name, value in found)
