"""`agent horovod-driver`: runs Horovod's own elastic driver, over the hosts that are connected to it.

It runs in the Python of the job's program, which has Horovod. horovodrun runs a script that lists the hosts, and starts ranks
by ssh; here the connections of the hosts (horovod_host.py) show which hosts there are, and carry the orders to start ranks.
"""

import base64
import importlib
import io
import itertools
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from taco_launch.agent.rank.horovod_host import keep_alive, read_sizes
from taco_launch.core.errors import FAILED, NOT_EXECUTABLE, SIGNAL_BASE
from taco_launch.core.launch.command_line.env import HOROVOD_ELASTIC, JOB_ID
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.horovod_messages import (
    EndWorker,
    JobEnded,
    OfferSlots,
    StartWorker,
    WithdrawSlots,
    WorkerEnded,
)
from taco_launch.core.protocol.message import Message

# How long a connection may take to name its job, and how many there may be at once for each host beside those of its ranks.
_OFFER_SECONDS, _CONNECTIONS_PER_HOST = 10.0, 4
_TICK_SECONDS = 0.2
_MARK = "~"  # between a host's address and the number of its offer
# When all ranks have ended, the hosts have so long to go.
_LAST_SECONDS = 5.0
# Of a request of a rank: where it listens, or what its Gloo tells the others; and of the offers of all hosts.
_MOST_BYTES, _MOST_OFFERS = 1 << 20, 1 << 14


def main(address: str, port: int, sizes: str) -> int:
    """Run the driver at an address of this host, and return the exit code of the job.

    `sizes` is as for horovod_host.main. Prints why it cannot run.
    """
    least, most, first, slots = read_sizes(sizes)
    try:
        built = importlib.import_module("horovod.common.util").gloo_built()
        elastic = importlib.import_module("horovod.runner.elastic.driver")
        handlers = importlib.import_module("horovod.runner.elastic.rendezvous")
        http = importlib.import_module("horovod.runner.http.http_server")
    except ImportError as error:
        return _say(f"{sys.executable} does not import Horovod ({error}): an elastic Horovod job requires it there")
    if not built:
        return _say(
            f"the Horovod of {sys.executable} was built without Gloo, which its elastic jobs require: build it with "
            "HOROVOD_WITH_GLOO=1"
        )
    hosts = Hosts(address, slots, most * (slots + _CONNECTIONS_PER_HOST))
    rendezvous = _Rendezvous()
    driver = elastic.ElasticDriver(rendezvous, hosts, least * slots, most * slots)
    handler = _careful(handlers.create_rendezvous_handler(driver), driver)
    rendezvous.server = http.RendezvousHTTPServer((address, 0), handler, 0)
    rendezvous.server.server_close()  # its own port, beside which the job has one that no other has
    rendezvous.server.daemon_threads = True
    where = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": address, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
    hosts.environment = {**HOROVOD_ELASTIC, **where}
    listener = socket.create_server((address, port), backlog=256)
    words = listener, os.environ.get(JOB_ID, ""), rendezvous.serve
    threading.Thread(target=hosts.accept, args=words, daemon=True).start()
    code = _run(driver, hosts, first * slots)
    hosts.finish(code)
    return code


def _run(driver: Any, hosts: "Hosts", first: int) -> int:
    try:
        driver.wait_for_available_slots(first)
        driver.start(first, hosts.run_worker)
        results = driver.get_results()
        driver.stop()
    except Exception as error:  # noqa: BLE001 - Horovod raises many kinds; each ends the job
        sys.stderr.write(f"taco-launch: Horovod's elastic driver: {error}\n")
        return FAILED
    if results.error_message is not None:
        sys.stderr.write(f"taco-launch: Horovod's elastic driver: {results.error_message}\n")
        return FAILED
    if not results.worker_results:  # no rank of the last round has ended
        return hosts.first_failure or FAILED
    return min(((when, code) for code, when in results.worker_results.values() if code), default=(0.0, 0))[1]


def _say(why: str) -> int:
    sys.stderr.write(f"taco-launch: {why}\n")
    return NOT_EXECUTABLE


class _PlainValues(pickle.Unpickler):
    """Reads numbers, texts and their containers alone."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")


def _careful(handler: Any, driver: Any) -> Any:
    """Return Horovod's handler of requests with limits: it runs nothing that a request holds, and shows no key of a rank.

    A rank puts where it listens, and its key, as a pickle, which Horovod 0.28 reads whatever it holds (CVE-2024-10190).
    """
    name, keep = "worker_addresses", getattr(handler, "_put_value")  # noqa: B009 - Horovod's class has no other way

    def put(self: Any, scope: str, key: str, value: bytes) -> None:
        if scope != name:
            keep(self, scope, key, value)
            return
        host, slot = key.split(":")
        addresses, secret = _PlainValues(io.BytesIO(base64.b64decode(value))).load()
        driver.register_worker_server(host, int(slot), addresses, secret)

    def do_put(self: Any) -> None:
        if int(self.headers["Content-Length"]) > _MOST_BYTES:
            self.send_error(413)
        else:
            handler.do_PUT(self)

    return type("Handler", (handler,), {"_put_value": put, "do_PUT": do_put})


class _Rendezvous:
    """Horovod's HTTP server where ranks meet, for connections that come to the job's own port."""

    server: Any

    def init(self, host_alloc_plan: Sequence[Any]) -> None:
        """Begin a round with these slots; Horovod calls this by name."""
        self.server.init(host_alloc_plan)

    def serve(self, sock: socket.socket, where: Any) -> None:
        """Answer the request of a rank, in a thread of its own."""
        self.server.process_request(sock, where)

    def stop(self) -> None:
        """Do nothing: ranks that have ended ask no more. Horovod calls this by name."""


class _Offer:
    """The slots of a connected host from one offer until its ranks fail, under a name of their own.

    Horovod never again uses a host that has failed, so that an offer after that has another name.
    """

    def __init__(self, name: str, line: JsonConnection) -> None:
        self.name = name
        self.is_gone = False
        self.ends: Dict[int, int] = {}  # the exit code of each slot's rank that has ended
        self._line, self._lock = line, threading.Lock()

    def send(self, message: Message) -> None:
        with self._lock:  # each rank has a thread
            self._line.send(message)


class Hosts:
    """The hosts that are connected; for Horovod, what discovers hosts and what runs a rank."""

    def __init__(self, address: str, slots: int, most_connections: int) -> None:
        """Each host has so many slots; the one of this address has rank 0 at first."""
        self._first: Optional[str] = address
        self.environment: Dict[str, str] = {}  # of each rank: where they meet
        self.first_failure = 0  # the code of the rank that failed first
        self._slots = slots
        self._offers: Dict[str, _Offer] = {}  # all that were ever made, by name
        self._available: List[str] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._room = threading.BoundedSemaphore(most_connections)

    def accept(self, listener: socket.socket, job: str, serve_rank: Callable[[socket.socket, Any], None]) -> None:
        """Accept connections of hosts that name this job, and of its ranks, until the listener is closed."""
        while True:
            try:
                sock, where = listener.accept()
            except OSError:
                return
            if not self._room.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(target=self._greet, args=(sock, where, job, serve_rank), daemon=True).start()

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        """Return the slots of each host; Horovod calls this by name every second."""
        with self._changed:
            names = self._available
            if self._first is not None:  # Horovod numbers hosts that come together in no order
                names = [name for name in names if name.startswith(f"{self._first}{_MARK}")]
                self._first = None if names else self._first
            return dict.fromkeys(names, self._slots)

    def run_worker(self, slot: Any, events: Sequence[threading.Event]) -> Tuple[int, float]:
        """Run a rank in a slot, and return its exit code and when it ended; Horovod calls this in a thread for each rank.

        When one of the events is set, Horovod continues without the rank.
        """
        offer = self._offers[slot.hostname]
        create = importlib.import_module("horovod.runner.gloo_run").create_slot_env_vars
        offer.send(StartWorker(slot=slot.local_rank, environment={**self.environment, **create(slot)}))
        is_ended = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: slot.local_rank in offer.ends or offer.is_gone, _TICK_SECONDS)
                code = offer.ends.get(slot.local_rank, SIGNAL_BASE + signal.SIGKILL if offer.is_gone else None)
            if code is not None:
                self.first_failure = self.first_failure or code
                return code, time.time()
            if not is_ended and any(event.is_set() for event in events):
                offer.send(EndWorker(slot=slot.local_rank))
                is_ended = True

    def finish(self, code: int) -> None:
        """Report the job's end to each host, and wait until all have gone."""
        with self._changed:
            offers = [self._offers[name] for name in self._available]
        for offer in offers:
            offer.send(JobEnded(exit_code=code))
        with self._changed:
            self._changed.wait_for(lambda: all(offer.is_gone for offer in offers), _LAST_SECONDS)

    def _greet(
        self, sock: socket.socket, where: Any, job: str, serve_rank: Callable[[socket.socket, Any], None]
    ) -> None:
        """Serve a connection by what it begins with: a host sends JSON, a rank an HTTP request."""
        try:
            sock.settimeout(_OFFER_SECONDS)
            begin = sock.recv(1, socket.MSG_PEEK)
            sock.settimeout(None)
            if begin == b"{":
                self._serve(sock, job)
            elif begin:
                serve_rank(sock, where)
        except OSError:
            sock.close()
        finally:
            self._room.release()

    def _serve(self, sock: socket.socket, job: str) -> None:
        """Read what one host sends, until it goes."""
        keep_alive(sock)
        line = JsonConnection(sock)
        offer: Optional[_Offer] = None
        try:
            for message in _messages(line):
                if isinstance(message, OfferSlots) and message.job == job and message.slots == self._slots:
                    if len(self._offers) >= _MOST_OFFERS:
                        return
                    self._withdraw(offer)
                    offer = self._add(message, line)
                elif offer is None:
                    return
                elif isinstance(message, WithdrawSlots):
                    self._withdraw(offer)
                elif isinstance(message, WorkerEnded) and message.slot < self._slots:
                    with self._changed:
                        offer.ends[message.slot] = message.exit_code
                        self._changed.notify_all()
        finally:
            self._withdraw(offer)
            with self._changed:
                if offer is not None:
                    offer.is_gone = True
                self._changed.notify_all()
            sock.close()

    def _add(self, message: OfferSlots, line: JsonConnection) -> _Offer:
        with self._changed:
            offer = _Offer(f"{message.address}{_MARK}{next(self._numbers)}", line)
            self._offers[offer.name] = offer
            self._available.append(offer.name)
        return offer

    def _withdraw(self, offer: Optional[_Offer]) -> None:
        with self._changed:
            if offer is not None and offer.name in self._available:
                self._available.remove(offer.name)


def _messages(line: JsonConnection) -> Iterator[Message]:
    """Yield the messages of a connection until it breaks, or the first does not come in time."""
    until = time.monotonic() + _OFFER_SECONDS
    poll = select.poll()
    poll.register(line, select.POLLIN)
    is_known = False
    while is_known or time.monotonic() < until:
        messages = line.receive() if poll.poll(1000) else []
        if messages is None:
            return
        is_known = is_known or bool(messages)
        yield from messages
