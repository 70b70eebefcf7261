"""trust: what it says of the keys that hosts show."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from taco_launch.cli.main import cli
from taco_launch.hosts import trust
from taco_launch.hosts.trust import ShownKey, TrustReport


def test_hosts_with_the_same_key_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = tmp_path / "cluster.yaml"
    inventory.write_text("{cluster: c, hosts: {gpu1: {}, gpu3: {}, gpu6: {}}}")
    keys = {"gpu1": b"one", "gpu3": b"two", "gpu6": b"two"}
    shown = tuple(ShownKey(name, name, "ssh-ed25519", "SHA256:x", blob, trust.KNOWN) for name, blob in keys.items())
    monkeypatch.setattr(trust, "read_host_keys", lambda *_args: TrustReport(shown, (), "known_hosts"))
    done = CliRunner().invoke(cli, ("-i", str(inventory), "trust"), standalone_mode=False)
    assert "gpu[3,6] have the same host key" in done.stderr
    assert "gpu1" not in done.stderr


def test_a_host_that_shows_another_kind_of_key_than_its_copy_is_named() -> None:
    first = ShownKey("gpu1", "gpu1", "ecdsa", "SHA256:x", b"ecdsa", trust.KNOWN, others=(b"ecdsa", b"ed25519"))
    again = ShownKey("gpu4", "gpu4", "ssh-ed25519", "SHA256:y", b"ed25519", trust.NEW)
    other = ShownKey("gpu5", "gpu5", "ssh-ed25519", "SHA256:z", b"other", trust.KNOWN, others=(b"other", b"gone"))
    old = ShownKey("gpu6", "gpu6", "ssh-ed25519", "SHA256:w", b"mine", trust.KNOWN, others=(b"mine", b"gone"))
    groups = TrustReport((first, again, other, old), (), "known_hosts").alike
    assert [[key.host for key in group] for group in groups] == [["gpu1", "gpu4"]]
