"""The references of what users write as YAML: inventories, job files and matrices, from their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from reference_pages.markdown import code, prose, table

_INTRODUCTION = """\
# {title}

This page is generated from the JSON Schema by `scripts/generate_docs.py`. `taco-launch {schema}` prints the schema for your
editor. {about} A key that is not listed here is an error, with the nearest key that exists.
"""


def page(title: str, schema: Mapping[str, Any], command: str, about: str) -> str:
    """Return the reference of a kind of document.

    Args:
        title: The page's heading.
        schema: The JSON Schema of the kind.
        command: How taco-launch prints it.
        about: Where such a document is used, in a sentence.
    """
    lines = [_INTRODUCTION.format(title=title, schema=command, about=about)]
    lines += ["## Top level\n", *_keys(schema)]
    for name, part in sorted(schema.get("$defs", {}).items()):
        lines += [f"## {name}\n", f"{prose(part.get('description', ''))}\n", *_keys(part)]
    return "\n".join(lines)


def _keys(schema: Mapping[str, Any]) -> Iterator[str]:
    needed = schema.get("required", ())
    rows = []
    for key, value in schema.get("properties", {}).items():
        text, default = _without_default(value)
        rows.append((code(key), _type(value), "required" if key in needed else default, prose(text)))
    yield from table(("Key", "Value", "Default", "Meaning"), rows)


def _without_default(schema: Mapping[str, Any]) -> tuple[str, str]:
    """Return the description of a key, and its default, which may be the description's last sentence."""
    text, _, last = str(schema.get("description", "")).partition(" Default: ")
    default = schema.get("default")
    return text, prose(last.removesuffix(".")) if default in (None, {}, []) else code(json.dumps(default))


def _type(schema: Mapping[str, Any]) -> str:
    """Return what a value may be, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[several] if one.get("type") != "null"))
    if "const" in schema:
        return code(str(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"])
    return _plain_type(schema)


def _plain_type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "list"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"map of {_type(values)}" if isinstance(values, dict) else "map"
    if not isinstance(kind, str):
        return " or ".join(kind)
    bounds = [str(schema[bound]) for bound in ("minimum", "maximum") if bound in schema]
    if len(bounds) == 2:
        return f"{kind}, {bounds[0]} to {bounds[1]}"
    return f"{kind}, matching {code(schema['pattern'])}" if "pattern" in schema else kind
