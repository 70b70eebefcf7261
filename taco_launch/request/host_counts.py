"""MIN:MAX as users write it: a job takes as many hosts as are free when it starts, between these -> (MIN, MAX)."""

import re

PATTERN = "[0-9]{1,7}:[0-9]{1,7}"
MOST_HOSTS = 1_000_000


def parse_range(text: str) -> tuple[int, int]:
    """Return the least and the most hosts that a text stands for.

    Raises:
        ValueError: it stands for no such numbers; says what is allowed.
    """
    if not re.fullmatch(PATTERN, text):
        raise ValueError("must be a whole number, or a range MIN:MAX such as 2:4")
    least, most = map(int, text.split(":"))
    if not 1 <= least <= most <= MOST_HOSTS:
        raise ValueError(f"must be MIN:MAX with MIN at least 1, MAX at least MIN and at most {MOST_HOSTS}")
    return least, most
