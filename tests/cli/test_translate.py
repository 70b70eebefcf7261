"""translate: files of every kind that people bring, its forms of output, and what it refuses."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.documents.job_file import parse
from tests.support.command_line import failing, succeeding
from tests.support.paths import ROOT
from tests.support.told import told

SCRIPTS = ROOT / "tests" / "jobs" / "command_lines" / "scripts"
CASES = ROOT / "tests" / "jobs" / "documents" / "cases"
MANIFESTS = [path for word in ("mpijob", "pytorchjob", "trainjob") for path in sorted(CASES.glob(f"good_{word}*.yaml"))]
CONFIG = """
controller: gloo
params: {fusion_threshold_mb: 32, cycle_time_ms: 2.5, hierarchical_allreduce: false}
autotune: {enabled: true, log_file: a.txt}
stall_check: {enabled: false}
logging: {level: INFO, hide_timestamp: true}
"""
OF_CONFIG = (
    "run -x HOROVOD_FUSION_THRESHOLD=33554432 -x HOROVOD_CYCLE_TIME=2.5 -x HOROVOD_HIERARCHICAL_ALLREDUCE=0"
    " -x HOROVOD_AUTOTUNE=1 -x HOROVOD_AUTOTUNE_LOG=a.txt -x HOROVOD_STALL_CHECK_DISABLE=1 -x HOROVOD_LOG_LEVEL=INFO"
    " -x HOROVOD_LOG_HIDE_TIME=1 -- COMMAND"
)
OF_MPI_JOB = (
    "run --name pi --workers 2 --slots-per-worker 2 -x HOROVOD_CYCLE_TIME=2 --clean-up running --backoff-limit 2"
    " --image a -- python t.py"
)
TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  trainer:
    numNodes: 2
    numProcPerNode: 4
    command: [torchrun, train.py]
    args: [--epochs, "3"]
    env: [{name: A, value: "1"}]
"""
MPI_JOB = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 2
  runPolicy: {cleanPodPolicy: Running, backoffLimit: 2}
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{command: [horovodrun, -np, "4", --cycle-time-ms, "2", python, t.py]}]}}}
    Worker: {replicas: 2, template: {spec: {containers: [{image: a}]}}}
"""


@pytest.fixture(autouse=True)
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("four.yaml").write_text(
        "cluster: c\nhead: gpu1\nnetwork: {interface: eth0, rdma: off}\nversions: {openmpi: '4.1.4', nccl: '2.20.5'}\n"
        "hosts: {'gpu[1-4]': {slots: 8}}\n"
    )
    return "four.yaml"


def first_line(*words: str) -> str:
    return succeeding("translate", *words).stdout.splitlines()[0]


def test_a_line_in_quotes_is_read_as_a_shell_reads_it() -> None:
    done = succeeding("translate", "cd /d && NCCL_DEBUG=INFO mpirun -np 2 python 'a b.py'")
    assert done.stdout.startswith("taco-launch run --workdir /d --np 2 -x NCCL_DEBUG=INFO -- python 'a b.py'\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            CONFIG,
            OF_CONFIG,
        ),
        (
            TRAIN_JOB,
            "run --name t --workers 2 --slots-per-worker 4 --launcher torchrun -x A=1 -- python3 train.py --epochs 3",
        ),
        (
            MPI_JOB,
            OF_MPI_JOB,
        ),
    ],
    ids=["config", "TrainJob", "MPIJob"],
)
def test_a_file(text: str, line: str) -> None:
    Path("file.yaml").write_text(text)
    assert first_line("file.yaml") == f"taco-launch {line}"


def test_a_value_to_write_is_marked_in_the_job_file() -> None:
    Path("job.sbatch").write_text(
        '#SBATCH --array=0-1\n#SBATCH -N 1\nA=(1 2)\nsrun a $B ${A[$SLURM_ARRAY_TASK_ID]} "$(x) y"\n'
    )
    text = succeeding("translate", "-o", "yaml", "job.sbatch").stdout
    assert "- $B  # a shell would insert a value here: write it\n" in text
    assert "]}  # write the value: 1 2 in turn, as SLURM_ARRAY_TASK_ID is 0 1\n" in text
    assert "left out: $B" not in text
    assert "left out: -N" not in text
    assert "left out: --array=0-1" in text
    assert yaml.safe_load(text)["command"] == ["a", "$B", "${A[$SLURM_ARRAY_TASK_ID]}", "$(x) y"]


@pytest.mark.parametrize(
    ("line", "is_told"), [("mpirun -np 16", True), ("deepspeed --num_nodes 2", True), ("mpirun -np 1", False)]
)
def test_a_hostfile_for_several_hosts_needs_an_image_first(line: str, is_told: bool) -> None:
    table = succeeding("translate", "--", *line.split(), "--hostfile", "hosts", "t.py").stdout
    assert ("taco-launch init HOST... --image IMAGE --to hosts.yaml" in table) == is_told


def test_the_gpus_of_a_manifest_are_slots() -> None:
    limits = "resources: {limits: {nvidia.com/gpu: 2}}"
    Path("file.yaml").write_text(MPI_JOB.replace("image: a}", f"image: a, {limits}}}"))
    assert (
        "each rank has one slot, which is a GPU where its host has GPUs, else a core"
        in succeeding("translate", "file.yaml").stdout
    )


def test_the_gpus_of_pods_whose_program_is_a_rank_are_an_option() -> None:
    pod = "template: {spec: {containers: [{command: [a], resources: {limits: {nvidia.com/gpu: 4}}}]}}"
    Path("file.yaml").write_text(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: t}\n"
        f"spec: {{pytorchReplicaSpecs: {{Master: {{replicas: 1, {pod}}}, Worker: {{replicas: 3, {pod}}}}}}}\n"
    )
    printed = succeeding("translate", "file.yaml").stdout
    assert "--workers 4 --gpus 4 " in printed
    assert [line.split() for line in printed.splitlines() if "nvidia" in line] == [["nvidia.com/gpu", "--gpus", "4"]]


def test_what_a_configuration_says_of_the_launcher_is_named() -> None:
    Path("file.yaml").write_text(CONFIG)
    assert "controller: gloo " in succeeding("translate", "file.yaml").stdout


def test_a_manifest_as_kubectl_prints_json() -> None:
    Path("file.json").write_text(json.dumps(yaml.safe_load(TRAIN_JOB), indent=4))
    Path("file.yaml").write_text(TRAIN_JOB)
    assert first_line("file.json") == first_line("file.yaml")


@pytest.mark.parametrize("case", MANIFESTS, ids=lambda path: path.stem)
def test_the_line_of_a_manifest_is_the_job_that_f_runs(case: Path) -> None:
    """The job file is made of the options of the line."""
    file = succeeding("translate", "-o", "yaml", str(case)).stdout.encode()
    asked, typed = (told(parse(data, "/jobs/job.yaml", {}).request) for data in (case.read_bytes(), file))
    asked.pop("line_np", None)
    assert typed == asked


def test_a_script_with_two_launchers_is_two_commands(inventory: str) -> None:
    lines = succeeding("-i", inventory, "translate", str(SCRIPTS / "deepspeed.sh")).stdout.splitlines()
    assert lines[0] == "# line 7"
    assert lines[1].startswith("taco-launch -i four.yaml run --launcher torchrun --workdir /work/code --np 4 -- ")
    assert lines[3] == "# line 9"
    message = failing("translate", "-o", "yaml", str(SCRIPTS / "deepspeed.sh"))
    assert "it starts 2 jobs, and a job file has one" in message


def test_launchers_in_the_background_are_jobs_with_a_row() -> None:
    Path("beside.sh").write_text("#!/bin/sh\nsrun -n 8 a &\nsrun -n 1 b &\nwait\npython after.py\n")
    told = succeeding("translate", "beside.sh").stdout
    assert told.startswith("# line 2\ntaco-launch run --np 8 -- a\n\n# line 3\ntaco-launch run --np 1 -- b\n")
    assert re.search(r"^lines 2, 3: & .*submit in the place of run", told, re.MULTILINE)


def test_a_line_within_a_shell() -> None:
    assert (
        first_line("--", "bash", "-lc", "cd /w && A=1 mpirun -np 4 a.out")
        == "taco-launch run --workdir /w --np 4 -x A=1 -- a.out"
    )


def test_a_folder_counts_from_here(inventory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    here = Path.cwd()
    Path("home.sbatch").write_text("#!/bin/bash\n#SBATCH -n 2\ncd /w\ncd ~/exp\nsrun a.out\n")
    assert "--workdir /home/me/exp " in first_line("home.sbatch")
    assert "--workdir /home/me/exp " in failing("-i", inventory, "run", "--", "bash", "home.sbatch")
    line = ["mpirun", "-np", "2", "-wdir", "exp", "a.out"]
    assert f"--workdir {here}/exp " in first_line("--", *line)
    assert f"--workdir {here}/exp " in failing("-i", inventory, "run", "--", *line)
    assert "--workdir exp " in failing("-i", inventory, "run", "--sync", ".", "--", *line)


def test_json_has_each_part_with_its_reason() -> None:
    translated = json.loads(
        succeeding("translate", "--json", "--", "mpirun", "-np", "2", "--bind-to", "core", "a.out").stdout
    )
    (job,) = translated["jobs"]
    assert (job["line"], job["options"], job["command"]) == (
        "taco-launch run --np 2 -- a.out",
        ["--np", "2"],
        ["a.out"],
    )
    assert job["parts"] == [
        {"original": "-np 2", "here": "--np 2", "why": ""},
        {"original": "--bind-to core", "here": "", "why": "the profile decides it"},
    ]


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nnodes 1:2 --nproc-per-node 8 --max-restarts 2 --tee 3 train.py",
        "mpirun -np 16 -wdir /w -x A=b --mca pml ob1 --timeout 60 a.out 'b c'",
        "srun -N 2 --ntasks-per-node 8 -t 1:00:00 -x gpu3 a.out",
    ],
)
def test_the_job_file_is_the_same_job(inventory: str, line: str) -> None:
    words = shlex.split(line)
    typed = shlex.split(first_line("--", *words))[1:]
    Path("job.yaml").write_text(succeeding("translate", "-o", "yaml", "--", *words).stdout)
    by_file = succeeding("-i", inventory, "run", "-f", "job.yaml", "--name", "same", "--dry-run", "--json").stdout
    by_line = succeeding("-i", inventory, "run", "--name", "same", "--dry-run", "--json", *typed[1:]).stdout
    assert yaml.safe_load(by_file) == yaml.safe_load(by_line)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "qsub", "job.pbs"], "qsub is not translated: it would submit a job"),
        (
            ["--", "qsub", "-l", "nodes=2:ppn=8", "job.pbs"],
            "translate job.pbs, and type --hosts 2 --slots-per-host 8 for",
        ),
        (["--", "jsrun", "-n4", "-a1", "-g6", "python", "t.py"], "'python' of jsrun: is a task with several GPUs"),
        (["--", "poe", "./a.out", "-procs", "8"], "poe is not translated: it would start the whole line"),
        (
            ["--", "sky", "launch", "--num-nodes", "2", "--gpus=A100:8", "python t.py"],
            "sky launch is not translated: it would submit a job\nhint: give the number of ranks and the program: taco-launch run --hosts 2 --slots-per-host 8 -- python t.py",
        ),
        (["--", "ray", "job", "submit", "--", "python", "t.py"], "taco-launch run --np N -- python t.py"),
        (["--", "kubectl", "apply", "-f", "job.yaml"], "give the file that it submits: taco-launch translate job.yaml"),
        (["--", "kubectl", "exec", "p", "--", "mpirun", "-np", "4", "a"], "taco-launch translate -- mpirun -np 4 a"),
        (
            ["--", "env", "NNODES=2", "NPROC_PER_NODE=8", "swift", "sft", "--model", "x"],
            "taco-launch run --launcher torchrun --hosts 2 --slots-per-host 8 -- swift sft --model x",
        ),
        (["--", "docker", "run", "i", "a.out"], "docker run is not translated: it would start a container"),
        (["--", "python3", "t.py"], "starts no ranks by a launcher that is known here"),
        (["--", "mpirun", "-np", "2", "./a", ":", "./b"], "':' of mpirun: starts a second program"),
        (
            ["--", "mpirun", "--mca", "orte_base_help_aggregate", "-np", "2", "a.out"],
            "'-np' of mpirun: is an option, and stands where --mca has its value",
        ),
        (["--", "srun", "bash", "-c", "cd /x; torchrun t.py"], "is a script that starts torchrun, and does more"),
        (
            ["mpmd.sh"],
            "mpmd.sh: no launcher in it can be a job here\n  line 1: mpirun -np 1 a : -np 2 b: ':' starts a second",
        ),
        (["hosts"], "hosts: is a hostfile, and starts nothing"),
        (["missing"], "missing: no such file"),
        (["four.yaml"], "four.yaml: is a YAML file without a job of another tool"),
        (
            ["empty.sh"],
            "empty.sh: no command in it starts ranks by a launcher that is known here\n  line 3: bash run.sh: ",
        ),
        ([], "Name a FILE"),
        (
            ["torchrun", "--nproc-per-node", "2", "t.py"],
            "put -- before the line: taco-launch translate -- LINE",
        ),
        (
            ["mpirun", "-np", "2", "a.out"],
            "put -- before the line: taco-launch translate -- LINE",
        ),
        (
            ["t.py"],
            "t.py: is a program in Python, and no script of a shell\nhint: taco-launch run --np N -- python3 t.py",
        ),
        (["program"], "program: is a program in Python"),
        (["compose.yaml"], "its command: starts torchrun\nhint: taco-launch translate -- torchrun --nnodes 2 t.py"),
        (["cloud.yaml"], "its args: starts mpirun\nhint: taco-launch translate -- mpirun -np '${{n}}' a.out"),
        (
            ["group.yaml"],
            "PyTorchJob, TrainJob or Volcano Job; its command: starts mpirun\nhint: taco-launch translate -- mpirun -np 2 ./a.out",
        ),
        (["group.yaml"], "group.yaml: is a GangJob, and the only Kubernetes object that can be read is"),
        (["daemon.yaml"], "'DaemonSet': the only Kubernetes object that can be read is"),
        (["--", "pdsh", "-w", "gpu1,gpu2", "./a"], "pdsh runs a command on each of several hosts"),
        (["arena.sh"], "its launcher is in $PWD/start.sh (taco-launch translate start.sh)"),
    ],
)
def test_refused(words: list[str], message: str) -> None:
    Path("empty.sh").write_text("#!/bin/sh\necho mpirun -np 2 a\nbash run.sh\n")
    Path("t.py").write_text("import torch\ntorch.distributed.init_process_group()\n")
    container = "containers: [{command: [mpirun, -np, '2', ./a.out]}]"
    Path("group.yaml").write_text(f"kind: GangJob\nspec:\n  {container}\n")
    Path("daemon.yaml").write_text("kind: DaemonSet\nspec:\n  containers: [{command: [./a.out]}]\n")
    Path("program").write_text("#!/usr/bin/env python3\nprint(1)\n")
    Path("compose.yaml").write_text(
        "services:\n  a:\n    command: >\n      torchrun\n        --nnodes 2\n        t.py\n"
    )
    Path("cloud.yaml").write_text(
        "jobs:\n- {name: a, command: [sh, -c], args: ['echo 1 && mpirun -np ${{n}} a.out']}\n"
    )
    Path("arena.sh").write_text('arena submit mpijob --name=$1 --workers=$2 "$PWD/start.sh"\n')
    Path("mpmd.sh").write_text("mpirun -np 1 a : -np 2 b\n")
    Path("hosts").write_text("# two\ngpu1 slots=8 max_slots=8\n\ngpu2 slots=4\n")
    assert message in failing("translate", *words)


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        ("qsub -l nodes=4 job.pbs", "qsub would submit a job in each rank", "translate FILE"),
        ("kubectl apply -f x.yaml", "kubectl apply would submit a job in each rank", "translate FILE"),
        ("poe a.out -procs 4", "poe would start the whole line in each rank", "translate FILE"),
        ("docker run image a.out", "docker run would start a container in each rank", "--image NAME"),
        (
            "bash {}/lightning.slurm",
            "is a script for Slurm: each rank would run all of it",
            "run --np 1 -- python train_light",
        ),
        (
            "{}/one.bsub",
            "is a script for LSF: each rank would run all of it, and so mpirun of line 6",
            "run --np 16 --slots-per-host 8 --timeout",
        ),
        ("bash {}/deepspeed.sh", "is a script that starts ranks itself", "translate FILE shows each job of the script"),
    ],
)
def test_each_rank_would_do_it_again(inventory: str, typed: str, message: str, hint: str) -> None:
    words = typed.format(SCRIPTS).split()
    refused = failing("-i", inventory, "run", "--dry-run", "--", *words)
    assert message in refused
    assert hint in refused.splitlines()[-1]
    unchanged = ["sh", "-c", shlex.join(words)]
    assert "warning" not in succeeding("-i", inventory, "run", "--dry-run", "--", *unchanged).stderr


def test_a_broken_script_is_named_where_a_rank_would_run_it(inventory: str) -> None:
    Path("broken.sh").write_text("#!/bin/bash\n#SBATCH -n 2\nmpirun -np 2 \\ \n  a.out\n")
    message = failing("-i", inventory, "run", "--dry-run", "--", "bash", "broken.sh")
    assert "line 3 of the script has a blank behind the backslash" in message.splitlines()[-1]


def test_a_file_of_another_kind_is_named_where_a_job_file_is_read(inventory: str) -> None:
    Path("config.yaml").write_text(CONFIG)
    for name, kind, hint in (
        (
            str(SCRIPTS / "lightning.slurm"),
            "is a script for Slurm, not a job file",
            "to see the same job here: taco-launch",
        ),
        ("config.yaml", "is a configuration of horovodrun, not a job file", "translate config.yaml"),
        (inventory, "is an inventory, not a job file", "-i four.yaml run -- COMMAND"),
    ):
        message = failing("-i", inventory, "run", "-f", name)
        assert kind in message
        assert hint in message.splitlines()[-1]


def test_a_hostfile_that_the_command_has_no_use_for_is_named(inventory: str) -> None:
    message = failing("-i", inventory, "run", "--", "mpirun", "-np", "2", "--hostfile", "h", "a.out")
    assert "left out: --hostfile h: the command has an inventory, or hosts, already" in message


@pytest.mark.parametrize("more", [("--np", "1"), ("--launcher", "env", "--per-host")])
def test_one_rank_or_one_for_each_host_may(inventory: str, more: tuple[str, ...]) -> None:
    succeeding("-i", inventory, "run", "--dry-run", *more, "--", "docker", "run", "image", "a.out")
    succeeding("-i", inventory, "run", "--dry-run", *more, "--", "bash", str(SCRIPTS / "lightning.slurm"))


def test_every_option_of_the_table_has_what_a_user_reads() -> None:
    for kind, options in table.OPTIONS.items():
        for name, meaning in options.items():
            assert meaning.words in (1, 2, 3), (kind, name)
            assert bool(meaning.why) or meaning.use not in (table.OMITTED, table.REFUSED), (kind, name)
            assert bool(meaning.target) == (meaning.use in (table.OPTION, table.VARIABLE)), (kind, name)


def test_the_script_of_sbatchs_wrap_is_read() -> None:
    done = succeeding("translate", "--", "sbatch", "-N", "2", "--wrap", "srun -n 4 ./a")
    assert done.stdout.splitlines()[0] == "taco-launch run --hosts 2 --slots-per-host 2 -- ./a"


def test_what_a_shell_would_compute_in_a_line_keeps_its_text() -> None:
    line = [
        "--",
        "mpirun",
        "-np",
        "$(wc -l < hosts)",
        "`which python`",
        "t.py",
        "--at",
        "$(date +%s)",
        "bash",
        "-c",
        "echo $(id)",
    ]
    done = succeeding("translate", *line).stdout
    assert done.startswith("taco-launch run -- python t.py --at '$(date +%s)' bash -c 'echo $(id)'\n")
    assert "set it yourself: --np N" in done
    assert "$(date +%s) a shell would insert a value here: write it" in " ".join(done.split())
