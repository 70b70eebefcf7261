"""What mpirun takes for its own among a program's arguments, and how such words get through to the ranks.

A lone `:` starts a second program. Open MPI 4.1 obeys `--mca NAME VALUE` wherever it stands; 5.0 also rewrites
`--bind-to`, `--map-by` and `--rank-by`, even behind `--` (tried with 4.1.4 and 5.0.11).
"""

from typing import Sequence, Tuple

_TAKEN = ("mca", "gmca", "tune", "bind-to", "map-by", "rank-by")


def escape(word: str) -> str:
    """Protect a word that mpirun might take for its own by a `:` before it: colons alone, and all long options."""
    return f":{word}" if word and _protected(word) else word


def unescape(word: str) -> str:
    """Undo `escape`."""
    return word[1:] if word.startswith(":") and _protected(word) else word


def words_mpirun_takes(command: Sequence[str]) -> Tuple[str, ...]:
    """Return the words of a command that mpirun is known to take for its own, where nothing protects them."""
    return tuple(word for word in command[1:] if word == ":" or (word.startswith("-") and word.lstrip("-") in _TAKEN))


def _protected(word: str) -> bool:
    rest = word.lstrip(":")
    return not rest or (rest.startswith("-") and len(rest) > 2)
