"""init: an inventory from names, and nothing overwritten; tests/lab/test_facts.py has it look at real hosts."""

from pathlib import Path

import pytest

from taco_launch.inventory.load import parse
from tests.cli.test_cli import call


def test_names_and_ranges_become_an_inventory(tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    result = call("init", "gpu[1-3]", "login1", "gpu2", "--no-facts", "--to", str(target), "--user", "ops")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{target}: cluster demo, hosts: 4\n"
    assert f"taco-launch -i {target} setup --dry-run" in result.stderr
    assert [host.name for host in parse(target.read_bytes(), "x").hosts] == ["gpu1", "gpu2", "gpu3", "login1"]


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    target.write_text("mine")
    result = call("init", "gpu1", "--no-facts", "--to", str(target))
    assert (result.exit_code, target.read_text()) == (2, "mine")
    assert f"{target} exists" in result.stderr


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    target.symlink_to(tmp_path / "elsewhere")
    assert call("init", "gpu1", "--no-facts", "--to", str(target)).exit_code != 0
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("words", [["gpu[1-"], ["a b"], ["gpu1", "--cluster", "a/b"]])
def test_wrong_names_are_refused(words: list[str], tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    result = call("init", *words, "--no-facts", "--to", str(target))
    assert result.exit_code == 2, result.stderr
    assert result.stderr.startswith("error: ")
    assert not target.exists()
