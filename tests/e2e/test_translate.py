"""A line of another launcher and its translation start the same ranks: number, place, arguments, folder and variables."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Taco
from tests.support.paths import ROOT

pytestmark = pytest.mark.e2e

# Of the variables: taco-launch sets OMP_NUM_THREADS, as torchrun does, which the others do not.
PROBE = """\
import json, os, sys
def first(*names):
    return int(next(os.environ[name] for name in names if name in os.environ))
print(json.dumps({
    "rank": first("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "PMI_RANK", "RANK"),
    "size": first("OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE", "PMI_SIZE", "WORLD_SIZE"),
    "local": first("OMPI_COMM_WORLD_LOCAL_RANK", "HOROVOD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK"),
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "variables": {name: os.environ.get(name) for name in NAMES},
}), flush=True)
""".replace("NAMES", repr(["A", "B", "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_AUTOTUNE"]))  # fmt: skip
OF_MPIRUN = (
    "{mpirun} -np 2 {python} probe.py --lr 0.1 'a b'",
    "{mpirun} -n 2 --allow-run-as-root -x A=1 -x B='two words' {python} probe.py",
    "{mpirun} -c 2 --bind-to none --map-by slot -x A {python} probe.py -x C=1 -np 9",
    "{mpirun} -np 2 --mca btl tcp,self --mca pml ob1 -wdir {folder}/below {python} ../probe.py",
    "{mpirun} -np 2 -H localhost:2 --tag-output -x B=3 {python} probe.py",
    "A=5 {mpirun} -np 1 -x A -x PATH {python} probe.py --",
)
OF_TORCH = (
    "torchrun --nproc_per_node 2 probe.py --lr 0.1 'a b'",
    "torchrun --standalone --nnodes=1 --nproc-per-node=2 --max-restarts=0 -m probe --epochs 3",
    "torchrun --nproc_per_node=2 --no-python {python} probe.py $RANK",
    "{python} -m torch.distributed.run --nproc_per_node 2 --master_port 29611 probe.py",
)
OF_HOROVOD = (
    "horovodrun -np 2 {python} probe.py --lr 0.1 'a b'",
    "horovodrun -np 2 -H localhost:2 --fusion-threshold-mb 32 --cycle-time-ms 2.5 --autotune {python} probe.py",
)
OF_HYDRA = (
    "{hydra} -n 2 -genv A 1 {python} probe.py --lr 0.1 'a b'",
    "{hydra} -np 2 -ppn 2 -genvlist A -env B=2 -print-all-exitcodes {python} probe.py",
)

PYTORCH_JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: ddp}
spec:
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{name: pytorch, workingDir: FOLDER, command: COMMAND, args: [a b], env: [{name: A, value: of the pod}]}]}}}
    Worker: {replicas: 1, template: {spec: {containers: [{name: pytorch, workingDir: FOLDER, command: COMMAND, args: [a b], env: [{name: A, value: of the pod}]}]}}}
"""
TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: ddp}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {numNodes: 1, numProcPerNode: 2, command: COMMAND, args: [a b], env: [{name: A, value: of the pod}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "below").mkdir()
    (tmp_path / "probe.py").write_text(PROBE)
    return tmp_path


def ranks(output: str) -> list[dict[str, Any]]:
    """Return what each rank printed, by its number; launchers may put a label before it."""
    printed = map(json.loads, re.findall(r'\{"rank".*?\}\}', output))
    return sorted(printed, key=lambda rank: rank["rank"])


def same(taco: Taco, folder: Path, line: str, **programs: str) -> None:
    words = shlex.split(line.format(python=sys.executable, folder=folder, **programs))
    environ = {**os.environ, **taco.env, "A": "of the caller", "PYTHONPATH": f"{folder}:{ROOT}"}
    typed = ["env", *words] if "=" in words[0] else words
    original = subprocess.run(typed, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    expected = ranks(original.stdout)
    assert expected, original.stderr
    taco.env["A"], taco.env["PYTHONPATH"] = environ["A"], environ["PYTHONPATH"]
    translated = json.loads(taco.ok("translate", "--json", "--", *words, cwd=folder).stdout)
    (job,) = translated["jobs"]
    run = taco("run", *job["options"], "--", *job["command"], cwd=folder)
    assert run.returncode == 0, run.stderr
    assert ranks(run.stdout) == expected


@pytest.mark.parametrize("line", OF_MPIRUN)
def test_lines_of_mpirun(taco: Taco, folder: Path, line: str) -> None:
    same(taco, folder, line, mpirun="mpirun --allow-run-as-root")


@pytest.mark.parametrize("line", OF_MPIRUN[:2])
def test_lines_of_mpirun_5(taco: Taco, folder: Path, line: str) -> None:
    program = os.environ.get("TACO_LAUNCH_OPENMPI5")
    if program is None:
        pytest.skip("cannot: TACO_LAUNCH_OPENMPI5 names no mpirun of Open MPI 5")
    same(taco, folder, line, mpirun=f"{program} --allow-run-as-root")


@pytest.mark.parametrize("line", OF_TORCH)
def test_lines_of_torchrun(taco: Taco, folder: Path, line: str) -> None:
    same(taco, folder, line)


@pytest.mark.parametrize("line", OF_HOROVOD)
def test_lines_of_horovodrun(taco: Taco, folder: Path, line: str) -> None:
    same(taco, folder, line)


@pytest.mark.parametrize("line", OF_HYDRA)
def test_lines_of_hydra(taco: Taco, folder: Path, line: str) -> None:
    program = os.environ.get("TACO_LAUNCH_MPICH")
    if program is None:
        pytest.skip("cannot: TACO_LAUNCH_MPICH names no mpiexec.hydra of MPICH")
    taco.env["PATH"] = f"{Path(program).parent}:{taco.env['PATH']}"
    same(taco, folder, line, hydra=program)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (PYTORCH_JOB, "[{python}, probe.py]"),
        (PYTORCH_JOB, "[torchrun, --no-python, {python}, probe.py]"),
        (PYTORCH_JOB, "[sh, -c, 'cd below && {python} ../probe.py \"$0\"; cd ..']"),
        (TRAIN_JOB, "[torchrun, --no-python, {python}, probe.py]"),
    ],
    ids=["PyTorchJob", "PyTorchJob of torchrun", "PyTorchJob of a shell", "TrainJob"],
)
def test_manifests_of_kubeflow(taco: Taco, folder: Path, text: str, command: str) -> None:
    file = folder / "job.yaml"
    file.write_text(text.replace("COMMAND", command.format(python=sys.executable)).replace("FOLDER", str(folder)))
    run = taco("run", "-f", str(file), cwd=folder)
    assert run.returncode == 0, run.stderr
    found = ranks(run.stdout)
    assert [(rank["rank"], rank["size"], rank["arguments"]) for rank in found] == [(0, 2, ["a b"]), (1, 2, ["a b"])]
    assert {rank["variables"]["A"] for rank in found} == {"of the pod"}
    assert {rank["folder"] for rank in found} == {str(folder / "below" if "below" in command else folder)}
