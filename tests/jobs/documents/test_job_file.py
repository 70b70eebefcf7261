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
from taco_launch.jobs.documents.job_file import parse
from taco_launch.jobs.documents.job_schema import json_schema
from tests.support.spoilt import spoilt

CASES = Path(__file__).parent / "cases"
MANIFEST, JOB, PYTORCH_JOB, ELASTIC, TRAIN_JOB = (
    yaml.safe_load((CASES / f"good_{name}.yaml").read_text())
    for name in ("mpijob", "all_of_a_job", "pytorchjob", "pytorchjob_torchrun", "trainjob_mpi")
)


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


def test_a_manifest_has_no_key_for_knobs_that_nobody_knows_but_the_command_line_has() -> None:
    manifest = json.loads(json.dumps(MANIFEST))
    launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    launcher["command"] = ["mpirun", "-x", "NCCL_IB_GTD_INDEX=3", "true"]
    launcher.pop("args", None)
    data = json.dumps(manifest).encode()
    with pytest.raises(SpecError, match="to use it anyway, add --allow-unknown-knobs"):
        parse(data, "job.yaml", {})
    assert ("NCCL_IB_GTD_INDEX", "3") in parse(data, "job.yaml", {}, allow_unknown=True).request.env


@pytest.mark.parametrize("document", [MANIFEST, JOB, PYTORCH_JOB, ELASTIC, TRAIN_JOB])
@given(data=st.data())
def test_a_file_with_anything_in_it_is_read_or_refused(document: dict[str, Any], data: st.DataObject) -> None:
    """Refused means by an error that says so."""
    text = yaml.safe_dump(data.draw(spoilt(document))).encode()
    with contextlib.suppress(SpecError):
        parse(text, "job.yaml", {"HOME": "/root"})
