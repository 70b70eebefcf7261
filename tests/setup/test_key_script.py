"""key.sh: a key that is fetched is taken by its fingerprint alone, whatever else lies in the file."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.setup import pgp
from tests.setup.fakes import SHELLS, Fakes

OTHER = pgp.primary(b"another")
IDENTITY = pgp.packet(13, b"Ann <ann@example.org>")
PREAMBLE = 'work=$1 mirror=docker.url; fail() { echo "error: $*"; exit 1; }; fetch() { cp "$work/served" "$2"; }; '
SCRIPT = 'fetch_key https://m/gpg "$work/keys/ours.asc" "$2"'


@pytest.fixture(params=[(shell, awk) for shell in SHELLS for awk in ("awk", *filter(shutil.which, ["busybox"]))])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Fakes:
    """A host with one of the shells, and one of the awks."""
    shell, awk = request.param
    fakes = Fakes(tmp_path / "bin", shell)
    if awk == "busybox":
        fakes.make("awk", 'exec busybox awk "$@"')
    return fakes


def taken(host: Fakes, work: Path, served: str, expected: str) -> str:
    """Fetch a key; return what our file has, or the error."""
    from taco_launch.setup.scripts import text  # noqa: PLC0415 - beside what it is put together with

    (work / "served").write_text(served, encoding="latin-1")
    done = host.run_text(PREAMBLE + text("key.sh") + SCRIPT, str(work), expected)
    file = work / "keys/ours.asc"
    assert file.exists() == (done.returncode == 0), done.stdout + done.stderr
    return file.read_text() if file.exists() else done.stdout


def test_the_key_that_is_expected(host: Fakes, tmp_path: Path) -> None:
    more = pgp.packet(14, pgp.primary(b"a key below it")) + IDENTITY
    told = pgp.armored(pgp.packet(6, pgp.BODY) + more, headers=("Version: GnuPG v1", "Comment: none"))
    found = taken(host, tmp_path, "Some words\n" + told.replace("\n", "\r\n") + "\n", f"0000,{pgp.FINGERPRINT}")
    assert found == pgp.armored(pgp.packet(6, pgp.BODY) + more)


def test_another_key(host: Fakes, tmp_path: Path) -> None:
    said = taken(host, tmp_path, pgp.armored(pgp.packet(6, OTHER) + IDENTITY), pgp.FINGERPRINT)
    assert said == (
        f"error: https://m/gpg has the key {pgp.fingerprint(OTHER)}, and is expected to have {pgp.FINGERPRINT}: it was not "
        "taken\nhint: who may have changed it? if the mirror signs by a key of its own: docker.key_fingerprint in the "
        "inventory\n"
    )


def test_another_key_behind_the_right_one(host: Fakes, tmp_path: Path) -> None:
    """apt and rpm would trust both."""
    both = pgp.packet(6, pgp.BODY) + IDENTITY + pgp.packet(6, OTHER, newer=True)
    assert f"has the key {pgp.fingerprint(OTHER)}, and" in taken(host, tmp_path, pgp.armored(both), pgp.FINGERPRINT)
    blocks = pgp.KEY + pgp.armored(pgp.packet(6, OTHER))
    assert "is no PGP key in text form" in taken(host, tmp_path, blocks, pgp.FINGERPRINT)
    lines = pgp.KEY.replace(pgp.TAIL, "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n" + pgp.TAIL)
    assert "is no PGP key in text form" in taken(host, tmp_path, lines, pgp.FINGERPRINT)


@pytest.mark.parametrize(
    ("served", "why"),
    [
        ("", "in text form"),
        ("<html>Sign in to the hotel's network</html>\n", "in text form"),
        (pgp.KEY.replace(pgp.TAIL, ""), "in text form"),
        (pgp.KEY.replace("\n=abcd", "\n!=abcd"), "in text form"),
        (pgp.armored(pgp.packet(6, pgp.BODY)[:-1]), "that can be read"),
        (pgp.armored(b"\x01" + pgp.packet(6, pgp.BODY)), "that can be read"),
        (pgp.armored(pgp.packet(6, pgp.primary(b"", version=6))), "that can be read"),
        (pgp.armored(IDENTITY), "that can be read"),
        (pgp.armored(b"\xc6\xe1" + pgp.BODY), "that can be read"),
        (pgp.armored(b"\x9b" + pgp.BODY), "that can be read"),
    ],
    ids=["nothing", "page", "cut", "line", "cut-packet", "no-packet", "version", "no-key", "partial", "endless"],
)
def test_what_is_no_key(tmp_path: Path, served: str, why: str) -> None:
    assert (
        taken(Fakes(tmp_path / "bin"), tmp_path, served, pgp.FINGERPRINT)
        == f"error: https://m/gpg is no PGP key {why}\n"
    )


@given(st.binary(max_size=300), st.booleans(), st.sampled_from([2, 4]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_key_has_its_own_fingerprint(tmp_path: Path, material: bytes, newer: bool, octets: int) -> None:
    body = pgp.primary(material)
    served = pgp.armored(pgp.packet(6, body, newer=newer, octets=octets), checksum="")
    shutil.rmtree(tmp_path / "keys", ignore_errors=True)
    assert taken(Fakes(tmp_path / "bin"), tmp_path, served, pgp.fingerprint(body)) == served


@pytest.mark.parametrize("tag", [5, 7, 1, 60])
def test_a_key_hidden_in_another_packet_behind_the_right_one(host: Fakes, tmp_path: Path, tag: int) -> None:
    """Sequoia, by which apt verifies from Debian 13 on, reads a secret key (5) as a certificate."""
    hidden = pgp.packet(6, pgp.BODY) + IDENTITY + pgp.packet(tag, OTHER)
    assert taken(host, tmp_path, pgp.armored(hidden), pgp.FINGERPRINT).startswith("error: ")
