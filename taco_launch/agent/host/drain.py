"""Read whether this host is drained: it takes no new jobs then."""

import os
from pathlib import Path
from typing import Optional

from taco_launch.agent.store import untrusted
from taco_launch.core.model import codec
from taco_launch.core.model.host.paths import DRAIN, MOST_DRAIN_BYTES
from taco_launch.core.model.slots import Drain


def read() -> Optional[Drain]:
    """Return the drain of this host, None where it is open to jobs. A record that cannot be read drains it all the same."""
    try:
        file = untrusted.open_regular(Path(DRAIN))
    except FileNotFoundError:
        return None
    except PermissionError:  # of a user whom set-up gave no container: jobs of theirs run on their own machine
        return None
    except OSError as error:
        return _unreadable(error.strerror or str(error), 0.0)
    with open(file, "rb") as opened:
        since = os.fstat(file).st_mtime
        try:
            return codec.from_json(Drain, codec.load(opened.read(MOST_DRAIN_BYTES)))
        except (OSError, ValueError) as error:
            return _unreadable(str(error), since)


def _unreadable(why: str, since: float) -> Drain:
    return Drain("an unknown user", since, f"{DRAIN} cannot be read ({why})")
