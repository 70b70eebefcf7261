"""What NCCL's RAS answers: a server of this test stands in for it, since no NCCL runs without GPUs (simulated)."""

import socket
import threading

import pytest

from taco_launch.agent.stacks import ras


@pytest.mark.enable_socket  # it connects to this machine alone
def test_the_answer_of_ras() -> None:
    """Of a server that answers in pieces and closes; nothing listens afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                asked = connection.recv(100)
                connection.sendall(b"NCCL version 2.28\n")
                connection.sendall(asked)

        thread = threading.Thread(target=serve)
        thread.start()
        assert ras.status(address) == "NCCL version 2.28\nverbose status\n"
        thread.join()
    assert ras.status(address) == ""
    assert ras.status("gpu1:port") == ""
