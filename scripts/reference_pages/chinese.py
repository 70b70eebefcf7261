"""The Chinese texts of generated pages, by the English text that the code has."""

from __future__ import annotations

from pathlib import Path

import yaml

TABLE = Path(__file__).with_name("chinese.yaml")
_TEXTS: dict[str, str] = yaml.safe_load(TABLE.read_text("utf-8"))


def say(text: str) -> str:
    """Return the Chinese of an English text; a single word without an entry, such as the value auto, stays as it is.

    Raises:
        SystemExit: A text of several words has no entry.
    """
    if text not in _TEXTS and " " in text:
        raise SystemExit(f"{TABLE} has no Chinese for this text: add a line for it, or correct the old one:\n{text}")
    return _TEXTS.get(text, text)
