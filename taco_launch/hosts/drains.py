"""Drain hosts and open them to jobs again: a record that root of the host keeps, for all clusters and users.

The agents on the host read it before they give slots (agent/host/drain.py): running jobs continue, no new job gets the host.
"""

import json
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError, UsageError, last_line
from taco_launch.core.model import codec
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.host.paths import DRAIN, MOST_DRAIN_BYTES, MOST_OVERRIDE_BYTES, OVERRIDE
from taco_launch.core.model.slots import Drain, Override, read_drain
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.remote.transport import Transport

_MOST_REASON = 200
# $1 is the folder of the agent; py-spy is put there by what reads stacks.
_MAKE_ROOM = 'rm -f "$1"/py-spy-*'


def record(reason: str, by: str) -> Drain:
    """Return the record of a drain that begins now; `by` is a user.

    Raises:
        UsageError: the reason is empty, too long, or not one line of text.
    """
    text = reason.strip()
    if not text or not text.isprintable() or len(text) > _MOST_REASON:
        raise UsageError(
            f"--reason: must be one line of 1 to {_MOST_REASON} characters", hint="--reason 'NIC errors, ticket 1234'"
        )
    return Drain(f"{by}@{socket.gethostname()}", float(int(time.time())), text)


def check(inventory: Inventory) -> None:
    """Refuse hosts whose agents would not see a drain.

    Raises:
        UsageError: the inventory has no container: jobs run on its head alone, as the user who submits them.
    """
    if inventory.container is None:
        raise UsageError(
            "only hosts that `setup` has set up can be drained, and the inventory has no container",
            hint="name the inventory of hosts: taco-launch -i INVENTORY host --help",
        )


def drain(fanout: Fanout, new: Drain, report: Callable[[], None]) -> tuple[Answer[Drain | None], ...]:
    """Write the record on each host, and return the one that it replaces, None where the host was open to jobs."""

    def work(transport: Transport) -> Drain | None:
        old = _read(transport)
        _put(transport, DRAIN, new)
        return old

    return fanout.each(work, lambda _answer: report())


def write(fanout: Fanout, records: Mapping[str, Drain], report: Callable[[], None]) -> tuple[Answer[None], ...]:
    """Write on each host the record that is its own."""

    def work(transport: Transport) -> None:
        _put(transport, DRAIN, records[transport.name])

    return fanout.each(work, lambda _answer: report())


def read(fanout: Fanout) -> tuple[Answer[Drain | None], ...]:
    """Return the record of each host, None if it is open to jobs. A record that cannot be read counts as a drain, too."""
    return fanout.each(_read)


def overrides(fanout: Fanout) -> tuple[Answer[Override | None], ...]:
    """Return in spite of which faults a person opened each host, None where none did."""

    def work(transport: Transport) -> Override | None:
        data = _data(transport, OVERRIDE, MOST_OVERRIDE_BYTES)
        try:
            return codec.from_json(Override, codec.load(data)) if data else None
        except ValueError as error:
            hint = f"taco-launch host resume {transport.name} removes it"
            raise HostError(f"{transport.name}: {OVERRIDE} cannot be read ({error})", hint) from None

    return fanout.each(work)


def resume(
    fanout: Fanout, report: Callable[[], None], forced: Mapping[str, Override] | None = None
) -> tuple[Answer[None], ...]:
    """Remove the record on each host; `forced` are in spite of which faults a person opens hosts, None where none does."""

    def work(transport: Transport) -> None:
        if forced is not None:
            keep_override(transport, forced.get(transport.name))
        _remove(transport, DRAIN)

    return fanout.each(work, lambda _answer: report())


def keep_override(transport: Transport, override: Override | None) -> None:
    """Write a host's override, or remove it for None."""
    if override is None:
        _remove(transport, OVERRIDE)
    else:
        _put(transport, OVERRIDE, override)


def _put(transport: Transport, path: str, record: Drain | Override) -> None:
    """Write a record; a full disk is a reason to drain a host: what is copied there again when it is needed makes room."""
    data = json.dumps(codec.to_json(record)).encode()
    try:
        transport.put(data, path, 0o644, sudo=True)
    except HostError:
        transport.run(Command(("/bin/sh", "-c", _MAKE_ROOM, "room", str(Path(path).parent)), sudo=True))
        transport.put(data, path, 0o644, sudo=True)


def _read(transport: Transport) -> Drain | None:
    data = _data(transport, DRAIN, MOST_DRAIN_BYTES)
    return read_drain(data, DRAIN) if data else None


def _data(transport: Transport, path: str, most: int) -> bytes:
    """Return a file of a host, no more than `most` bytes, b"" where there is none.

    Raises:
        HostError: it was not read.
    """
    script = 'if [ -e "$1" ]; then head -c "$2" "$1"; fi'
    result = transport.run(Command(("/bin/sh", "-c", script, "read", path, str(most)), sudo=True))
    if result.exit_code:
        raise HostError(f"{transport.name}: {path} was not read: {last_line(result.stderr)}")
    return result.stdout


def _remove(transport: Transport, path: str) -> None:
    result = transport.run(Command(("rm", "-f", path), sudo=True))
    if result.exit_code:
        raise HostError(f"{transport.name}: {path} was not removed: {last_line(result.stderr)}")
