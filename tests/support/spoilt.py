"""Documents with some of their values replaced, for tests that nothing in a file is answered by a bug."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        7,
        0.5,
        "",
        "x",
        "a b",
        "None",
        "3%",
        "3h",
        "all",
        [],
        ["x"],
        [1, 1],
        {},
        {"x": 1},
        [{"name": "y"}],
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value within a JSON value."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from places(inner, (*path, step))


@st.composite
def spoilt(draw: st.DrawFn, document: Any) -> Any:
    """Replace some values of a document, or add keys to it."""
    changed = json.loads(json.dumps(document))
    for path in draw(st.lists(st.sampled_from(list(places(document))), min_size=1, max_size=3)):
        section = changed
        try:
            for step in path[:-1]:
                section = section[step]
            key = draw(st.sampled_from([path[-1], "x"])) if isinstance(section, dict) else path[-1]
            section[key] = draw(ODD)
        except (KeyError, IndexError, TypeError):
            continue  # gone by an earlier change
    return changed
