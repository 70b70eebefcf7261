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
            f"{error.message}\n  the key {locked[1]} has a passphrase, and a nightly run has no one to type it and no "
            "ssh-agent that holds the unlocked key",
            hint="create a key without a passphrase (ssh-keygen -t ed25519 -N '' -f ~/.ssh/taco-night), authorize it on the "
            'hosts for this machine only (authorized_keys: from="ADDRESS",restrict ssh-ed25519 ...), and set it as '
            "identity_file in the inventory",
        ) from None
    return backend.name
