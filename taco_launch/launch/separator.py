"""mpirun takes a lone `:` among its arguments as the start of a second program: how one gets through to the ranks."""


def escape(word: str) -> str:
    """Protect an argument of nothing but colons by one more."""
    return word + ":" if word and not word.strip(":") else word


def unescape(word: str) -> str:
    """Undo `escape`."""
    return word[:-1] if word and not word.strip(":") else word
