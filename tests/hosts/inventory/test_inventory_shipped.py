"""What is shipped in inventories/: each one loads and says what its guide fixes; the example names every key."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from taco_launch.core.model.host.hosts import Container, Host, Inventory, Network
from taco_launch.hosts.inventory.load import load
from taco_launch.hosts.inventory.to_document import json_schema
from tests.conftest import Taco
from tests.support.paths import ROOT

FOLDER = ROOT / "inventories"
SCHEMA = FOLDER / "inventory.schema.json"


def shipped(name: str) -> Inventory:
    return load(str(FOLDER / f"{name}.yaml"), {})


def test_these_are_shipped() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == ["ack", "example", "local", "taco-bare-metal"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_first_line_lets_editors_use_the_schema(path: Path) -> None:
    first = path.read_text("utf-8").partition("\n")[0]
    assert first == f"# yaml-language-server: $schema=./{SCHEMA.name}"
    assert load(str(path), {}).cluster == path.stem


def test_the_schema_is_what_the_command_prints(taco: Taco) -> None:
    assert json.loads(SCHEMA.read_text("utf-8")) == json_schema(), "taco-launch inventory --schema > " + str(SCHEMA)
    assert SCHEMA.read_text("utf-8") == taco("inventory", "--schema").stdout


def test_taco_bare_metal() -> None:
    image = "ccr.ccs.tencentyun.com/qcloud/taco-train:torch111-cu113-bm-0.4.1"
    assert shipped("taco-bare-metal") == Inventory(
        cluster="taco-bare-metal",
        head="gpu1",
        hosts=(Host("gpu1", "10.0.0.1", slots=8), Host("gpu2", "10.0.0.2", slots=8)),
        container=Container(image, 12222, 32 << 30, (("memlock", -1), ("stack", 67108864)), ("lightcc",)),
        network=Network(interface="bond0", rdma="on", gid_index=3, gdr="auto"),
        mpirun="/usr/local/openmpi/bin/mpirun",
        profile="auto",
        versions=(("openmpi", "4.0"), ("nccl", "2.9.9")),
        source=str(FOLDER / "taco-bare-metal.yaml"),
    )


def test_ack() -> None:
    inventory = shipped("ack")
    assert inventory.hosts == tuple(Host(f"worker-{index}", f"worker-{index}", slots=1) for index in range(4))
    assert (inventory.head, inventory.mpirun, inventory.network.interface) == ("worker-0", "mpirun", "eth0")
    assert inventory.container is not None
    assert inventory.container.image.endswith("/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1")


def test_the_example_has_every_key_with_a_comment() -> None:
    written = yaml.safe_load((FOLDER / "example.yaml").read_bytes())
    schema = json_schema()
    assert set(written) == set(schema["properties"])
    for key in ("ssh", "network", "container", "versions", "defaults"):
        assert set(written[key]) == keys(schema, schema["properties"][key])
    # a source has keys of its own, and `packages` is another one
    assert set(written["docker"]) == keys(schema, schema["properties"]["docker"]) - {"packages", "key"}
    assert "\n  # key: " in (FOLDER / "example.yaml").read_text("utf-8")
    assert "\n  # packages: ~/" in (FOLDER / "example.yaml").read_text("utf-8")
    for section, key in (("Container", "registry"), ("Docker", "proxy")):
        part = schema["$defs"][section]["properties"][key]
        assert set(written[section.lower()][key]) == keys(schema, part)
    groups = written["groups"].values()
    assert {type(group) for group in groups} == {list, dict}
    for part, found in (
        ("HostEntry", written["hosts"].values()),
        ("Group", [g for g in groups if isinstance(g, dict)]),
    ):
        own = {key for entry in found for key in entry}
        assert set(schema["$defs"][part]["properties"]) - set(schema["$defs"]["HostDefaults"]["properties"]) <= own
    for line in (FOLDER / "example.yaml").read_text("utf-8").split("\n"):
        if ": " in line.partition("#")[0] and not line.startswith(("  gpu5", "  nightly", "    hosts", "    slots: 8")):
            assert "#" in line or line.strip() in ('nccl: "2.18.3"', 'horovod: "0.28.1"', "port: 2222"), line


def keys(schema: dict[str, Any], part: dict[str, Any]) -> set[str]:
    """Return the keys of the section that a top-level key's schema refers to, alone or beside null."""
    forms = part.get("anyOf", [part])
    (name,) = (form["$ref"].rpartition("/")[2] for form in forms if "$ref" in form)
    return set(schema["$defs"][name]["properties"])
