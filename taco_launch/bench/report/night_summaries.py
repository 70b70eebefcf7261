"""The summaries of nightly runs as files: what their reports are made of."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The page that lists all nightly runs of a name, in the folder of their summaries.
INDEX = "index.html"


def summaries(folder: Path) -> Sequence[tuple[Path, Mapping[str, Any]]]:
    """Return the summaries of a folder as JSON with their paths, the newest first; older versions' without a headline are left out."""
    read = []
    for path in folder.glob("????-??-??-*.json"):
        try:
            night = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if "headline" in night:
            read.append((path, night))
    return sorted(read, key=lambda one: one[1]["started"], reverse=True)
