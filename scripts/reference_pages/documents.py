"""The references of what users write as YAML: inventories, job files and matrices, from their JSON Schemas, in English or Chinese."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reference_pages.markdown import code, prose, table

_INTRODUCTION = """\
# {title}

This page is generated from the JSON Schema by `scripts/generate_docs.py`. `taco-launch {schema}` prints the schema for your
editor. {about} A key that is not listed here is an error, with the nearest key that exists.
"""


# Gives an English text in the language of the page; `str` for English.
_Say = Callable[[str], str]


def page(title: str, schema: Mapping[str, Any], command: str, about: str, say: _Say = str) -> str:
    """Return the reference of a kind of document.

    Args:
        title: The page's heading.
        schema: The JSON Schema of the kind.
        command: How taco-launch prints it.
        about: Where such a document is used, in a sentence.
        say: Gives an English text in the language of the page.
    """
    lines = [say(_INTRODUCTION).format(title=say(title), schema=command, about=say(about))]
    lines += [f"## {say('Top level')}\n", *_keys(schema, say)]
    for name, part in sorted(schema.get("$defs", {}).items()):
        lines += [f"## {name}\n", f"{prose(say(part.get('description', '')))}\n", *_keys(part, say)]
    return "\n".join(lines)


def _keys(schema: Mapping[str, Any], say: _Say) -> Iterator[str]:
    needed = schema.get("required", ())
    rows = []
    for key, value in schema.get("properties", {}).items():
        text, default = _without_default(value, say)
        rows.append((code(key), _type(value, say), say("required") if key in needed else default, prose(say(text))))
    yield from table([say(title) for title in ("Key", "Value", "Default", "Meaning")], rows)


def _without_default(schema: Mapping[str, Any], say: _Say) -> tuple[str, str]:
    """Return the description of a key, and its default, which may be the description's last sentence."""
    text, _, last = str(schema.get("description", "")).partition(" Default: ")
    default = schema.get("default")
    return text, prose(say(last.removesuffix("."))) if default in (None, {}, []) else code(json.dumps(default))


def _type(schema: Mapping[str, Any], say: _Say) -> str:
    """Return what a value may be, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            kinds = (_type(one, say) for one in schema[several] if one.get("type") != "null")
            return say(" or ").join(dict.fromkeys(kinds))
    if "const" in schema:
        return code(str(schema["const"]))
    if "enum" in schema:
        return say(", ").join(code(str(value)) for value in schema["enum"])
    return _plain_type(schema, say)


def _plain_type(schema: Mapping[str, Any], say: _Say) -> str:
    kind = schema.get("type", "any value")
    if kind == "array":
        return say("list of {}").format(_type(schema["items"], say)) if "items" in schema else say("list")
    if kind == "object":
        values = schema.get("additionalProperties")
        return say("map of {}").format(_type(values, say)) if isinstance(values, dict) else say("map")
    if not isinstance(kind, str):
        return say(" or ").join(map(say, kind))
    bounds = [str(schema[bound]) for bound in ("minimum", "maximum") if bound in schema]
    if len(bounds) == 2:
        return say("{}, {} to {}").format(say(kind), *bounds)
    return say("{}, matching {}").format(say(kind), code(schema["pattern"])) if "pattern" in schema else say(kind)
