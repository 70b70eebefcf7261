"""`--light` on hosts whose links are slow: the TACO guide's command, by stock Horovod, with and without it in one ladder."""

import json
from pathlib import Path

import pytest

from tests.lab.rig import Image, made

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(1500)]

# As taco.yaml: the program, the model and the batch size of the guide. Without a GPU the gradients alone are exchanged.
MATRIX = """
name: light
workloads:
  resnet50:
    kind: horovod
    command: >-
      python3 /opt/benchmark/pytorch_synthetic_benchmark.py --model resnet50 --batch-size 256 --gradients-only
      --threads 1 --num-warmup-batches 2 --num-batches-per-iter 2 --num-iters 1
sizes: [4]
job: {mca: {mpi_yield_when_idle: 1}}
variants:
  no-light: {light: false}
  light: {light: true}
repeats: 2
warmUps: 0
"""
# The least of the bars of scripts/benchmarks/light.py for Horovod on such a link.
LEAST = 6


def test_the_guides_command_is_faster_with_light_over_a_slow_link(tmp_path: Path) -> None:
    matrix = tmp_path / "light.yaml"
    matrix.write_text(MATRIX)
    with made("light", tmp_path / "state", "--hosts", "2", "--slots", "2", image=Image.TORCH) as lab:
        lab.cluster.ok("setup", "--yes", seconds=400)
        for host in ("gpu1", "gpu2"):
            lab.fault(host, "slow-link", "100mbit")
        done = lab.cluster("bench", "ladder", str(matrix), "--json", seconds=1300)
        assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)["tables"]
    ratios = {row["variant"]: row["ratio_to_first"] for row in table["rows"]}
    assert ratios["light"]["value"] >= LEAST, ratios
