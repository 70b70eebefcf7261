"""An HTTP server that Prometheus scrapes: GET /metrics, collected anew each time.

Whoever reaches its port may be anybody: names that it is asked by, clients at once and their time are limited, which
prometheus_client's own server does not do.
"""

import contextlib
import ipaddress
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase

from taco_launch.core.errors import TacoLaunchError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # the version of the text format that generate_latest writes
_PATH = "/metrics"
_WORDS = "text/plain; charset=utf-8"
# How long a client may take to ask, and to take the answer; the time between, in which we collect, is ours.
ASK_SECONDS, ANSWER_SECONDS = 10.0, 30.0
MOST_CLIENTS = 32
# A request of Prometheus has some hundred bytes; http.server would keep a hundred headers of 64 KiB.
_ASKED_BYTES = 16 << 10
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\n\r\n"


class Server(ThreadingHTTPServer):
    """Serves what `collect` gives; one collection at a time, which all who waited for it are given."""

    daemon_threads = True
    request_queue_size = 2 * MOST_CLIENTS  # who comes while all are served is told so, and does not wait to connect

    def __init__(self, address: str, port: int, collect: Callable[[], bytes], names: Collection[str] = ()) -> None:
        """Listen, on a free port where `port` is 0; `names` are those that clients may use besides this machine's own.

        Raises:
            OSError: it cannot, there.
        """
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._collect = collect
        self._lock = threading.Lock()
        self._collected: tuple[float, bytes] = (0.0, b"")
        own = socket.gethostname()
        self._names = {name.lower() for name in ("localhost", own, own.partition(".")[0], *names)}
        self._due: dict[socket.socket, float] = {}  # by when each client has to have asked, or taken its answer
        self._silent: dict[socket.socket, None] = {}  # who has not asked yet, the oldest first
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

    def is_name(self, host: str | None) -> bool:
        """Return whether a Host header (RFC 9110, 7.2) names this server: by an address, or a name that it goes by.

        A web page could otherwise have its visitor's browser read the metrics, under a name that it has resolve to here.
        """
        if host is None:
            return True
        name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        return name.lower().rstrip(".") in self._names

    def due(self, client: socket.socket, seconds: float | None) -> None:
        """Limit how long a client has from now on; None while it waits for us."""
        self._due[client] = float("inf") if seconds is None else time.monotonic() + seconds
        self._silent.pop(client, None)

    def process_request(self, request: "socket.socket | tuple[bytes, socket.socket]", client_address: object) -> None:
        """Serve a client by a thread of its own; of too many, the oldest that has asked for nothing makes room."""
        assert isinstance(request, socket.socket)
        if len(self._due) >= MOST_CLIENTS:
            oldest = next(iter(list(self._silent)), None)
            if oldest is None:
                with contextlib.suppress(OSError):
                    request.setblocking(False)
                    request.send(_BUSY)
                self.shutdown_request(request)
                return
            self._forget(oldest)
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        self.due(request, ASK_SECONDS)
        self._silent[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: "socket.socket | tuple[bytes, socket.socket]") -> None:
        """Close a client's connection."""
        assert isinstance(request, socket.socket)
        self._forget(request)
        super().shutdown_request(request)

    def _forget(self, client: socket.socket) -> None:
        self._due.pop(client, None)
        self._silent.pop(client, None)

    def service_actions(self) -> None:
        """Cut off the clients that are too slow; called all the time."""
        now = time.monotonic()
        for client, due in list(self._due.items()):
            if due < now:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, _request: object, client_address: object) -> None:
        """Log a failure in one line; the next scrape may go better."""
        sys.stderr.write(f"taco-launch: metrics for {client_address}: {sys.exc_info()[1]!r}\n")

    def metrics(self) -> bytes:
        """Return the metrics as they are, or became since they were requested.

        Raises:
            TacoLaunchError: they cannot be collected.
        """
        asked = time.monotonic()
        with self._lock:
            if self._collected[0] < asked:
                found = self._collect()
                self._collected = time.monotonic(), found
            return self._collected[1]


class _LimitedRequest:
    """What a client asks, up to a limit; behind that it is as if it had ended."""

    def __init__(self, file: BufferedIOBase) -> None:
        """Read from a client's file."""
        self._file, self._left = file, _ASKED_BYTES

    def readline(self, limit: int = -1) -> bytes:
        """Return the next line, or what is left of it."""
        line = self._file.readline(self._left if limit < 0 else min(limit, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether it is."""
        return self._file.closed


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "taco-launch"
    sys_version = ""
    timeout = ASK_SECONDS

    def setup(self) -> None:
        super().setup()
        self.rfile = _LimitedRequest(self.rfile)  # type: ignore[assignment]

    def do_GET(self) -> None:
        self.server.due(self.connection, None)
        host = self.headers.get("Host")
        if not self.server.is_name(host):
            told = (
                f"not a name of this server: {str(host)[:100]!r}; to allow it: taco-launch metrics --allow-host NAME\n"
            )
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, told.encode("utf-8", "replace"), _WORDS)
            return
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
        """Log nothing for a scrape."""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.server.due(self.connection, ANSWER_SECONDS)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
