#!/usr/bin/env python3
"""Writes the pages of docs/reference and docs/zh and the schema of inventories that are made from the code; with --check it fails where one is out of date."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
for _folder in (_ROOT, _ROOT / "scripts"):  # a checkout that is not installed
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

from reference_pages import chinese, command_line, documents, knobs, messages, metrics, python_api, signatures  # noqa: E402

from taco_launch.bench.run import matrix_schema  # noqa: E402
from taco_launch.cli import help_topics  # noqa: E402
from taco_launch.hosts.inventory import to_document as inventory_schema  # noqa: E402
from taco_launch.jobs.documents import job_schema  # noqa: E402

_REFERENCE, _CHINESE = Path("docs", "reference"), Path("docs", "zh")
# Folders that have generated pages only.
_FOLDERS = ("cli", "failures")
_SCHEMA = Path("inventories", "inventory.schema.json")


def main(arguments: Sequence[str]) -> int:
    """Write the pages and remove those of before, or compare them; return 1 where one differs."""
    parser = argparse.ArgumentParser(description="Writes the reference pages that are made from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    check = parser.parse_args(arguments).check
    made = pages()
    stale: dict[Path, str | None] = {path: text for path, text in made.items() if not _is_current(path, text)}
    there = (path.relative_to(_ROOT) for name in _FOLDERS for path in (_ROOT / _REFERENCE / name).glob("*.md"))
    stale |= dict.fromkeys(path for path in there if path not in made)
    for path, text in stale.items():
        if check:
            print(f"{path} is out of date: run scripts/generate_docs.py", file=sys.stderr)
        elif text is None:
            (_ROOT / path).unlink()
            print(f"{path}: removed")
        else:
            (_ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (_ROOT / path).write_text(text, encoding="utf-8")
            print(f"{path}: written")
    return 1 if check and stale else 0


def pages() -> Mapping[Path, str]:
    """Return the text of each page by its path."""
    texts = {
        **{name: documents.page(*words) for name, words in _documents().items()},
        **{f"cli/{name}": text for name, text in command_line.pages().items()},
        "knobs": knobs.page(),
        "messages": messages.page(),
        "metrics": metrics.page(),
        "python": python_api.page(),
        **{f"failures/{name}": text for name, text in signatures.pages().items()},
    }
    for topic in ("environment", "exit-codes"):
        texts[topic] = help_topics.text_of(topic)
    in_chinese = {name: documents.page(*_documents()[name], chinese.say) for name in ("inventory", "job")}
    schema = json.dumps(inventory_schema.json_schema(), indent=2) + "\n"  # as `inventory --schema` prints it
    return {
        **{_REFERENCE / f"{name}.md": text for name, text in texts.items()},
        **{_CHINESE / f"{name}.md": text for name, text in in_chinese.items()},
        _SCHEMA: schema,
    }


def _documents() -> Mapping[str, tuple[str, Mapping[str, Any], str, str]]:
    """Return title, schema, command and use of each kind of document, by the name of its page."""
    return {
        "inventory": (
            *("Inventory", inventory_schema.json_schema()),
            *("inventory --schema", "An inventory is given by `-i`."),
        ),
        "job": (
            *("Job file", job_schema.json_schema()),
            *("submit --schema", "`run -f` and `submit -f` read a job file."),
        ),
        "matrix": (
            *("Benchmark matrix", matrix_schema.json_schema()),
            *("bench ladder --schema", "`bench ladder` and `nightly run` read a matrix."),
        ),
    }


def _is_current(path: Path, text: str) -> bool:
    return (_ROOT / path).is_file() and (_ROOT / path).read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
