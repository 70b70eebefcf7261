"""Matrices beyond the cases: those that are shipped, how one is found, limits, the schema, and files that are not right."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.bench.model.matrix import ALL, Matrix, cells
from taco_launch.bench.run import matrix_file
from taco_launch.bench.run.matrix_schema import json_schema
from taco_launch.core.errors import SpecError
from taco_launch.jobs.documents.job_schema import json_schema as job_schema
from tests.support.spoilt import spoilt

MATRIX = yaml.safe_load((Path(__file__).parent / "matrices" / "good_everything.yaml").read_text())
SHIPPED = ("gputopology", "lab", "taco")


def parse(document: Any) -> Matrix:
    return matrix_file.parse(yaml.safe_dump(document, sort_keys=False).encode(), "m.yaml", {"HOME": "/root"})


def refused(name: str) -> str:
    with pytest.raises(SpecError) as caught:
        matrix_file.load(name, {})
    return f"{caught.value} {caught.value.hint}"


def test_what_is_shipped() -> None:
    assert matrix_file.shipped() == SHIPPED
    for name in SHIPPED:
        found = matrix_file.load(name, {})
        assert found.name == name
        assert found.repeats >= 5
        assert found.time_budget


def test_the_ladder_of_the_taco_guide() -> None:
    """One, 8 and 16 GPUs, resnet50 with a batch of 256 and vgg16 with one of 128."""
    found = matrix_file.load("taco", {})
    assert [workload.command[2:] for workload in found.workloads] == [
        ("--model", "resnet50", "--batch-size", "256"),
        ("--model", "vgg16", "--batch-size", "128"),
    ]
    assert found.sizes == (1, 8, 16, ALL)
    assert found.variants[0].job.transport == "tcp"
    ways = {(way.job.transport, way.job.gdr, way.job.light) for way in found.variants[1:]}
    assert ways == {("rdma", gdr, light) for gdr in (False, True) for light in (None, True)}
    at_two_hosts = cells(found, dict.fromkeys((variant.name for variant in found.variants), 16)).cells
    assert len(at_two_hosts) == 2 * (2 + 5)


def test_the_comparison_of_the_ack_guide() -> None:
    """Four GPUs, vgg16 and resnet50 with a batch of 64, scheduled by topology and not."""
    found = matrix_file.load("gputopology", {})
    assert [workload.command[2:] for workload in found.workloads] == [
        ("--model=vgg16", "--batch-size=64"),
        ("--model=resnet50", "--batch-size=64"),
    ]
    assert found.sizes == (4,)
    assert [variant.job.gpu_topology for variant in found.variants] == [False, True]


def test_the_ladder_of_the_lab() -> None:
    found = matrix_file.load("lab.yaml", {})
    assert (found.sizes, found.repeats, found.min_effect) == ((1, 2, 4), 5, 0.3)
    job = matrix_file.request_of(found, "gradients", "fp16")
    assert job.command[0] == "python3"
    assert job.mca == (("mpi_yield_when_idle", "1"),)
    assert job.command[-1] == "--fp16-allreduce"
    assert "--fp16-allreduce" not in matrix_file.request_of(found, "gradients", "plain").command


def test_how_a_matrix_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = yaml.safe_dump(MATRIX | {"name": "mine"})
    Path("mine.yaml").write_text(text)
    Path("lab").mkdir()  # a folder of a name that is shipped
    for name in ("mine.yaml", "./mine.yaml", str(tmp_path / "mine.yaml")):
        assert matrix_file.load(name, {"HOME": "/"}).name == "mine"
    assert matrix_file.load("lab", {}).name == "lab"
    assert matrix_file.load("lab.yaml", {}).name == "lab"
    Path("lab.yaml").write_text(text)
    assert matrix_file.load("lab.yaml", {"HOME": "/"}).name == "mine"
    assert matrix_file.load("lab", {}).name == "lab"


def test_a_matrix_that_is_not_there(tmp_path: Path) -> None:
    assert "no such matrix; shipped with taco-launch: gputopology, lab, taco (did you mean 'taco'?)" in refused("tacco")
    assert ": file not found: " in refused(str(tmp_path / "x.yaml"))
    assert "a directory, not a regular file" in refused(f"{tmp_path}/")
    fifo = tmp_path / "pipe.yaml"
    os.mkfifo(fifo)
    assert "a FIFO, not a regular file" in refused(str(fifo))


def test_what_a_variant_says_goes_before_what_all_say() -> None:
    job = matrix_file.request_of(parse(MATRIX), "images", "rdma")
    assert job.command == ("python3", "train.py", "--batch-size", "64", "--fp16-allreduce", "7")
    assert job.transport == "rdma"
    assert dict(job.env) == {"A": "x", "B": "y", "HOME": None, "C": "z"}
    assert job.image == "train:2"


def test_limits() -> None:
    variants = {f"v{index}": {"knobs": {"NCCL_DEBUG": "INFO"}} for index in range(500)}
    small = MATRIX | {"only": None, "workloads": {"w": {"kind": "horovod", "command": "a"}}, "sizes": [1, 2]}
    begin = time.process_time()
    found = parse(small | {"variants": variants})
    assert time.process_time() - begin < 10
    assert len(cells(found, dict.fromkeys(variants, 2)).cells) == 1000
    many = small | {"variants": {f"v{index}": {} for index in range(101)}, "sizes": list(range(1, 101))}
    with pytest.raises(
        SpecError,
        match="10100 cells, but at most 10000 are allowed",
    ):
        parse(many)
    with pytest.raises(SpecError, match=r"is larger than 1048576 bytes \(1 MiB\), which is the limit"):
        matrix_file.parse(b" " * (1 << 20) + b"#", "m.yaml", {})


def test_every_key_is_described_and_a_variant_has_those_of_a_job_file() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    sections = [schema, *schema["$defs"].values()]
    assert [
        name for section in sections for name, part in section["properties"].items() if not part.get("description")
    ] == []
    assert all(section["additionalProperties"] is False for section in sections)
    assert set(schema["required"]) == {"name", "workloads", "sizes", "variants"}
    elsewhere = {"name", "command", "np", "hosts", "slotsPerHost", "workers", "gpus", "slotsPerWorker"}
    keys = set(job_schema()["properties"]) - elsewhere
    assert set(schema["properties"]["job"]["properties"]) == keys
    assert set(schema["$defs"]["VariantEntry"]["properties"]) == keys | {"args"}
    references = {part["$ref"] for part in _references(schema)}
    assert {f"#/$defs/{name}" for name in schema["$defs"]} == references


def _references(value: Any) -> Iterator[dict[str, str]]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


@given(spoilt(MATRIX))
def test_a_matrix_with_anything_in_it_is_read_or_refused(changed: Any) -> None:
    with contextlib.suppress(SpecError):
        found = parse(changed)
        assert found.workloads
        assert found.variants
        assert len(set(found.sizes)) == len(found.sizes) > 0
        assert cells(found, dict.fromkeys((variant.name for variant in found.variants), 10**9)).dropped == ()


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SpecError):
        matrix_file.parse(data, "m.yaml", {})
