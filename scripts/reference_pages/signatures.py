"""The reference of failures: every text that `explain` knows, with its cause and what to do, by who prints it."""

from __future__ import annotations

import importlib
import pkgutil
import re

from reference_pages.markdown import code, prose, table
from taco_launch.core.signatures import known
from taco_launch.core.signatures.known import Signature

_INTRODUCTION = """\
# Known failures

This page is generated from `taco_launch/core/signatures` by `scripts/generate_docs.py`. `taco-launch explain LOG` finds these texts
in a log and fills in hosts, ranks and numbers (here in braces). Where a slash has a space on both sides, the log decides which of the two texts is shown.
"""
# What is told only with a value, and what else.
_CHOICE = re.compile(r"\[\[\w+\?(.*?)(?:\|\|(.*?))?\]\]")


def page() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    found = [f"{known.__name__}.{module.name}" for module in pkgutil.iter_modules(known.__path__)]
    for name in sorted(found, key=_title):
        module = importlib.import_module(name)
        lines.append(f"## {_title(name)}\n")
        lines.append(f"{prose(module.__doc__ or '')}\n")
        tables = (value for value in vars(module).values() if isinstance(value, tuple))
        rows = [_row(one) for each in tables for one in each if isinstance(one, Signature)]
        lines += table(("Text in the log", "Cause", "What to do"), dict.fromkeys(rows))
    return "\n".join(lines)


def _title(module: str) -> str:
    return module.rpartition(".")[2].replace("_", " ")


def _row(signature: Signature) -> tuple[str, str, str]:
    keys = "<br>".join(map(code, signature.keys))
    return keys, prose(_CHOICE.sub(_either, signature.cause)), prose(_CHOICE.sub(_either, signature.next))


def _either(match: re.Match[str]) -> str:
    return f"{match[1]} / {match[2]}" if match[2] else match[1]
