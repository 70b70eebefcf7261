"""A line of another launcher and its translation start the same ranks: number, place, arguments, folder and variables."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Taco
from tests.support.paths import ROOT

pytestmark = pytest.mark.e2e

PROBE = """\
import json, os, sys
def first(*names):
    return int(next((os.environ[name] for name in names if name in os.environ), 0))
print(json.dumps({
    "rank": first("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "PMI_RANK", "RANK"),
    "size": first("OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE", "PMI_SIZE", "WORLD_SIZE") or 1,
    "local": first("OMPI_COMM_WORLD_LOCAL_RANK", "HOROVOD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK"),
    "arguments": [word for word in sys.argv[1:] if not word.startswith(("--local-rank", "--local_rank"))],
    "folder": os.getcwd(),
    "variables": {name: os.environ[name] for name in os.environ if name in OWN or name.startswith(("HOROVOD_", "ACCELERATE_"))},
}), flush=True)
"""
# Arguments that a remark of the translation names are left out, and taco-launch sets OMP_NUM_THREADS, as torchrun does, which the others do not: it is compared where a line sets it.
PROBE = PROBE.replace("OWN", repr(("A", "B", "C", "OMP_NUM_THREADS", "NCCL_DEBUG")))
OF_MPIRUN = (
    "{mpirun} -np 2 {python} probe.py --lr 0.1 'a b'",
    "{mpirun} -n 2 --allow-run-as-root -x A=1 -x B='two words' {python} probe.py",
    "{mpirun} -c 2 --bind-to none --map-by slot -x A {python} probe.py -x C=1 -np 9",
    "{mpirun} -np 2 --mca btl tcp,self --mca pml ob1 -wdir {folder}/below {python} ../probe.py",
    "{mpirun} -np 2 -H localhost:2 --tag-output -x B=3 {python} probe.py",
    "A=5 {mpirun} -np 1 -x A -x PATH {python} probe.py --",
    "{mpirun} -np 2 --oversubscribe --bind-to core --map-by node -x A= {python} probe.py ''",
    "{mpirun} --np 4 --oversubscribe -H localhost:4 {python} probe.py",
    "{mpirun} -np 3 --hostfile hosts --merge-stderr-to-stdout {python} probe.py a=b",
    "{mpirun} -machinefile hosts -N 2 {python} probe.py",
    "{mpirun} --host localhost:2 --map-by ppr:2:node --report-bindings {python} probe.py",
    "{mpirun} -np 2 --rank-by slot --wd {folder}/below -x A=x:y -x C=1,2 {python} ../probe.py '*'",
    "{mpirun} -np 1 --timeout 60 -x B=1 --quiet {python} probe.py '$A'",
    "env A=7 {mpirun} -np 2 -x A {python} probe.py",
    "{mpirun} -np 2 nice -n 1 {python} probe.py -H other",
    "{mpirun} -np 1 -x B=1 {python} probe.py : -np 1 -x B=1 {python} probe.py",
)
OF_MPIRUN_5 = (
    *OF_MPIRUN[:7],
    "{mpirun} --np 4 --bind-to none --map-by slot:OVERSUBSCRIBE -H localhost:4 {python} probe.py",
    "{mpirun} -np 3 --bind-to none --hostfile hosts {python} probe.py a=b",
    "{mpirun} -np 2 --output tag --map-by :OVERSUBSCRIBE {python} probe.py",
    "{mpirun} -np 2 --display map --prtemca plm_base_verbose 0 -x B=1 {python} probe.py",
    "{mpirun} -np 2 --bind-to none --rank-by slot -wdir {folder}/below {python} ../probe.py",
)
MPMD = "starts a second program, or one with other settings, in the same job"
REFUSED = (
    ("{mpirun} -np 1 {python} probe.py a : -np 1 {python} probe.py b", MPMD),
    ("{mpirun} -np 1 -x A=1 {python} probe.py a : -np 1 -x A=2 {python} probe.py b", MPMD),
)
OF_TORCH = (
    "torchrun --nproc_per_node 2 probe.py --lr 0.1 'a b'",
    "torchrun --standalone --nnodes=1 --nproc-per-node=2 --max-restarts=0 -m probe --epochs 3",
    "torchrun --nproc_per_node=2 --no-python {python} probe.py $RANK",
    "{python} -m torch.distributed.run --nproc_per_node 2 --master_port 29611 probe.py",
    "torchrun probe.py",
    "torchrun --nproc_per_node=1 --nproc_per_node=2 probe.py --nproc_per_node 9",
    "torchrun --nnodes 1 --node_rank 0 --master_addr 127.0.0.1 --master_port 29613 --nproc_per_node 2 probe.py",
    "torchrun --rdzv_backend c10d --rdzv_endpoint localhost:0 --rdzv_id 7 --nproc_per_node 2 probe.py",
    "torchrun --nproc_per_node cpu -m probe",
    "{python} -m torch.distributed.launch --nproc_per_node 2 --master_port 29614 probe.py -x",
    "A=5 torchrun --nproc_per_node 2 --log_dir logs --redirects 0 --local_addr 127.0.0.1 probe.py",
    "OMP_NUM_THREADS=3 torchrun --nproc_per_node 2 --monitor_interval 1 probe.py",
)
OF_HOROVOD = (
    "horovodrun -np 2 {python} probe.py --lr 0.1 'a b'",
    "horovodrun -np 2 -H localhost:2 --fusion-threshold-mb 32 --cycle-time-ms 2.5 --autotune {python} probe.py",
    "horovodrun -np 2 --hierarchical-allreduce --no-hierarchical-allgather --cache-capacity 512 {python} probe.py",
    "horovodrun -np 2 --hostfile hosts --timeline-filename t.json --timeline-mark-cycles {python} probe.py",
    "horovodrun -np 2 --no-stall-check --log-level INFO --log-hide-timestamp --num-nccl-streams 2 {python} probe.py",
    "horovodrun -np 2 --stall-check-warning-time-seconds 30 --stall-check-shutdown-time-seconds 60 {python} probe.py",
    "horovodrun -np 2 --autotune --autotune-log-file a.csv --autotune-warmup-samples 2 {python} probe.py",
    "horovodrun -np 2 --autotune --autotune-steps-per-sample 5 --autotune-bayes-opt-max-samples 4 {python} probe.py",
    "horovodrun -np 2 --mpi-threads-disable --thread-affinity 0 --gloo-timeout-seconds 45 --verbose {python} probe.py",
    "horovodrun -np 2 --start-timeout 40 --torus-allreduce --log-with-timestamp {python} probe.py",
    "B=2 horovodrun -np 2 --mpi --disable-cache {python} probe.py '$A'",
)
OF_HYDRA = (
    "{hydra} -n 2 -genv A 1 {python} probe.py --lr 0.1 'a b'",
    "{hydra} -np 2 -ppn 2 -genvlist A -env B=2 -print-all-exitcodes {python} probe.py",
    "{hydra} -f hosts -n 2 {python} probe.py",
    "{hydra} -n 2 -wdir {folder}/below -genv B=1 {python} ../probe.py",
    "{hydra} -n 2 -hosts localhost -genvall -bind-to none -l {python} probe.py a",
    "A=3 {hydra} -n 2 -env B 2 -env C 3 {python} probe.py",
    "{hydra} -ppn 2 -n 2 -genv A=1 -genv B=x=y -launcher ssh {python} probe.py ''",
)
# Its way without GPUs starts one process; --multi_gpu starts several on CPUs as well, with gloo.
OF_ACCELERATE = (
    "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 probe.py --lr 0.1 'a b'",
    "accelerate launch --multi_gpu --num_processes 2 --mixed_precision no --dynamo_backend no --num_machines 1 -m probe x",
    "accelerate launch --use_fsdp --num_processes 2 --num_cpu_threads_per_process 3 --no_python {python} probe.py",
    "accelerate launch --cpu --num_processes 2 --main_process_port 29617 probe.py",
)
OF_DEEPSPEED = (
    "deepspeed --num_gpus 2 probe.py --lr 0.1 'a b'",
    "deepspeed --num_nodes 1 --num_gpus 2 --master_port 29619 --no_local_rank --module probe x",
    "deepspeed --include localhost:0 --no_python --no_local_rank {python} probe.py",
)
SCRIPT = """\
#!/bin/bash
export A=1
RANKS=2 BELOW=below
PROGRAM=${PROGRAM:-../probe.py}
cd $BELOW
set -e
"""
OF_SCRIPT = (
    'mpirun --allow-run-as-root -np $RANKS -x A -x B="$RANKS of $A" {python} "$PROGRAM" --lr 0.1 \'$A\'',
    "torchrun --nproc_per_node=$RANKS \\\n  $PROGRAM --size ${RANKS} # two\n",
    'B=3 torchrun --nproc_per_node "${RANKS}" --no_python {python} $PROGRAM "a $A"',
    "horovodrun -np ${NP:-2} --cycle-time-ms 2.5 {python} $PROGRAM 2>&1",
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
    (tmp_path / "hosts").write_text("localhost slots=4\n")
    return tmp_path


def ranks(output: str) -> list[dict[str, Any]]:
    """Return what each rank printed, by its number; launchers may put a label before it."""
    printed = map(json.loads, re.findall(r'\{"rank".*?\}\}', output))
    return sorted(printed, key=lambda rank: rank["rank"])


def program(name: str) -> str:
    """Return a launcher that this machine may lack."""
    found = os.environ.get(f"TACO_LAUNCH_{name}")
    if found is None:
        pytest.skip(f"cannot: TACO_LAUNCH_{name} names no launcher")
    return found


def environment(taco: Taco, folder: Path) -> dict[str, str]:
    taco.env.update({"A": "of the caller", "PYTHONPATH": f"{folder}:{ROOT}"})
    return {**os.environ, **taco.env}


def same(taco: Taco, folder: Path, typed: list[str], brought: list[str]) -> None:
    """Run a line as it is typed, and what it is here."""
    environ = environment(taco, folder)
    original = subprocess.run(typed, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    expected = ranks(original.stdout)
    assert expected, original.stderr
    (job,) = json.loads(taco.ok("translate", "--json", *brought, cwd=folder).stdout)["jobs"]
    run = taco(*shlex.split(job["line"])[1:], cwd=folder)
    assert run.returncode == 0, run.stderr
    names = {"A", "B", "C", *(word.partition("=")[0] for word in job["options"] if "=" in word)}
    for rank in (found := [*ranks(run.stdout), *expected]):
        rank["variables"] = {name: value for name, value in rank["variables"].items() if name in names}
    assert found[: -len(expected)] == expected


def same_line(taco: Taco, folder: Path, line: str, **programs: str) -> None:
    words = shlex.split(line.format(python=sys.executable, folder=folder, **programs))
    same(taco, folder, ["env", *words] if "=" in words[0] else words, ["--", *words])


@pytest.mark.parametrize("line", OF_MPIRUN)
def test_lines_of_mpirun(taco: Taco, folder: Path, line: str) -> None:
    same_line(taco, folder, line, mpirun="mpirun --allow-run-as-root")


@pytest.mark.parametrize("line", OF_MPIRUN_5)
def test_lines_of_mpirun_5(taco: Taco, folder: Path, line: str) -> None:
    same_line(taco, folder, line, mpirun=f"{program('OPENMPI5')} --allow-run-as-root")


@pytest.mark.parametrize(("line", "problem"), REFUSED)
def test_a_line_that_is_no_job_runs_there_and_is_refused_here(
    taco: Taco, folder: Path, line: str, problem: str
) -> None:
    words = shlex.split(line.format(python=sys.executable, mpirun="mpirun --allow-run-as-root"))
    environ = environment(taco, folder)
    original = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=True, timeout=120)
    assert len(ranks(original.stdout)) == 2
    refused = taco("translate", "--", *words, cwd=folder)
    assert (refused.returncode, problem in refused.stderr) == (2, True), refused.stderr


@pytest.mark.parametrize("line", OF_TORCH)
def test_lines_of_torchrun(taco: Taco, folder: Path, line: str) -> None:
    same_line(taco, folder, line)


@pytest.mark.parametrize("line", OF_HOROVOD)
def test_lines_of_horovodrun(taco: Taco, folder: Path, line: str) -> None:
    same_line(taco, folder, line)


@pytest.mark.parametrize("line", OF_HYDRA)
def test_lines_of_hydra(taco: Taco, folder: Path, line: str) -> None:
    hydra = program("MPICH")
    (folder / "hosts").write_text("localhost:4\n")
    taco.env["PATH"] = f"{Path(hydra).parent}:{taco.env['PATH']}"
    same_line(taco, folder, line, hydra=hydra)


@pytest.mark.parametrize("line", [*OF_ACCELERATE, *OF_DEEPSPEED])
def test_lines_of_accelerate_and_deepspeed(taco: Taco, folder: Path, line: str) -> None:
    if shutil.which(line.split(maxsplit=1)[0]) is None:
        pytest.skip(f"cannot: {line.split(maxsplit=1)[0]} is not installed")
    same_line(taco, folder, line)


@pytest.mark.parametrize("line", OF_SCRIPT)
def test_scripts(taco: Taco, folder: Path, line: str) -> None:
    (folder / "job.sh").write_text(SCRIPT + line.replace("{python}", sys.executable) + "\n")
    same(taco, folder, ["bash", "job.sh"], ["job.sh"])


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
