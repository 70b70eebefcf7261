"""Job files beyond the cases: the schema, lines of mpirun, and files that are anything but right."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import SpecError
from taco_launch.jobs.command_lines.mpirun_line import UnclearError, read
from taco_launch.jobs.documents.job_file import parse
from taco_launch.jobs.documents.job_schema import json_schema
from tests.support.spoilt import spoilt

MANIFEST = yaml.safe_load((Path(__file__).parent / "cases" / "good_mpijob.yaml").read_text())
JOB = yaml.safe_load((Path(__file__).parent / "cases" / "good_all_of_a_job.yaml").read_text())


def test_every_key_is_described_and_nothing_else_is_taken() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    parts = [schema, *schema["$defs"].values()]
    keys = [(name, part) for section in parts for name, part in section["properties"].items()]
    assert [name for name, part in keys if not part.get("description")] == []
    assert all(section["additionalProperties"] is False for section in parts)
    assert "required" not in schema
    times = schema["$defs"]["RunPolicy"]["properties"]["activeDeadlineSeconds"]["anyOf"]
    assert [form["type"] for form in times] == ["integer", "string", "null"]


VALUES = st.from_regex("[a-z0-9=./]{0,6}", fullmatch=True)
NAMES = st.from_regex("[A-Z][A-Z0-9_]{0,5}", fullmatch=True)
DASHES = st.sampled_from(["-", "--"])


@st.composite
def lines(draw: st.DrawFn) -> tuple[list[str], dict[str, Any]]:
    """A line of mpirun, and what it says."""
    said: dict[str, Any] = {"np": None, "env": [], "mca": [], "unused": []}
    words = [draw(st.sampled_from(["mpirun", "/usr/bin/mpirun", "mpiexec"]))]
    for kind in draw(st.lists(st.sampled_from(["np", "x", "bare", "far", "mca", "host", "root"]), max_size=6)):
        dash, name, value = draw(DASHES), draw(NAMES), draw(VALUES)
        if kind == "np":
            said["np"] = draw(st.integers(1, 999))
            words += [dash + draw(st.sampled_from(["np", "n"])), str(said["np"])]
        elif kind == "x":
            said["env"].append((name, value))
            words += ["-x", f"{name}={value}"]
        elif kind == "bare":
            said["env"].append(("known", "its value"))
            words += ["-x", "known"]
        elif kind == "far":
            said["unused"].append("-x unknown")
            words += ["-x", "unknown"]
        elif kind == "mca":
            said["mca"].append((name, value))
            words += [dash + "mca", name, value]
        elif kind == "host":
            said["unused"].append(f"{dash}H {name}")
            words += [dash + "H", name]
        else:
            words.append("--allow-run-as-root")
    said["program"] = [draw(NAMES), *draw(st.lists(st.from_regex("-{0,2}[a-z]{1,4}", fullmatch=True), max_size=4))]
    return words + said["program"], said


@given(lines())
def test_lines_of_mpirun(line: tuple[list[str], dict[str, Any]]) -> None:
    words, said = line
    found = read(words, {"known": "its value"})
    assert words[found.program :] == said["program"]
    assert (found.np and found.np[0]) == said["np"]
    assert [(name, value) for name, value, _index in found.env] == said["env"]
    assert [(name, value) for name, value, _index in found.mca] == said["mca"]
    path = [f"path {words[0]}"] if "/" in words[0] else []
    assert list(found.unused) == [*path, *said["unused"]]
    for name, _value, index in (*found.env, *found.mca):
        assert words[index].startswith(name)


@given(st.lists(st.sampled_from(["mpirun", "-np", "2", "-x", "A", "--mca", "-", "--wdir", ":", "a"]), min_size=1))
def test_a_line_is_read_or_its_word_in_doubt_named(words: list[str]) -> None:
    try:
        found = read(words, {})
    except UnclearError as error:
        words[error.index]  # there is such a word
        return
    assert not words[found.program].startswith("-")
    assert ":" not in words[found.program :]


def test_a_manifest_has_no_key_for_knobs_that_nobody_knows_but_the_command_line_has() -> None:
    manifest = json.loads(json.dumps(MANIFEST))
    launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    launcher["command"] = ["mpirun", "-x", "NCCL_IB_GTD_INDEX=3", "true"]
    launcher.pop("args", None)
    data = json.dumps(manifest).encode()
    with pytest.raises(SpecError, match="to use it anyway, add --allow-unknown-knobs"):
        parse(data, "job.yaml", {})
    assert ("NCCL_IB_GTD_INDEX", "3") in parse(data, "job.yaml", {}, allow_unknown=True).request.env


@pytest.mark.parametrize("document", [MANIFEST, JOB], ids=["mpijob", "job"])
@given(data=st.data())
def test_a_file_with_anything_in_it_is_read_or_refused(document: dict[str, Any], data: st.DataObject) -> None:
    """Refused means by an error that says so."""
    text = yaml.safe_dump(data.draw(spoilt(document))).encode()
    with contextlib.suppress(SpecError):
        parse(text, "job.yaml", {"HOME": "/root"})
