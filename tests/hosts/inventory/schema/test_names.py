"""The words users write: what is taken, what is refused and how, and that nothing shown can do harm."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from taco_launch.core.errors import SpecError
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.to_document import json_schema

UGLY = [
    "",
    " ",
    "a b",
    "a\n",
    "-a",
    "-oProxyCommand=x",
    "a;b",
    "$(id)",
    "`id`",
    "a/b",
    "a\0",
    "\x1b[31m",
    "é",
    "a|b",
    "*",
]


@pytest.mark.parametrize("text", ["a", "gpu1", "gpu-1.rack_2.example.com", "_x", "1a", "a.b", "A" * 63, "10.0.0.1x"])
def test_host_names(text: str) -> None:
    assert names.host_name(text) == text


@pytest.mark.parametrize(
    "text", [*UGLY, "a-", "a..b", ".a", "a.", "A" * 64, ".".join(["a" * 63] * 4) + "a", "10.0.0.1", "12", "::1", "a:1"]
)
def test_no_host_names(text: str) -> None:
    with pytest.raises(SpecError, match="is not a host name") as caught:
        names.host_name(text, "hosts.x", "file")
    [fault] = caught.value.faults
    assert (caught.value.source, fault.path, fault.value) == ("file", "hosts.x", names.shown(text))


@pytest.mark.parametrize("text", ["gpu1", "10.0.0.1", "::1", "fe80::1%eth0", "2001:db8::10.0.0.1"])
def test_addresses(text: str) -> None:
    assert names.address(text) == text


@pytest.mark.parametrize(
    "text", [*UGLY, "10.0.0.256", "10.0.0", "010.0.0.1", "10.0.0.1%eth0", "[::1]", "fe80::1%$(id)", "fe80::1%", ":::1"]
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(SpecError, match="neither a host name"):
        names.address(text)


@pytest.mark.parametrize("text", ["a", "1", "Train_2.b-c", "x" * 63])
def test_job_names(text: str) -> None:
    assert names.job_name(text) == text


@pytest.mark.parametrize("text", [*UGLY, ".a", "..", "_a", "x" * 64, "a:b"])
def test_no_job_names(text: str) -> None:
    with pytest.raises(SpecError, match="is not a job name") as caught:
        names.job_name(text, "--name")
    assert caught.value.faults[0].path == "--name"


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("PATH", ("PATH", None)),
        ("A=", ("A", "")),
        ("_a1=b=c", ("_a1", "b=c")),
        ("A=$(id) 'x'\n\x1b[31m", ("A", "$(id) 'x'\n\x1b[31m")),
        ("A=\udcff", ("A", "\udcff")),
        pytest.param(
            "A=" + "x" * (names.MAX_STRING_BYTES - 3), ("A", "x" * (names.MAX_STRING_BYTES - 3)), id="the longest"
        ),
    ],
)
def test_environment(text: str, pair: tuple[str, str | None]) -> None:
    names.env(*pair)
    assert "=".join(part for part in pair if part is not None) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not the name"),
        ("=x", "is not the name"),
        ("1A=x", "is not the name"),
        ("A B=x", "is not the name"),
        ("-x=y", "is not the name"),
        ("A\n=x", "is not the name"),
        ("É=x", "is not the name"),
        ("A=s3cret\0", "NUL byte"),
        ("A=s3cret\ud800", "its value contains an invalid character"),
        pytest.param("A=s3cret" + "x" * names.MAX_STRING_BYTES, "131081 bytes; Linux allows 131072", id="too long"),
        pytest.param("A=" + "x" * (names.MAX_STRING_BYTES - 2), "131073 bytes", id="one too long"),
    ],
)
def test_bad_environment_and_no_value_is_shown(text: str, problem: str) -> None:
    name, equals, value = text.partition("=")
    with pytest.raises(SpecError, match=problem) as caught:
        names.env(name, value if equals else None)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("gpu1", "'gpu1'"),
        ("", "''"),
        ("it's", '"it\'s"'),
        ("\x1b[31m\n\t\0", r"'\x1b[31m\n\t\x00'"),
        ("a\u202eb\u200b\x9b", r"'a\u202eb\u200b\x9b'"),
        ("\udcff", r"'\udcff'"),
        ("héllo", "'héllo'"),
        ("x" * 61, f"'{'x' * 60}'... (61 characters)"),
        ("\0" * 1000, "'" + r"\x00" * 19 + "'... (1000 characters)"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (-5, "-5"),
        (10**30, "<int>"),
        ({"a": 1}, "{...}"),
        ([1], "[...]"),
        ((), "[...]"),
        (1.5, "<float>"),
    ],
)
def test_shown(value: object, expected: str) -> None:
    assert names.shown(value) == expected


def test_did_you_mean() -> None:
    assert names.did_you_mean("slot", ["port", "slots"]) == "did you mean 'slots'?"
    assert names.did_you_mean("xyz", ["port", "slots"]) == ""
    assert names.did_you_mean("shm", ["port", "shm_size"]) == "did you mean 'shm_size'?"
    assert names.did_you_mean("shm", ["shm_mounts_of_hosts", "shm_size_of_hosts"]) == ""
    assert names.did_you_mean("SLOT", ["port", "Slots"]) == "did you mean 'Slots'?"
    assert names.did_you_mean("GPU", ["Gpu", "gpu"]) == "did you mean 'Gpu'?"


@pytest.mark.parametrize("module", ["schema.names", "ranges", "select", "schema.faults"])
def test_what_the_command_line_needs_costs_neither_pydantic_nor_yaml(module: str) -> None:
    code = f"import sys, taco_launch.hosts.inventory.{module}; print({{'pydantic', 'yaml', 'ClusterShell'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- The JSON schema for editors: complete, described, and in step with what is really taken


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (schema, *schema["$defs"].values()):
        yield from part["properties"].items()


def test_every_key_is_described_and_nothing_else_is_taken() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert [name for name, part in properties(schema) if not part.get("description")] == []
    assert all(part["additionalProperties"] is False for part in (schema, *schema["$defs"].values()))
    assert schema["required"] == ["cluster", "hosts"]


def test_the_forms_that_strings_and_numbers_share() -> None:
    schema = json_schema()
    slots = schema["$defs"]["HostEntry"]["properties"]["slots"]["anyOf"]
    assert slots == [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 4096}, {"type": "null"}]
    group = schema["properties"]["groups"]["additionalProperties"]["oneOf"]
    assert group == [{"type": "array", "items": {"type": "string"}}, {"$ref": "#/$defs/Group"}]
