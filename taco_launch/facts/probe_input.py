"""What is fed to `/bin/sh -s -- NONCE SUBJECT...` on a host: the probe, and with it what it is to look for."""

import shlex
from typing import Optional


def feed(
    script: bytes, container: Optional[str] = None, cluster: Optional[str] = None, data_root: Optional[str] = None
) -> bytes:
    """Return the text of probe.sh as a host is to read it.

    With `container`, the probe's subject `image` looks into that container of the host's engine, by feeding the same
    text to a shell in there; so the text comes as a value. `cluster` is whose set-up the subject `made` looks for; `data_root` is
    where docker is to keep its images, whose disk the subject `system` looks at as well.
    """
    given = (("taco_launch_cluster", cluster), ("taco_launch_data_root", data_root))
    named = "".join(f"{name}={shlex.quote(value)}\n" for name, value in given if value is not None)
    if container is None:
        return named.encode() + script
    text = (
        f"{named}taco_launch_container={shlex.quote(container)}\n"
        f"taco_launch_probe={shlex.quote(script.decode())}\n"
        'eval "$taco_launch_probe"\n'
    )
    return text.encode()
