"""What hosts are made from: this machine's apt sources, of its own release or of another one, and what an archive lacks."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.lab import up
from taco_launch.lab.docker.reporter import Reporter
from taco_launch.lab.images import root

RING = "/usr/share/keyrings/debian-archive-keyring.gpg"
ONE_LINE = f"""# a comment
deb http://archive.test/debian bookworm main contrib # the rest
deb [arch=amd64 signed-by={RING}] http://archive.test/debian bookworm-updates main
deb-src http://archive.test/debian bookworm main
deb http://archive.test/debian bookworm-backports main
deb [signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.test/apt bookworm main
deb https://vendor.test/other ./
"""
DEB822 = f"""Types: deb deb-src
# commented
URIs: http://archive.test/debian http://mirror.test/debian
Suites: bookworm
 bookworm-updates
Components: main
Signed-By: {RING}

Types: deb
URIs: http://archive.test/security
Suites: bookworm-security
Components: main
Enabled: no

Types: deb
URIs: http://key.test/debian
Suites: stable
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
"""


def test_one_line_sources() -> None:
    found = root.distributions_own([("sources.list", ONE_LINE)], "bookworm")
    assert [source.line for source in found] == [
        "deb http://archive.test/debian bookworm main contrib",
        f"deb [signed-by={RING}] http://archive.test/debian bookworm-updates main",
    ]


def test_deb822_sources() -> None:
    found = root.distributions_own([("debian.sources", DEB822)], "bookworm")
    assert [source.line for source in found] == [
        *(
            f"deb [signed-by={RING}] http://{host}.test/debian {suite} main"
            for host in ("archive", "mirror")
            for suite in ("bookworm", "bookworm-updates")
        ),
        "deb http://key.test/debian stable main",
    ]


def test_another_release_of_the_same_archives() -> None:
    found = root.distributions_own([("debian.sources", DEB822)], "bookworm")
    lines = [source.of("trixie").line for source in found]
    assert lines[:2] == [
        f"deb [signed-by={RING}] http://archive.test/debian trixie main",
        f"deb [signed-by={RING}] http://archive.test/debian trixie-updates main",
    ]
    assert lines[-1] == "deb http://key.test/debian trixie main"  # instead of stable


@given(st.sampled_from(["a.list", "a.sources"]), st.text())
def test_any_text_is_read(name: str, text: str) -> None:
    assert isinstance(root.distributions_own([(name, text)], "bookworm"), tuple)


def test_a_release_is_a_code_name() -> None:
    """It becomes part of a line of apt's sources."""
    up.check(up.LabRequest(release="trixie"))
    for name in ("", "13", "trixie main", "trixie\ndeb http://elsewhere/", "../x"):
        with pytest.raises(UsageError, match="small letters only"):
            up.check(up.LabRequest(release=name))


# As apt 2.6 says it, by way of mmdebstrap.
NO_SUITE = """\
E: The repository 'http://archive.test/debian nosuch Release' does not have a Release file.
E: apt-get update --error-on=any -oAPT::Status-Fd=<$fd> -oDpkg::Use-Pty=false failed
E: mmdebstrap failed to run
"""
NO_KEY = """\
W: GPG error: http://archive.test/debian trixie InRelease: The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 6ED0E7B82643E131
E: The repository 'http://archive.test/debian trixie InRelease' is not signed.
E: mmdebstrap failed to run
"""
OTHER = "E: Unable to locate package nosuch\nE: mmdebstrap failed to run\n"


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (NO_SUITE, "http://archive.test/debian has no suite nosuch", "http://archive.test/debian/dists/"),
        (
            NO_KEY,
            "cannot verify the archive http://archive.test/debian trixie: this machine does not have the key that signed it",
            "archive-keyring",
        ),
        (OTHER, "mmdebstrap: E: Unable to locate package nosuch\nE: mmdebstrap failed to run", "apt-get update"),
    ],
)
def test_what_an_archive_lacks_is_told(
    said: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mmdebstrap"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\ncat >&2 <<'END'\n{said}END\nexit 25\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    here = root.AptSources((root.Source("http://archive.test/debian", "trixie", ("main",)),), "")
    with pytest.raises(TacoLaunchError) as caught:
        root.make("none:none", "host", ("apt",), (), here, Reporter(say=print, show=print))
    assert caught.value.message.endswith(message)
    assert hint in (caught.value.hint or "")
