"""facts --compare: what has changed on hosts since a document of `facts --json`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from taco_launch.agent.store import untrusted
from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import render
from taco_launch.core.errors import DRIFT, OK, UsageError
from taco_launch.core.facts.reports.changes import changes, hosts_of
from taco_launch.core.facts.reports.document import document
from taco_launch.core.model import codec
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.hosts.inventory.ranges import fold

# How much of a value a line shows, and of how many items of a list; JSON has all of it.
_WIDTH, _MOST = 80, 8
# Of a document: one of ten thousand hosts has less.
_MOST_BYTES = 1 << 28


def show(
    settings: Settings,
    before: Mapping[str, Mapping[str, Any]],
    earlier: Path,
    found: Sequence[HostFacts],
    code: int,
) -> int:
    """Show the changes of the hosts that answered; give `code` where that is none of success, 3 where there are any.

    Raises:
        UsageError: nothing is known of any of the hosts from before.
    """
    if found and not set(before) & {facts.host for facts in found}:
        raise UsageError(f"{earlier} has no facts of these hosts, only of {fold(tuple(before))}")
    same: dict[tuple[str, str], list[str]] = {}
    rows: list[dict[str, Any]] = []
    new = [facts.host for facts in found if facts.host not in before]
    for facts in found:
        if facts.host in before:
            # as it is written and read again: lists are no tuples
            now = json.loads(json.dumps(document(facts)))
            for each in changes(before[facts.host], now):
                rows.append({"host": facts.host, "where": each.where, "before": each.before, "after": each.after})
                same.setdefault((each.where, _change_text(each.before, each.after)), []).append(facts.host)
    if settings.output in ("json", "yaml"):
        render.data({"changes": rows, "new": new}, settings.output)
    for (where, told), hosts in same.items() if settings.output not in ("json", "yaml") else ():
        click.echo(render.printable(f"{fold(hosts)}: {where}: {told}"))
    if new:
        render.warning(settings, f"{earlier} has no facts of {fold(new)}")
    if not rows and found:
        settings.talk(f"nothing has changed on {fold([facts.host for facts in found if facts.host in before])}")
    return code or (DRIFT if rows else OK)


def read(earlier: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the hosts of a document of `facts --json`, or of those in a folder, by name.

    Raises:
        UsageError: a file cannot be read, or is none.
    """
    files = sorted(earlier.glob("*.json")) if earlier.is_dir() else [earlier]
    if not files:
        raise UsageError(f"{earlier} holds no .json file")
    found: dict[str, Mapping[str, Any]] = {}
    file_of: dict[str, Path] = {}
    for file in files:
        try:
            told = hosts_of(codec.load(untrusted.read_named(file, _MOST_BYTES)))
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}") from error
        except ValueError as error:
            why = error if type(error) is ValueError else "is not valid JSON"
            raise UsageError(
                f"{file} {why}", hint="create it with: taco-launch -i FILE facts --json > facts.json"
            ) from error
        for name in sorted(set(told) & set(found)):
            raise UsageError(
                f"{earlier}: two files contain host {name}: {file_of[name].name} and {file.name}",
                hint="remove one of them, or compare with a single file",
            )
        found.update(told)
        file_of |= dict.fromkeys(told, file)
    return found


def _change_text(before: Any, after: Any) -> str:
    """Return what a value was and is; of a list, what is gone (`- nvidia_peermem`) and what came."""
    if isinstance(before, list) and isinstance(after, list):
        gone = [f"- {_cut(_text(item))}" for item in before if item not in after]
        new = [f"+ {_cut(_text(item))}" for item in after if item not in before]
        if gone or new:
            more = len(gone) + len(new) - _MOST
            return ", ".join([*gone, *new][:_MOST]) + (f", and {more} more" if more > 0 else "")
    old, now = _text(before), _text(after)
    start = next(
        (place for place, (one, other) in enumerate(zip(old, now, strict=False)) if one != other),
        min(len(old), len(now)),
    )
    return f"{_cut(old, start)} -> {_cut(now, start)}"


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value, ensure_ascii=False)


def _cut(text: str, start: int = 0) -> str:
    """Cut a text down to where it differs from another one, which is from `start` on."""
    if len(text) <= _WIDTH:
        return text
    if start > _WIDTH // 2:
        text = f"...{text[start - _WIDTH // 4 :]}"
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
