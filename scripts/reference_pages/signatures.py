"""The reference of failures: every text that `explain` knows, with its cause and what to do, by who prints it."""

from __future__ import annotations

import importlib
import pkgutil
import re

from reference_pages.markdown import code, prose, table
from taco_launch.signatures import texts
from taco_launch.signatures.entry import Signature

_INTRODUCTION = """\
# Known failures

This page is generated from `taco_launch/signatures/texts` by `scripts/generate_docs.py`. `taco-launch explain LOG` finds these texts
in a log and fills in hosts, ranks and numbers, which stand here in braces.
"""
_CHOICE = re.compile(r"\[\[\w+\?(.*?)(?:\|\|.*?)?\]\]")


def page() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    for found in sorted(pkgutil.iter_modules(texts.__path__), key=lambda module: module.name):
        module = importlib.import_module(f"{texts.__name__}.{found.name}")
        lines.append(f"## {found.name.replace('_', ' ')}\n")
        lines.append(f"{prose(module.__doc__ or '')}\n")
        tables = (value for value in vars(module).values() if isinstance(value, tuple))
        rows = [_row(one) for each in tables for one in each if isinstance(one, Signature)]
        lines += table(("Text in the log", "Cause", "What to do"), dict.fromkeys(rows))
    return "\n".join(lines)


def _row(signature: Signature) -> tuple[str, str, str]:
    keys = "<br>".join(map(code, signature.keys))
    return keys, prose(_CHOICE.sub(r"\1", signature.cause)), prose(_CHOICE.sub(r"\1", signature.next))
