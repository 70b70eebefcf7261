"""What the last words of a log tell, pure."""

# What a rank says when it fails because another one has: Horovod 0.28 (horovod/common/operations.cc).
_CONSEQUENCES = ("Horovod has been shut down. This was caused by an exception on one of the ranks",)


def is_consequence(last_words: str) -> bool:
    """Say whether the end of a failed rank's log blames another rank."""
    return any(words in last_words for words in _CONSEQUENCES)
