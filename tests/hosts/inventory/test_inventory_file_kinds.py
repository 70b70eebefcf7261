"""Files that are no inventory: each is refused by what it is, in one sentence, with what to type next."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from taco_launch.core.errors import SpecError
from taco_launch.core.model.host.hosts import Container, Host, Inventory, Network
from taco_launch.hosts.inventory.load import load, parse
from taco_launch.hosts.inventory.to_document import json_schema
from tests.conftest import Taco
from tests.support.document_cases import Cases, check_refused, stem
from tests.support.paths import ROOT

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


# --- Inventories of Ansible: those in `ansible_ini/` and `ansible_yaml/` give the hosts or the message beside them


INI = Cases(Path(__file__).with_name("ansible_ini"), ".ini")
YAML = Cases(Path(__file__).with_name("ansible_yaml"), ".yml")


def told(inventory: Inventory) -> dict[str, Any]:
    hosts = [
        [host.name, host.address, host.port, host.user, host.identity_file, host.connection] for host in inventory.hosts
    ]
    return {
        "cluster": inventory.cluster,
        "hosts": hosts,
        "groups": {name: list(members) for name, members in inventory.groups},
    }


@pytest.mark.parametrize("case", [*INI.good, *YAML.good], ids=stem)
def test_good(case: Path) -> None:
    inventory = parse(case.read_bytes(), f"/etc/{case.name}")
    assert told(inventory) == json.loads(case.with_suffix(".json").read_text("utf-8"))


@pytest.mark.parametrize("case", [*INI.bad, *YAML.bad], ids=stem)
def test_bad(case: Path) -> None:
    check_refused(case, lambda data: parse(data, f"inventory{case.suffix}"))


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert INI.unmatched() == YAML.unmatched() == set()


def test_no_password_is_shown() -> None:
    for case in (*INI.bad, *YAML.bad):
        assert "hunter2" not in case.with_suffix(".txt").read_text("utf-8")


@pytest.mark.parametrize("letters", [1, 5, 200])
def test_many_letters_are_refused_in_time(letters: int) -> None:
    text = f"[gpus]\n{'[a:z]' * letters} x=1\n"
    if letters == 1:
        assert len(parse(text.encode(), "inventory").hosts) == 26
    else:
        with pytest.raises(SpecError, match=r"means more than 10000 hosts|longer than any host name"):
            parse(text.encode(), "inventory")


# --- What is shipped in inventories/: each one loads and says what its guide fixes; the example names every key


FOLDER = ROOT / "inventories"
SCHEMA = FOLDER / "inventory.schema.json"


def shipped(name: str) -> Inventory:
    return load(str(FOLDER / f"{name}.yaml"), {})


def test_these_are_shipped() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == ["ack", "example", "local", "taco-bare-metal"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_first_line_lets_editors_use_the_schema(path: Path) -> None:
    first = path.read_text("utf-8").partition("\n")[0]
    assert first == f"# yaml-language-server: $schema=./{SCHEMA.name}"
    assert load(str(path), {}).cluster == path.stem


def test_the_schema_is_what_the_command_prints(taco: Taco) -> None:
    assert json.loads(SCHEMA.read_text("utf-8")) == json_schema(), "taco-launch inventory --schema > " + str(SCHEMA)
    assert SCHEMA.read_text("utf-8") == taco("inventory", "--schema").stdout


def test_taco_bare_metal() -> None:
    image = "ccr.ccs.tencentyun.com/qcloud/taco-train:torch111-cu113-bm-0.4.1"
    assert shipped("taco-bare-metal") == Inventory(
        cluster="taco-bare-metal",
        head="gpu1",
        hosts=(Host("gpu1", "10.0.0.1", slots=8), Host("gpu2", "10.0.0.2", slots=8)),
        container=Container(image, 12222, 32 << 30, (("memlock", -1), ("stack", 67108864)), ("lightcc",)),
        network=Network(interface="bond0", rdma="on", gid_index=3, gdr="auto"),
        mpirun="/usr/local/openmpi/bin/mpirun",
        profile="auto",
        versions=(("openmpi", "4.0"), ("nccl", "2.9.9")),
        source=str(FOLDER / "taco-bare-metal.yaml"),
    )


def test_ack() -> None:
    inventory = shipped("ack")
    assert inventory.hosts == tuple(Host(f"worker-{index}", f"worker-{index}", slots=1) for index in range(4))
    assert (inventory.head, inventory.mpirun, inventory.network.interface) == ("worker-0", "mpirun", "eth0")
    assert inventory.container is not None
    assert inventory.container.image.endswith("/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1")


def test_the_example_has_every_key_with_a_comment() -> None:
    written = yaml.safe_load((FOLDER / "example.yaml").read_bytes())
    schema = json_schema()
    assert set(written) == set(schema["properties"])
    for key in ("ssh", "network", "container", "versions", "defaults"):
        assert set(written[key]) == keys(schema, schema["properties"][key])
    # a source has keys of its own, and `packages` is another one
    assert set(written["docker"]) == keys(schema, schema["properties"]["docker"]) - {"packages", "key"}
    assert "\n  # key: " in (FOLDER / "example.yaml").read_text("utf-8")
    assert "\n  # packages: ~/" in (FOLDER / "example.yaml").read_text("utf-8")
    for section, key in (("Container", "registry"), ("Docker", "proxy")):
        part = schema["$defs"][section]["properties"][key]
        assert set(written[section.lower()][key]) == keys(schema, part)
    groups = written["groups"].values()
    assert {type(group) for group in groups} == {list, dict}
    for part, found in (
        ("HostEntry", written["hosts"].values()),
        ("Group", [g for g in groups if isinstance(g, dict)]),
    ):
        own = {key for entry in found for key in entry}
        assert set(schema["$defs"][part]["properties"]) - set(schema["$defs"]["HostDefaults"]["properties"]) <= own
    for line in (FOLDER / "example.yaml").read_text("utf-8").split("\n"):
        if ": " in line.partition("#")[0] and not line.startswith(("  gpu5", "  nightly", "    hosts", "    slots: 8")):
            assert "#" in line or line.strip() in ('nccl: "2.18.3"', 'horovod: "0.28.1"', "port: 2222"), line


def keys(schema: dict[str, Any], part: dict[str, Any]) -> set[str]:
    """Return the keys of the section that a top-level key's schema refers to, alone or beside null."""
    forms = part.get("anyOf", [part])
    (name,) = (form["$ref"].rpartition("/")[2] for form in forms if "$ref" in form)
    return set(schema["$defs"][name]["properties"])
