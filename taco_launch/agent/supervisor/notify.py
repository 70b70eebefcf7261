"""`agent notify`: posts a job's end, hang or lost host to the URL of its --notify, beside what looks after the job."""

import os
import signal
import time
from http import client
from typing import Any, Mapping
from urllib import request

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core import chat_webhooks
from taco_launch.core.errors import OK
from taco_launch.core.lifecycle import state

NOT_NOTIFIED = "not-notified"
_ATTEMPTS = 2
# For all of an attempt: a server of names may never answer, another a byte at a time, without end.
_SECONDS = 10.0
_MOST_CHARACTERS, _MOST_STATUSES = 200, 5
_MOST_OF_ANSWER = 4096


class _Answer(client.HTTPResponse):
    """A server's answer, with a limit on the number of `100 Continue` before it: http.client skips any number."""

    _statuses = 0

    def _read_status(self) -> Any:
        self._statuses += 1
        if self._statuses > _MOST_STATUSES:
            raise client.HTTPException(f"more than {_MOST_STATUSES} answers to one request")
        return super()._read_status()  # type: ignore[misc]


class _NoRedirect(request.HTTPRedirectHandler):
    """Follows no redirect: the server does not choose whom the head talks to."""

    def redirect_request(self, *_asked: Any) -> None:
        """Have the redirect be the answer, which is an error."""


def main(folder: JobFolder, event_time: str) -> int:
    """Post the event of that time (seconds, as `repr` writes them); a delivery that fails twice is an event of the job, and nothing more."""
    events = records.read_events(folder)
    place = next(i for i, event in enumerate(events) if repr(event.time) == event_time)
    record = state.reduce(events[: place + 1])
    body = {
        "name": folder.name,
        "state": record.state.value,
        "event": events[place].kind,
        "reason": events[place].reason,
        "hosts": record.hosts,
    }
    url = records.read_spec(folder).policy.notify
    assert url is not None
    problem = ""
    for _attempt in range(_ATTEMPTS):
        problem = post(url, body)
        if not problem:
            return OK
    records.Events(folder).add(NOT_NOTIFIED, f"--notify: {events[place].kind}: not delivered: {problem}")
    return OK


def post(address: str, event: Mapping[str, Any]) -> str:
    """Post an event, in the form of `chat_webhooks.message`; return why that failed, "" where it did not."""
    reader, writer = os.pipe()
    child = os.fork()  # a process can be ended in the middle of a lookup, in which no handler of a signal runs
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, _SECONDS)
            os.write(writer, _try(chat_webhooks.message(address, event, time.time())).encode("utf-8", "replace"))
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader, encoding="utf-8") as answer:
        problem = answer.read()
    _pid, status = os.waitpid(child, 0)
    return f"TimeoutError: no whole answer within {_SECONDS:g} s" if status else problem


def _try(message: chat_webhooks.Message) -> str:
    # Its scheme was checked at the submission.
    asked = request.Request(message.url, message.body, {"Content-Type": "application/json"})  # noqa: S310
    client.HTTPConnection.response_class = _Answer  # of this process, which does nothing else
    try:
        with request.build_opener(_NoRedirect).open(asked, timeout=_SECONDS) as answer:
            return chat_webhooks.refusal(message.service, answer.read(_MOST_OF_ANSWER)) if message.service else ""
    except Exception as error:  # noqa: BLE001 - whatever the address leads to is no failure of the job
        return f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]
