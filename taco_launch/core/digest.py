"""Hashes for names and keys of our own, without hashlib: that loads OpenSSL, which takes as long as all that `run` does."""

from typing import Iterable

try:
    from _blake2 import blake2b  # CPython's own, and what hashlib.blake2b is
except ImportError:
    from hashlib import blake2b


def digest(parts: Iterable[bytes]) -> str:
    """Return the BLAKE2b hash of the parts, each behind its length, as 32 hexadecimal digits."""
    whole = blake2b(digest_size=16)
    for part in parts:
        whole.update(b"%d\0" % len(part))
        whole.update(part)
    return whole.hexdigest()
