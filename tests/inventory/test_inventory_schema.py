"""The JSON schema for editors: complete, described, and in step with what is really taken."""

from collections.abc import Iterator
from typing import Any

from taco_launch.inventory.schema.schema import json_schema

TOP = {
    "cluster",
    "head",
    "engine",
    "ssh",
    "network",
    "container",
    "docker",
    "mpirun",
    "profile",
    "versions",
    "defaults",
    "hosts",
}
TOP |= {"groups", "host_loss_timeout", "toolkit", "peermem", "data"}
VERSIONS = {"openmpi", "nccl", "horovod"}
SSH = {"user", "identity_file", "host_keys", "known_hosts", "connect_timeout"}
NETWORK = {"interface", "rdma", "gid_index", "gdr", "port_range", "firewall"}
CONTAINER = {
    "image",
    "ssh_port",
    "shm_size",
    "ulimits",
    "provides",
    "privileged",
    "sys_ptrace",
    "pid",
    "mounts",
    "env",
    "registry",
    "variant_ports",
}
DATA = {"path", "description", "mode", "owner"}
IMAGE = {"name", "from"}
REGISTRY = {"user", "password_file"}
DOCKER = {
    "source",
    "url",
    "key_fingerprint",
    "sha256",
    "packages",
    "proxy",
    "mirrors",
    "insecure_registries",
    "data_root",
    "settings",
}
TOOLKIT = {"source", "url", "key", "key_fingerprint", "packages", "cdi"}
PEERMEM = {"use", "package", "packages"}
PROXY = {"http", "https", "no_proxy"}
HOST = {"address", "port", "user", "identity_file", "slots", "max_slots", "gpus", "labels", "connection"}
HOST |= {"topology"}


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (schema, *schema["$defs"].values()):
        yield from part["properties"].items()


def test_every_key_is_described_and_nothing_else_is_taken() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    known = (
        TOP | SSH | NETWORK | CONTAINER | IMAGE | REGISTRY | DOCKER | TOOLKIT | PEERMEM | PROXY | VERSIONS | HOST | DATA
    )
    assert {name for name, _ in properties(schema)} == known
    assert [name for name, part in properties(schema) if not part.get("description")] == []
    assert all(part["additionalProperties"] is False for part in (schema, *schema["$defs"].values()))
    assert schema["required"] == ["cluster", "hosts"]


def test_the_forms_that_strings_and_numbers_share() -> None:
    schema = json_schema()
    slots = schema["$defs"]["HostEntry"]["properties"]["slots"]["anyOf"]
    assert slots == [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 4096}, {"type": "null"}]
    group = schema["properties"]["groups"]["additionalProperties"]["oneOf"]
    assert group == [{"type": "array", "items": {"type": "string"}}, {"$ref": "#/$defs/Group"}]
