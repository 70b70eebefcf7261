"""The reference of tuning variables: the tables in taco_launch/core/launch/knobs."""

from __future__ import annotations

from itertools import groupby

from reference_pages.markdown import code, prose, table
from taco_launch.core.launch.knobs import TABLE, Knob
from taco_launch.core.launch.knobs.knob import LIBRARIES

_INTRODUCTION = """\
# Knobs: tuning variables

This page is generated from `taco_launch/core/launch/knobs` by `scripts/generate_docs.py`; `taco-launch knobs NAME` prints all that is
known of one. Set one with `--knob NAME=VALUE`, under `knobs:` in a job file, or as it is with `-x NAME=VALUE` (environment
variables) or `--mca NAME VALUE` (MCA parameters). taco-launch refuses a value that the library would silently misread.
"""
# How the purpose of a variable starts that no documentation of its library has: of a hundred, so without rows.
_INTERNAL = "Not documented"


def page() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    rows = sorted(TABLE, key=lambda knob: (list(LIBRARIES).index(knob.library), knob.name))
    for library, knobs in groupby(rows, key=lambda knob: knob.library):
        lines.append(f"## {LIBRARIES[library]}\n")
        known: list[Knob] = []
        internal: list[Knob] = []
        for knob in knobs:
            (internal if knob.why.startswith(_INTERNAL) else known).append(knob)
        lines += table(("Name", "Values", "Default, history", "Purpose", "Source"), map(_row, known))
        if internal:
            lines.append(
                f"{_INTERNAL}, for the library's own developers: {', '.join(code(knob.name) for knob in internal)}.\n"
            )
    return "\n".join(lines)


def _row(knob: Knob) -> tuple[str, str, str, str, str]:
    why = " ".join(filter(None, (knob.why, knob.instead and f"Use instead: {knob.instead}.")))
    default = "; ".join(filter(None, (code(knob.default), prose(knob.history))))
    return code(knob.name), prose(knob.allowed), default, prose(why), prose(knob.source)
