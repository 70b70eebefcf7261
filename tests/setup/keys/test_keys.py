"""The keys that set-up brings are those that Docker and NVIDIA sign with."""

import base64
import hashlib

import pytest

from taco_launch.setup import keys

HEAD, TAIL = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
_PRIMARY_KEY = 6


def primaries(packets: bytes) -> list[str]:
    """Return the fingerprints of the primary keys among packets of the older form: RFC 9580, 4.2.2 and 5.5.4.2."""
    found, at = [], 0
    while at < len(packets):
        head = packets[at]
        assert head & 0xC0 == 0x80, "not a packet of the older form"
        octets = 1 << (head & 3)
        size = int.from_bytes(packets[at + 1 : at + 1 + octets], "big")
        body = packets[at + 1 + octets : at + 1 + octets + size]
        if head >> 2 & 15 == _PRIMARY_KEY:
            found.append(hashlib.sha1(b"\x99" + size.to_bytes(2, "big") + body).hexdigest().upper())
        at += 1 + octets + size
    return found


# docs.docker.com/engine/install, "Verify the key's fingerprint"; `gpg --show-keys` of NVIDIA's gpgkey.
@pytest.mark.parametrize(
    ("name", "fingerprint"),
    [
        ("docker-deb", "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"),
        ("docker-rpm", "060A61C51B558A7F742B77AAC52FEB6B621E9F35"),
        ("nvidia", "C95B321B61E88C1809C4F759DDCAE044F796ECB0"),
    ],
)
def test_a_key_and_its_fingerprint(name: str, fingerprint: str) -> None:
    lines = keys.data(name).decode("ascii").split(HEAD)[1].split(TAIL)[0].partition("\n\n")[2].splitlines()
    assert primaries(base64.b64decode("".join(line for line in lines if not line.startswith("=")))) == [fingerprint]
