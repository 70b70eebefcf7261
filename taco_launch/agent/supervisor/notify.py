"""`agent notify`: posts a job's end, hang or lost host to the URL of its --notify, beside what looks after the job."""

import json
from urllib import request

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import OK
from taco_launch.core.lifecycle import state

NOT_NOTIFIED = "not-notified"
_ATTEMPTS = 2
_SECONDS = 10.0


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
        problem = _post(url, json.dumps(body).encode())
        if not problem:
            return OK
    records.Events(folder).add(NOT_NOTIFIED, f"--notify: {events[place].kind}: not delivered: {problem}")
    return OK


def _post(url: str, body: bytes) -> str:
    """Return why a delivery failed, "" where it did not."""
    # Its scheme was checked at the submission.
    asked = request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with request.urlopen(asked, timeout=_SECONDS):  # noqa: S310
            return ""
    except Exception as error:  # noqa: BLE001 - whatever the address leads to is no failure of the job
        return f"{type(error).__name__}: {error}"
