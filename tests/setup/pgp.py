"""OpenPGP keys as files have them (RFC 9580), made of any bytes: nobody signs with them."""

import base64
import hashlib
from collections.abc import Sequence

HEAD, TAIL = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"


def primary(material: bytes, version: int = 4) -> bytes:
    """Return the body of a primary key's packet: version, time, algorithm (RSA), and its numbers."""
    return bytes([version, 0, 0, 0, 0, 1]) + material


def fingerprint(body: bytes) -> str:
    """Return the fingerprint of a key of version 4: 5.5.4.2."""
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()


def packet(tag: int, body: bytes, *, newer: bool = False, octets: int = 2) -> bytes:
    """Return a packet: in the older form with a length of 1, 2 or 4 octets, or in the newer one with as many as it takes."""
    size = len(body)
    if not newer:
        kind = {1: 0, 2: 1, 4: 2}[octets]
        return bytes([0x80 | tag << 2 | kind]) + size.to_bytes(octets, "big") + body
    if size < 192:
        length = bytes([size])
    elif size < 8384:
        length = bytes([192 + (size - 192 >> 8), size - 192 & 255])
    else:
        length = b"\xff" + size.to_bytes(4, "big")
    return bytes([0xC0 | tag]) + length + body


def armored(packets: bytes, *, headers: Sequence[str] = (), checksum: str = "=abcd") -> str:
    """Return a key block as text."""
    text = base64.b64encode(packets).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join((HEAD, *headers, "", *lines, *filter(None, [checksum]), TAIL)) + "\n"


# One for tests that are about something else.
BODY = primary(bytes(range(256)))
KEY = armored(packet(6, BODY) + packet(13, b"taco-launch test"))
FINGERPRINT = fingerprint(BODY)
