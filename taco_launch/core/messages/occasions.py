"""When messages are sent: of jobs, by the events of their records, and of nightly runs, by how they ended."""

from typing import Mapping

OCCASIONS: Mapping[str, str] = {
    "job-end": "a job ends, however that is",
    "job-failure": "a job fails or is lost",
    "hang": "a running job hangs",
    "lost-host": "a running job loses a host",
    "not-as-planned": "a running job differs from its plan",
    "night": "a nightly run ends",
    "night-change": "a nightly run ends differently from the one before",
    "night-red": "a nightly run finds a regression, fails, or cannot measure",
}
# The kind of the event of a job that a message was not delivered.
NOT_NOTIFIED = "not-notified"
# What --notify sends.
OF_JOB = ("job-end", "hang", "lost-host")
