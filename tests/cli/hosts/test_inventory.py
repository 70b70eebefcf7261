"""inventory: what it warns of."""

from pathlib import Path

from click.testing import CliRunner

from taco_launch.cli.main import cli


def test_a_key_that_does_not_exist_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("{cluster: c, ssh: {identity_file: /no/key}, hosts: {gpu1: {}}}")
    done = CliRunner().invoke(cli, ("-i", str(file), "inventory"))
    assert (done.exit_code, done.stderr) == (0, "warning: gpu1: identity_file /no/key does not exist on this machine\n")
