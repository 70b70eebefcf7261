"""What a nightly run needs before it can begin, looked at without a person: its history, and the way to the head."""

import re
from pathlib import Path

from taco_launch.backend import Backend
from taco_launch.bench.history.history import open_history
from taco_launch.errors import HostError

# As remote/ssh/keys.py says it.
_LOCKED = re.compile(r"not offered: (.+?) is encrypted")


def open_once(history: Path) -> None:
    """Open a history, which makes it where there is none.

    Raises:
        TacoLaunchError: it cannot be opened.
    """
    with open_history(history):
        pass


def reach(backend: Backend) -> str:
    """Ask the head for its jobs, and give its name.

    Raises:
        TacoLaunchError: it does not answer; of a key with a passphrase it says what to do.
    """
    try:
        backend.list()
    except HostError as error:
        locked = _LOCKED.search(error.message)
        if locked is None:
            raise
        raise HostError(
            f"{error.message}\n  the key {locked[1]} has a passphrase, and at night no one can type it, and no "
            "agent that has it open",
            hint="make a key without one for the nightly runs (ssh-keygen -t ed25519 -N '' -f ~/.ssh/taco-night), let it in on the "
            'hosts from this machine only (authorized_keys: from="ADDRESS",restrict ssh-ed25519 ...), and name it: '
            "identity_file in the inventory",
        ) from None
    return backend.name
