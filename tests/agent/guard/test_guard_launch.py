"""Processes that the guard starts itself without mpirun: the host's launcher, its log and its end, and the port that it needs."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.host import processes
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.launch.command_line.env import JOB_ID
from tests.agent.conftest import Family, Mail
from tests.conftest import eventually
from tests.support.guards import ended, lease


def launch(mail: Mail, family: Family, *argv: str, **more: Any) -> None:
    caller = {"PATH": os.environ["PATH"], JOB_ID: family.job_id}
    order = {"caller": caller, "environment": {"OWN": "it's"}, "cwd": "/", "umask": 0o027, "attempt": 1}
    mail.send("launch", argv=argv, log_max_bytes=1 << 20, **{**order, **more})


def said(folder: JobFolder) -> str:
    return Path(f"{folder.launcher}.0.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9)])
def test_a_launcher_is_started_once_and_its_end_is_told(
    supervisor: Mail, folder: JobFolder, family: Family, script: str, code: int
) -> None:
    count = folder.path / "count"
    for _time in range(2):  # as after a connection that broke
        launch(supervisor, family, "sh", "-c", f'echo >>"{count}"; echo "$OWN" $(pwd) $(umask); {script}')
    assert supervisor.wait("done")["code"] == code
    assert said(folder) == "it's / 0027\n"
    supervisor.receive(0.5)
    assert not [message for message in supervisor.box if message["op"] == "done"]
    assert count.read_text(encoding="ascii") == "\n"


def test_a_launcher_that_is_not_there(supervisor: Mail, folder: JobFolder, family: Family) -> None:
    launch(supervisor, family, "torchrun", caller={"PATH": "/nowhere"})
    assert supervisor.wait("done")["code"] == 127
    assert said(folder).startswith("taco-launch: cannot run 'torchrun': No such file or directory (")


def test_a_folder_that_is_not_there(supervisor: Mail, folder: JobFolder, family: Family) -> None:
    launch(supervisor, family, "pwd", cwd="/nowhere")
    assert supervisor.wait("done")["code"] == 0
    assert said(folder).startswith("taco-launch: the folder /nowhere does not exist here, so the ranks start in ")


def test_a_launcher_without_ranks_is_told_to_end(supervisor: Mail, family: Family) -> None:
    launch(supervisor, family, "sleep", "60")
    supervisor.wait("facts")
    supervisor.send("terminate")
    assert supervisor.wait("done")["code"] == -15


def test_the_end_of_the_job_is_that_of_its_launcher(
    supervisor: Mail, folder: JobFolder, guard: Any, family: Family
) -> None:
    # It has no mark, and is found as the guard's own.
    launch(supervisor, family, "sh", "-c", "echo $$; sleep 60; :", caller={"PATH": os.environ["PATH"]})
    pid = int(eventually(lambda: Path(f"{folder.launcher}.0.log").exists() and said(folder).strip()))
    assert ended(supervisor, guard) == {"left": [], "unknown": ""}
    assert processes.identify(pid) is None


@pytest.mark.enable_socket
def test_a_port_that_a_program_listens_on_is_not_leased(supervisor: Mail, folder: JobFolder) -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        lease(supervisor, 1, port)
        answer = supervisor.wait("leased")
        assert (answer["slots"], answer["ports"]) == (None, [port])
        assert [slot["holder"] for slot in answer["occupancy"]["slots"]] == [None, None]
    lease(supervisor, 1, port)
    assert supervisor.wait("leased")["slots"] == ["slot-0"]
    assert (folder.path / "leases" / f"port-{port}.{os.geteuid()}").read_bytes()
