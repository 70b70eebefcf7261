"""variant_port.sh: a port for each variant, nobody's else, and the same one again."""

import socket
import subprocess
from pathlib import Path

import pytest

from taco_launch.setup import scripts


def lease(folder: Path, *words: object) -> str:
    text = scripts.text("variant_port.sh").replace("/var/lib/taco-launch", str(folder / "var"))
    text = text.replace("/run/taco-launch", str(folder / "run"))
    argv = ("/bin/sh", "-c", text, "variant_port", *map(str, words))
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def test_each_has_its_own_and_keeps_it(tmp_path: Path) -> None:
    assert lease(tmp_path, "c@1", 47301, 47303, 0) == "port 47301"
    assert lease(tmp_path, "c@2", 47301, 47303, 0) == "port 47302"
    assert lease(tmp_path, "c@1", 47301, 47303, 0) == "port 47301"
    assert lease(tmp_path, "c@3", 47301, 47303, 47302) == "taken"
    assert lease(tmp_path, "c@3", 47301, 47303, 47303) == "port 47303"
    assert lease(tmp_path, "c@4", 47301, 47303, 0) == "taken"


def test_what_another_host_refused_is_given_up_for_another(tmp_path: Path) -> None:
    assert lease(tmp_path, "c@1", 47311, 47313, 0) == "port 47311"
    assert lease(tmp_path, "c@1", 47311, 47313, 0, 47311) == "port 47312"
    assert lease(tmp_path, "c@2", 47311, 47313, 0) == "port 47311"


@pytest.mark.enable_socket
def test_a_port_that_somebody_listens_on_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert lease(tmp_path, "c@1", port, port, 0) == "taken"


@pytest.mark.parametrize("place", ["other/ssh", "c/variants/0123456789/ssh"])
def test_so_is_that_of_a_container_that_does_not_run(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "var/clusters" / place
    folder.mkdir(parents=True)
    (folder / "sshd_config").write_text("ListenAddress 10.0.0.1:47321\n")
    assert lease(tmp_path, "c@1", 47321, 47322, 0) == ("port 47322" if place.startswith("other") else "port 47321")
