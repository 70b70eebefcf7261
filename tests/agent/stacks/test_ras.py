"""The answers of NCCL's RAS: a server of this test replaces it, since NCCL does not run without GPUs (simulated)."""

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
        assert ras.status([address]) == "NCCL version 2.28\nverbose status\n"
        thread.join()
    assert ras.status([address]) == ""


def test_only_this_host_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any process may have the variable: another host, and what is no port, is answered by the default port's answer."""
    asked: list[int] = []

    def ask(port: int) -> str:
        asked.append(port)
        return ""

    monkeypatch.setattr(ras, "_ask", ask)
    addresses = ["", "10.0.0.9:80", "127.0.0.1:99999999999999999999", "gpu1:port", "[::1]:4000", "127.0.0.1:99999"]
    assert ras.status(addresses) == ""
    assert asked == [4000, 28028]
    assert ras.status(f"localhost:{port}" for port in range(1, 100)) == ""
    assert asked[2:] == [1, 2, 3, 4]
