"""Bytes of a user's file -> text, UTF-8 without control characters, or where it is not; and what kind of file it is."""

import codecs
import re

from taco_launch.hosts.inventory.schema.faults import Faults

_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # UTF-32's little-endian mark starts with UTF-16's
# All that YAML 1.2, section 5.1, does not allow; halves of characters are no UTF-8.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")

_YAML_NAMES = (".yaml", ".yml", ".json")
_YAML_START = re.compile(r"""["']?[\w.-]+["']?[ \t]*:(?:\s|$)|[{]|---|%YAML""")


def decode(data: bytes, faults: Faults) -> str:
    """Return the text of a file, which has to be UTF-8 (a byte order mark is dropped) and free of control characters.

    Raises:
        SpecError: it is not; says where.
    """
    if data.startswith(_WIDE):
        faults.add_at(1, 1, data[:2].decode("latin-1"), "the file is in UTF-16 or UTF-32; save it as UTF-8")
        raise faults.error()
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        problem = f"byte 0x{data[error.start]:02x} is no UTF-8; save the file as UTF-8"
        faults.add_at(*_position(before), line_of(data.decode("latin-1"), before.count("\n")), problem)
        raise faults.error() from None
    if found := _CONTROL.search(text):
        before = text[: found.start()]
        problem = f"holds the control character U+{ord(found[0]):04X}, which is not allowed"
        faults.add_at(*_position(before), line_of(text, before.count("\n")), problem)
        raise faults.error()
    return text


def is_hostfile(text: str, source: str) -> bool:
    """Return whether the text of the file `source` is to be read as a hostfile, else it is an inventory in YAML."""
    return not has_yaml_name(source) and not begins_as_yaml(text)


def has_yaml_name(source: str) -> bool:
    """Return whether the name of a file alone makes it YAML: it ends with .yaml, .yml or .json."""
    return source.lower().endswith(_YAML_NAMES)


def begins_as_yaml(text: str) -> bool:
    """Return whether the first line that is neither empty nor a comment starts with `key:`, `{`, `---` or `%YAML`."""
    lines = (line.strip() for line in text.split("\n"))
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return bool(_YAML_START.match(first))


def line_of(text: str, index: int) -> str:
    """Return a line of a text by its index from 0, without its end; nothing where there is none."""
    lines = text.split("\n", index + 1)
    return lines[index].strip("\r") if index < len(lines) else ""


def _position(before: str) -> tuple[int, int]:
    """Return line and column, from 1, of what follows `before`."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")
