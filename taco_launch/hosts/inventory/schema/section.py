"""What every part of a file has in common: no unknown key, no value bent into another type."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


class SchemaSection(BaseModel):
    """A part of the file: no unknown key, no value bent into another type."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


def section_in(annotation: Any) -> type[SchemaSection] | None:
    """Return the section that a key's type holds, alone, in a mapping or as one of several forms; None where it holds none."""
    if parts := get_args(annotation):
        return next(filter(None, map(section_in, parts)), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, SchemaSection) else None


def text_or_mapping(value: Any) -> str:
    """Return the tag of a value that is a text, or a section with further keys."""
    return "mapping" if isinstance(value, (dict, SchemaSection)) else "text"
