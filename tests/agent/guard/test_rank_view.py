"""What a guard sees of a rank that can be held against the plan, on real processes."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from taco_launch.agent.guard import rank_view
from taco_launch.agent.host import processes
from tests.conftest import eventually

pytestmark = pytest.mark.enable_socket


def test_the_environment_and_connections_of_the_program_behind_a_shell() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connects = f"import socket, time; s = socket.create_connection(('127.0.0.1', {port})); time.sleep(1000)"
        script = 'export NCCL_DEBUG=INFO; "$@"; exit'
        wrapper = subprocess.Popen(
            ["/bin/sh", "-c", 'sh -c "$0" sh "$@"; exit', script, sys.executable, "-S", "-c", connects],
            env={**os.environ, "NCCL_DEBUG": "WARN", "SECRET": "x"},
            start_new_session=True,
        )
        try:
            accepted, _address = server.accept()
            root = processes.identify(wrapper.pid)
            assert root is not None

            def seen() -> bool:
                (rank,) = rank_view.seen({3: (root.pid, root.start)}, ["NCCL_DEBUG", "NCCL_NET"]).ranks
                return (rank.rank, rank.env, rank.sockets) == (3, (("NCCL_DEBUG", "INFO"),), ())

            eventually(seen)
            accepted.close()
        finally:
            os.killpg(wrapper.pid, signal.SIGKILL)
            wrapper.wait()


def test_a_rank_that_is_gone() -> None:
    (rank,) = rank_view.seen({3: (1 << 22, 5)}, ["NCCL_DEBUG"]).ranks
    assert (rank.rank, rank.env, rank.sockets) == (3, None, ())
