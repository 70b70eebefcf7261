"""The JSON schema for editors: complete, described, and in step with what is really taken."""

from collections.abc import Iterator
from typing import Any

from taco_launch.hosts.inventory.to_document import json_schema


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (schema, *schema["$defs"].values()):
        yield from part["properties"].items()


def test_every_key_is_described_and_nothing_else_is_taken() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert [name for name, part in properties(schema) if not part.get("description")] == []
    assert all(part["additionalProperties"] is False for part in (schema, *schema["$defs"].values()))
    assert schema["required"] == ["cluster", "hosts"]


def test_the_forms_that_strings_and_numbers_share() -> None:
    schema = json_schema()
    slots = schema["$defs"]["HostEntry"]["properties"]["slots"]["anyOf"]
    assert slots == [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 4096}, {"type": "null"}]
    group = schema["properties"]["groups"]["additionalProperties"]["oneOf"]
    assert group == [{"type": "array", "items": {"type": "string"}}, {"$ref": "#/$defs/Group"}]
