"""Files that are no inventory: each is refused by what it is, in one sentence, with what to type next."""

import pytest

from taco_launch.core.errors import SpecError
from taco_launch.hosts.inventory.load import parse

KINDS = [
    ("job.slurm", "#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n", "a Slurm script", "translate job.slurm"),
    ("job.yaml", "#!/bin/bash\n#SBATCH --nodes=2\nsource .venv/bin/activate\n", "a Slurm script", "translate job.yaml"),
    ("job.pbs", "#PBS -l nodes=4:ppn=8\ncd $PBS_O_WORKDIR\n", "a PBS script", "translate job.pbs"),
    ("job.lsf", "#!/bin/sh\n#BSUB -n 4\nmpirun ./a\n", "an LSF script", "translate job.lsf"),
    ("run.sh", "#!/usr/bin/env bash\nset -e\nmpirun -np 4 ./a.out\n", "a shell script", "translate run.sh"),
    ("train.py", "import torch\nprint(torch)\n", "a Python program", "run -- python3 train.py"),
    ("a.log", "gpu1:12:34 [0] NCCL INFO Bootstrap : Using eth0\n", "a log", "explain a.log"),
    ("b.log", "-" * 60 + "\nORTE was unable to start\n", "a log", "explain b.log"),
    ("c.log", "starting\nfailed to load the library of the framework\n", "a log or another text", "explain c.log"),
    ("site.j2", "[gpu]\n{% for host in hosts %}\n{{ host }}\n{% endfor %}\n", "a template", "made from it"),
    ("ranks", "rank 0=gpu1 slot=0-3\nrank 1=gpu2 slot=0-3\n", "a rankfile of Open MPI", "taco-launch init"),
    ("config", "Host gpu1\n  HostName 10.0.0.1\n", "an SSH configuration", "~/.ssh/config"),
    ("hosts", "127.0.0.1 localhost\n10.0.0.1\tgpu1 gpu1.example\n", "a table of addresses", "taco-launch init"),
    ("mpi.yaml", "apiVersion: kubeflow.org/v1\nkind: MPIJob\n", "a manifest of Kubernetes", "run -f mpi.yaml"),
    ("job", "name: a\ncommand: [python3, train.py]\nhosts: 2\n", "a job file", "run -f job"),
    ("night.yaml", "name: a\nworkloads: {}\n", "a benchmark matrix", "nightly run night.yaml"),
    ("hv.yaml", "verbose: true\nparams: {cycle-time-ms: 3}\n", "a configuration of horovodrun", "translate hv.yaml"),
    ("ds.json", '{"train_batch_size": 8}', "a configuration of DeepSpeed", "taco-launch init"),
    ("acc.yaml", "compute_environment: LOCAL_MACHINE\n", "a configuration of Accelerate", "taco-launch init"),
    ("play.yml", "- hosts: all\n  tasks: []\n", "a playbook of Ansible", "-i names"),
    ("list.json", '{"_meta": {"hostvars": {}}, "all": {"children": []}}', "ansible-inventory --list", "-i names"),
]


@pytest.mark.parametrize(("name", "text", "what", "hint"), KINDS, ids=[kind[0] for kind in KINDS])
def test_another_kind_of_file_is_named(name: str, text: str, what: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text.encode(), name)
    assert str(caught.value).startswith(f"{name}: this is ")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1 slots = 8\n",
        "# 2026-01-01 12:00:00\ngpu1\n",
        "cluster: a\nhosts: {gpu1: {}}\n",
        "# Host\nHost\n",
        "// the hosts of the first rack of all\ngpu1  # the first of the first rack\n",
    ],
)
def test_an_inventory_is_none_of_them(text: str) -> None:
    assert parse(text.encode(), "hosts").hosts


@pytest.mark.parametrize("piece", ["a ", "\n", " ", "ansible_", "[", "-", "1.", "Host a\n\n", "[0"])
def test_long_files_take_no_time(piece: str) -> None:
    with pytest.raises(SpecError):
        parse(("%" + piece * (500_000 // len(piece))).encode(), "hosts")
