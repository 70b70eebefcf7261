"""What every part of a file has in common: no unknown key, no value bent into another type."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class SchemaSection(BaseModel):
    """A part of the file: no unknown key, no value bent into another type."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data
