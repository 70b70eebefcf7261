"""Placeholders that a user has to replace (`<path/to/program>`), and broken options in the place of a program: pure."""

import re
from collections.abc import Container, Sequence

WRITE = "is a placeholder: write the value"
# <YOUR_NAME>; <path/to/program> and <input file> look like it, too, but not `<in>out`, of which a shell makes files: a word
# behind it would be a file, unless it is an option or the placeholder is an option's value.
PLACEHOLDER = re.compile(r"<(?:[A-Z][A-Z0-9_-]*|(?:your|path|my|insert|enter)[A-Za-z0-9_-]*)>")
LIKE_PLACEHOLDER = re.compile(
    rf"{PLACEHOLDER.pattern}"
    r"|<[A-Za-z][\w./-]*(?:(?: [A-Za-z0-9][\w./-]*)+>(?![\w./])|>(?=[,:]|[ \t]*(?:[-<>|;&#\n\\]|$)))"
)
_OF_AN_OPTION = re.compile(r"<[A-Za-z][\w-]*>(?![\w./])")
# REPLACE_WITH_PATH, YOUR_DATA_DIR, PATH_TO_MODEL.
_IN_CAPITALS = re.compile(
    r"(?<![A-Za-z0-9_$])(?:REPLACE|INSERT|CHANGE|FILL|PATH_TO|YOUR)_[A-Z][A-Z0-9_]*(?![A-Za-z0-9_])"
)
_OTHER_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"  # of word processors


def placeholder(text: str, at: int, before: str) -> re.Match[str] | None:
    """Return what stands at a place of a script for a value that people are to write; `before` is what comes before it."""
    patterns = (LIKE_PLACEHOLDER, _OF_AN_OPTION) if before.startswith(("-", "<")) else (LIKE_PLACEHOLDER,)
    return next((match for each in patterns if (match := each.match(text, at))), None)


def within(word: str) -> list[str]:
    """Return the placeholders in an argument of a program."""
    parts = [*PLACEHOLDER.findall(word), *_IN_CAPITALS.findall(word)]
    return parts or ([word] if LIKE_PLACEHOLDER.fullmatch(word) else [])


def no_program(words: Sequence[str], at: int, options: Container[str]) -> tuple[str, str] | None:
    """Return why the word at a place is no program, and what to do; None where it may be one.

    `options` are those of the launcher whose line it is.
    """
    word, following = (*words[at:], "")[:2]
    if LIKE_PLACEHOLDER.fullmatch(word) or _IN_CAPITALS.fullmatch(word):
        named = ", ".join(each for part in words for each in within(part))
        return "is a placeholder, and no program", f"replace what is to be filled in: {named}"
    if word == "-" or (words[at - 1] == "--" and len(word) > 1 and word in options):
        option = f"-{following}" if word == "-" else f"--{word}"
        return f"is no program: a blank divides the option {option}", f"write {option} as one word"
    if word[:1] and word[0] in _OTHER_DASHES:
        problem = "starts with a character that looks like a dash, and is no option to a launcher"
        return problem, f"write -{word[1:]}"
    return None
