"""Finds the reason in what pyxis prints when it cannot start a container; captured from pyxis 0.24 and enroot 4.1.2."""

import pytest

from taco_launch.agent.slurm.node_containers import _why

_CHILD = "slurmstepd-n1: error: pyxis: child 146 failed with error code: 6\n"
_LOG = "slurmstepd-n1: error: pyxis: printing enroot log file:\n"
_END = "slurmstepd-n1: error: pyxis:     \nsrun: error: n1: task 0: Exited with exit code 1\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            (
                f"pyxis: importing docker image: docker://a#x\n{_CHILD}{_LOG}"
                "slurmstepd-n1: error: pyxis:     [INFO] Querying registry for permission grant\n"
                f"slurmstepd-n1: error: pyxis:     curl: (6) Could not resolve host: a\n{_END}"
            ),
            "curl: (6) Could not resolve host: a",
        ),
        (
            (
                f"{_CHILD}{_LOG}slurmstepd-n1: error: pyxis:     [ERROR] No such file or directory: /x.sqsh\n"
                f"slurmstepd-n1: error: pyxis:     more\n{_END}"
            ),
            "[ERROR] No such file or directory: /x.sqsh",
        ),
        (_CHILD, "child 146 failed with error code: 6"),
        ("srun: unrecognized option '--container-image=x'\n", "srun: unrecognized option '--container-image=x'"),
        ("", "srun ended"),
    ],
)
def test_why_there_is_no_container(text: str, why: str) -> None:
    assert _why(text) == why
