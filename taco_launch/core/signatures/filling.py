"""The values that a known text holds, put into the cause and the next step that the table has for it; pure."""

import re
from typing import Dict, Mapping

# Of a value no more characters are told.
MOST_SHOWN = 200
_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z])")
# A part of a text that is told only if a value is known: [[value?then]] or [[value?then||else]].
_PART = re.compile(r"\[\[(?P<name>\w+)\?(?P<then>.*?)(?:\|\|(?P<other>.*?))?\]\]")


class _Filling(Dict[str, str]):
    """The values of a text; what the log does not name is a question mark."""

    def __missing__(self, name: str) -> str:
        return "?"


def values_of(match: "re.Match[str]") -> Dict[str, str]:
    """Return the groups by name. One that ends in a digit is another place for the same value."""
    values: Dict[str, str] = {}
    for name, value in match.groupdict().items():
        if value:
            values.setdefault(name.rstrip("0123456789"), shortened(" ".join(value.split())))
    return values


def shortened(text: str) -> str:
    """Return the sentences of a text that are told, without the last period; of a long sentence the words that are."""
    if len(text) <= MOST_SHOWN:
        return text
    ends = [match.start() for match in _SENTENCE_END.finditer(text, 0, MOST_SHOWN + 2)]
    return text[: ends[-1]] if ends else f"{text[:MOST_SHOWN].rpartition(' ')[0] or text[:MOST_SHOWN]} [...]"


def filled(text: str, values: Mapping[str, str], no_host: str) -> str:
    """Put values into a text of the table, and leave out its parts that need one that is not known."""
    text = _PART.sub(lambda part: (part["then"] if part["name"] in values else part["other"]) or "", text)
    return text.format_map(_Filling({"host": no_host, **values}))
