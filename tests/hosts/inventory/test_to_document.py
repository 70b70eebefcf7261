"""What `inventory -o yaml` prints is an inventory, and the same one."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.inventory.load import parse
from taco_launch.hosts.inventory.to_document import document
from tests.support.command_line import call
from tests.support.paths import ROOT

HERE = Path(__file__).parent
SHIPPED = ROOT / "inventories"
FILES = sorted((*HERE.glob("cases/good_*.yaml"), *HERE.glob("hostfiles/good_*.hosts"), *SHIPPED.glob("*.yaml")))


def again(found: Inventory) -> Inventory:
    text = yaml.safe_dump(document(found), sort_keys=False)
    return replace(parse(text.encode(), "again.yaml"), source=found.source)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_what_is_written_is_read_as_the_same(file: Path) -> None:
    found = parse(file.read_bytes(), str(file))
    assert again(found) == found


def test_what_all_hosts_share_is_written_once() -> None:
    text = "cluster: c\nhosts: {'n[1-2]': {slots: 8, user: u}, n3: {slots: 8, labels: {leaf: a}, address: 10.0.0.3}}\n"
    assert document(parse(text.encode(), "c.yaml")) == {
        "cluster": "c",
        "head": "n1",
        "defaults": {"slots": 8},
        "hosts": {"n1": {"user": "u"}, "n2": {"user": "u"}, "n3": {"address": "10.0.0.3", "labels": {"leaf": "a"}}},
    }


def test_the_command_line(tmp_path: Path) -> None:
    hostfile, file = tmp_path / "hostfile", tmp_path / "again.yaml"
    hostfile.write_text("gpu1 slots=8\ngpu2 slots=4 max-slots=8\n")
    file.write_text(call("-i", str(hostfile), "inventory", "-o", "yaml").stdout)
    one, two = (call("-i", str(path), "inventory").stdout.replace(str(path), "") for path in (hostfile, file))
    assert one == two
    assert "gpu2" in two
