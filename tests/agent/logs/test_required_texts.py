"""Texts that a line must contain: never one that a matching line lacks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.logs.required_texts import required_texts


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("loss=nan|Error", [{b"loss=nan", b"Error"}]),
        ("^Epoch .* loss", [{b"Epoch "}, {b" loss"}]),
        ("(?:Traceback|Exception): .*", [{b"Traceback", b"Exception"}]),
        ("(foo)?bar{1,2}baz", [{b"baz"}]),
        ("(?i:abc)def", [{b"def"}]),
        ("foo.*|b", []),
        ("(?i)error", []),
        ("a+b", []),
        ("(?!abc)\\d", []),
    ],
)
def test_what_is_required(pattern: str, expected: list[set[bytes]]) -> None:
    assert [set(texts) for texts in required_texts(pattern)] == expected


_PARTS = st.sampled_from(
    ["abc", "abd", "b", "[ab]", "a?", "(abc)*", "(abc|bca)", "(?:abc)+", "^", "$", ".", "(?=abc)", "|", "é"]
)


@given(st.lists(_PARTS, max_size=5).map("".join), st.text("abcdé", max_size=12))
def test_a_line_that_matches_has_them(pattern: str, line: str) -> None:
    if re.search(pattern, line):
        assert all(any(text in line.encode() for text in texts) for texts in required_texts(pattern))
