"""What is fed to `/bin/sh -s -- NONCE SUBJECT...` on a host: the probe, and with it the container to look into."""

import shlex
from typing import Optional


def feed(script: bytes, container: Optional[str] = None) -> bytes:
    """Give the text of probe.sh as a host is to read it.

    With `container`, the probe's subject `image` looks into that container of the host's engine, by feeding the same
    text to a shell in there; so the text comes as a value.
    """
    if container is None:
        return script
    text = (
        f"taco_launch_container={shlex.quote(container)}\n"
        f"taco_launch_probe={shlex.quote(script.decode())}\n"
        'eval "$taco_launch_probe"\n'
    )
    return text.encode()
