"""An HTTP server that Prometheus scrapes: GET /metrics, collected anew each time."""

import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from taco_launch.errors import TacoLaunchError
from taco_launch.metrics.exposition import CONTENT_TYPE

_PATH = "/metrics"
_WORDS = "text/plain; charset=utf-8"
# A client that says nothing does not keep its thread for longer.
_SILENT_SECONDS = 10.0


class Server(ThreadingHTTPServer):
    """Serves what `collect` gives; one collection at a time, which all who waited for it are given."""

    daemon_threads = True

    def __init__(self, address: str, port: int, collect: Callable[[], bytes]) -> None:
        """Listen, on a free port where `port` is 0.

        Raises:
            OSError: it cannot, there.
        """
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._collect = collect
        self._lock = threading.Lock()
        self._collected: tuple[float, bytes] = (0.0, b"")
        super().__init__((address, port), _Handler)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        address, port = self.server_address[:2]
        name = f"[{address!s}]" if self.address_family is socket.AF_INET6 else str(address)
        return f"http://{name}:{port}{_PATH}"

    def server_bind(self) -> None:
        """Bind, without asking for this machine's name, which may take seconds (DNS)."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, _request: object, client_address: object) -> None:
        """Say a failure in one line; the next scrape may go better."""
        sys.stderr.write(f"taco-launch: metrics for {client_address}: {sys.exc_info()[1]!r}\n")

    def metrics(self) -> bytes:
        """Give the metrics as they are, or became since they were asked for.

        Raises:
            TacoLaunchError: they cannot be collected.
        """
        asked = time.monotonic()
        with self._lock:
            if self._collected[0] < asked:
                found = self._collect()
                self._collected = time.monotonic(), found
            return self._collected[1]


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "taco-launch"
    sys_version = ""
    timeout = _SILENT_SECONDS

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != _PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"the metrics are at {_PATH}\n".encode(), _WORDS)
            return
        try:
            found = self.server.metrics()
        except TacoLaunchError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n".encode("utf-8", "replace"), _WORDS)
            return
        self._answer(HTTPStatus.OK, found, CONTENT_TYPE)

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def log_message(self, *_words: object) -> None:
        """Say nothing of every scrape."""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
