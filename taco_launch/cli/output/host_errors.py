"""What is wrong with hosts, in few words: errors that differ only in whose they are stand once."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import render
from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.hosts.fanout import Answer
from taco_launch.hosts.inventory.ranges import fold

_IPV4 = r"\d{1,3}(?:\.\d{1,3}){3}"
_IPV6 = r"[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*"
_PORT = r"(?<=-p )\d+"


def show(answers: Sequence[Answer[Any]], addresses: Mapping[str, str]) -> None:
    """Print on stderr which hosts failed: equal errors once, with all hosts they befell.

    `addresses` are the hosts' addresses by their names. Of what differs only in names, addresses and ports all are
    shown (`gpu[1-3]: no TCP connection to 10.0.0.[1-3]:22`), and of the hints, which are to be typed, the first; of
    their log files, FOLDER/HOST.log, the folder.
    """
    told: dict[tuple[tuple[str, ...], ...], list[tuple[str, tuple[str, ...], str | None]]] = {}
    for answer in answers:
        if answer.error is not None:
            whose = (answer.host, addresses.get(answer.host, answer.host))
            message, own = _parted(answer.error.message, whose)
            hint, _ = _parted(answer.error.hint or "", whose)
            told.setdefault((message, hint), []).append((answer.host, own, answer.error.hint))
    for (message, _), same in told.items():
        render.error(_joined(message, [own for _, own, _ in same]), _logs([host for host, _, _ in same], same[0][2]))


def _parted(text: str, whose: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what every host's text says, and what stands between these parts: one host's names, addresses, ports."""
    names = "|".join(re.escape(name) for name in sorted(whose, key=len, reverse=True))
    pieces = re.split(rf"(?<![\w.:-])((?:{names}|{_IPV4}|{_IPV6})(?::\d+)?|{_PORT})(?![\w-]|\.(?!log\b)\w)", text)
    return tuple(pieces[::2]), tuple(pieces[1::2])


def _logs(hosts: Sequence[str], hint: str | None) -> str | None:
    """Name the folder of all hosts' log files in the hint of the first one."""
    return hint if len(hosts) == 1 or not hint else hint.replace(f"/{hosts[0]}.log", "/, one file per host")


def _joined(parts: Sequence[str], own: Sequence[Sequence[str]]) -> str:
    """Put parts together with what hosts have between them."""
    between = [next(iter(set(values))) if len(set(values)) == 1 else fold(values) for values in zip(*own, strict=True)]
    return "".join(part for pair in zip(parts, [*between, ""], strict=True) for part in pair)


def failed_host(error: TacoLaunchError, settings: Settings) -> str | None:
    """Return the one host that failed, by its name in the inventory; None without one, or with several."""
    hosts = {host for host, _why in getattr(error, "reasons", ())}
    name, colon, _rest = error.message.partition(": ")
    if not hosts and colon and isinstance(error, HostError):
        try:
            hosts = {host.name for host in settings.load().hosts if host.name == name}
        except TacoLaunchError:  # what is wrong with the inventory may be this very error
            return None
    return hosts.pop() if len(hosts) == 1 else None


def error_data(error: TacoLaunchError, settings: Settings) -> None:
    """Print an error for programs: its kind, message, hint and host, and (host, reason) where hosts are its reason."""
    render.data({"error": {**of_error(error), "host": failed_host(error, settings)}}, settings.output)


def of_error(error: TacoLaunchError) -> dict[str, Any]:
    """Return an error as JSON values, without the host that failed."""
    reasons = [{"host": host, "reason": why} for host, why in getattr(error, "reasons", ())]
    about = {"kind": error.kind, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
    return {**about, "reasons": reasons}
