"""Compute `$((...))` of a shell where the script shows all of its numbers: pure."""

import operator
import re
from collections.abc import Mapping

from taco_launch.jobs.command_lines.shell_words import NAMED, QUOTED, SUM, UNKNOWN

_EXPRESSION = re.compile(rf"{SUM}\(\((?P<inside>(?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*)\)\)")
_NAME = re.compile(rf"[${QUOTED}]?(?:\{{({NAMED})\}}|({NAMED}))")
_PRODUCT = re.compile(r"(?<![\d*/%])(-?\d{1,9})\s*([*/%])\s*(-?\d{1,9})(?!\d)")
_SUM = re.compile(r"(?<![\d*/%+-])(-?\d{1,9})\s*([+-])\s*(\d{1,9})(?!\s*[\d*/%])")
_IN_PARENTHESES = re.compile(r"\(\s*(-?\d{1,9})\s*\)")
_OCTAL = re.compile(r"(?<![\d.])0\d")
_DOES = {"*": operator.mul, "/": operator.floordiv, "%": operator.mod, "+": operator.add, "-": operator.sub}
_MOST_STEPS = 40


def computed(word: str, variables: Mapping[str, str]) -> str:
    """Return a word with the value of each `$((...))` in it; a mark stands for one that is not known."""
    return _EXPRESSION.sub(lambda match: _value(match["inside"], variables), word) if SUM in word else word


def _value(expression: str, variables: Mapping[str, str]) -> str:
    def number(match: re.Match[str]) -> str:
        text = variables.get(match[1] or match[2], "")
        return text if text.isdecimal() else UNKNOWN

    text = _NAME.sub(number, expression).strip()
    if _OCTAL.search(text):
        return f"{UNKNOWN}(...)"
    for _step in range(_MOST_STEPS):
        simpler = text
        for pattern in (_IN_PARENTHESES, _PRODUCT, _SUM):
            simpler = pattern.sub(_step_of, text, count=1)
            if simpler != text:
                break
        if simpler == text:
            break
        text = simpler
    return text if re.fullmatch(r"\d{1,9}", text) else f"{UNKNOWN}(...)"


def _step_of(match: re.Match[str]) -> str:
    """Return the value of one operation; a mark where a shell refuses it, or rounds in another way than Python does."""
    if match.re is _IN_PARENTHESES:
        return match[1]
    left, right = int(match[1]), int(match[3])
    if match[2] in "/%" and (right <= 0 or left < 0):
        return UNKNOWN
    return str(_DOES[match[2]](left, right))
