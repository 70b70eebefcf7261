"""Whether one word is another with one slip of the finger in it."""

_LOOK_ALIKE = (frozenset("1il"), frozenset("0o"))


def edit_distance_one(one: str, other: str) -> bool:
    """Return whether two words differ by one letter too many, too few or wrong, two swapped, or upper for lower case.

    A digit is none: `..._v6` beside `..._v4` is another name, and so is `psm2` beside `psm`. Only where it looks like
    the letter that stands there (`obi` for `ob1`) it is one. Equal words differ by nothing, which counts as well.
    """
    if one.lower() == other.lower():
        return True
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    left, right = one[start:], other[start:]
    if len(one) == len(other):
        swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
        return swapped or (left[1:] == right[1:] and _for_another(left[0].lower(), right[0].lower()))
    longer, shorter = (left, right) if len(one) > len(other) else (right, left)
    return longer[1:] == shorter and not longer[0].isdigit()


def _for_another(one: str, other: str) -> bool:
    """Return whether a character may stand for another by mistake."""
    if one.isdigit() or other.isdigit():
        return any(one in alike and other in alike for alike in _LOOK_ALIKE)
    return True
