"""--dry-run: the guides' lines, what --explain, --json and --to give, and what is refused."""

import json
import os
import shlex
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from taco_launch.core.model.host.fact_value import Unknown
from taco_launch.core.model.host.facts import HostFacts, Software
from taco_launch.hosts.fanout import Answer, Fanout
from tests.support.command_line import call, failing, succeeding
from tests.support.host_facts import host
from tests.support.paths import ROOT, TESTS
from tests.support.raisers import raiser

GUIDES = yaml.safe_load((TESTS / "cli/cases/guide_lines.yaml").read_text())

TWO = """\
cluster: two
network: {interface: eth0}
versions: {openmpi: "4.1.4"}
mpirun: /usr/bin/mpirun
hosts:
  n[1-2]: {slots: 2}
"""


@pytest.fixture
def two(tmp_path: Path) -> Path:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    return file


def words(line: str) -> list[str]:
    return ["--mca" if word == "-mca" else word for word in shlex.split(line)]


def planned(*args: str, file: Path) -> dict[str, Any]:
    result = succeeding("-i", str(file), "run", "--dry-run", "--json", *args)
    plan: dict[str, Any] = json.loads(result.stdout)
    return plan


@pytest.mark.parametrize("case", GUIDES, ids=lambda case: case["guide"])
def test_the_guides_lines(case: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = succeeding(*shlex.split(case["typed"]))
    assert result.stdout.count("\n") == 1
    assert words(result.stdout) == words(case["line"])


def test_the_line_is_pasted_as_it_is(two: Path) -> None:
    result = call("-i", str(two), "run", "--dry-run", "--", "sh", "-c", "echo $RANK; echo 'x'")
    assert shlex.split(result.stdout)[-3:] == ["sh", "-c", "echo $RANK; echo 'x'"]


def test_explain_has_a_row_for_each_word(two: Path) -> None:
    line = call("-i", str(two), "run", "--dry-run", "--", "true").stdout
    result = call("-i", str(two), "run", "--dry-run", "--explain", "-x", "A=1", "--", "true")
    rows = [row for row in result.stdout.split("\n\n")[0].splitlines() if row.strip()][1:]
    assert [shlex.split(row.split()[0])[0] for row in rows] == [*shlex.split(line)[:-1], "-x", "A=1", "true"]
    assert "Executed: " in result.stdout
    assert "agent rank" in result.stdout
    assert "TACO_LAUNCH_JOB_ID" in result.stdout


def test_json_has_all_of_it(two: Path) -> None:
    plan = planned("--name", "j", "--", "true", file=two)
    assert shlex.split(plan["line"]) == [token["text"] for token in plan["tokens"]]
    eth0 = next(token for token in plan["tokens"] if token["text"] == "eth0")
    assert eth0["source"] == "inventory"
    assert "network.interface" in eth0["why"]
    assert plan["executed"][-5:] == ["agent", "rank", "j", "--", "true"]
    assert plan["env"]["TACO_LAUNCH_JOB"] == "j"
    assert {"files", "host_env", "warnings"} <= plan.keys()


def test_nothing_is_asked_where_all_is_declared(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "taco_launch.api.cluster.Cluster.access", property(raiser(AssertionError("a connection was opened")))
    )
    result = succeeding("-i", str(two), "run", "--dry-run", "--", "true")
    assert result.stderr.startswith("note: no host was contacted: the job looks for RDMA ports when it starts")
    assert call("-i", str(two), "run", "--dry-run", "--transport", "tcp", "--", "true").stderr == ""


@pytest.mark.parametrize("line", ["network: {interface: eth0}", 'versions: {openmpi: "4.1.4"}', "slots: 2"])
def test_what_is_not_declared_is_named(two: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "taco_launch.hosts.gather_facts.job_hosts", lambda *_, **_options: ((), ("n1: no route to host",))
    )
    assert line in TWO
    two.write_text(TWO.replace(line, ""))
    result = call("-i", str(two), "run", "--dry-run", "--", "true")
    said = {"network": "network interface", "versions": "version of Open MPI", "slots": "host n1: its slots"}
    assert said[line.partition(":")[0]] in result.stderr
    assert "n1: no route to host" in result.stderr
    assert result.exit_code == (2 if line[:5] == "slots" else 0)
    assert ("-H n1:2,n2:2" in result.stdout) == (result.exit_code == 0)


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        (("--np", "2"), True),
        (("--hosts", "2", "--slots-per-host", "1"), True),
        (("--np", "2", "--exclusive"), False),  # nobody has the other GPUs
        (("--hosts", "2"), False),
        (("--hosts", "2", "--explain"), True),
    ],
)
def test_links_are_asked_for_where_the_line_hangs_on_them(
    two: Path, flags: tuple[str, ...], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without --explain alike: NCCL_IB_HCA has the ports near the GPUs that a job would have."""
    options: list[bool] = []

    def job_hosts(*_: object, topology: bool) -> tuple[tuple[()], tuple[str, ...]]:
        options.append(topology)
        return (), ("n1: silent",)

    monkeypatch.setattr("taco_launch.hosts.gather_facts.job_hosts", job_hosts)
    two.write_text(TWO.replace('versions: {openmpi: "4.1.4"}', ""))
    assert call("-i", str(two), "run", "--dry-run", *flags, "--", "true").exit_code == 0
    assert options == [asked]


def test_from_64_hosts_on_a_hostfile_is_written(tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    file.write_text(TWO.replace("n[1-2]", "n[1-64]"))
    out = tmp_path / "out dir"
    result = call("-i", str(file), "run", "--dry-run", "--to", str(out), "--", "true")
    line = shlex.split(result.stdout)
    hostfile = Path(line[line.index("--hostfile") + 1])
    assert hostfile == out / "hostfile"
    assert hostfile.read_text() == "".join(f"n{number} slots=2\n" for number in range(1, 65))
    assert stat.S_ISREG(hostfile.stat().st_mode)
    assert "-H" not in line
    assert f"wrote {hostfile}" in result.stderr
    for words in (["plm_rsh_no_tree_spawn", "1"], ["plm_rsh_num_concurrent", "64"]):
        at = line.index(words[0])
        assert line[at : at + 2] == words
    without = call("-i", str(file), "run", "--dry-run", "--", "true")
    assert "--to DIR" in without.stderr
    file.write_text(TWO.replace("n[1-2]", "n[1-63]"))
    assert "-H" in shlex.split(call("-i", str(file), "run", "--dry-run", "--", "true").stdout)


def test_knobs_are_normalised_and_x_is_taken_at_its_word(two: Path) -> None:
    line = planned(
        "--knob", "HOROVOD_FUSION_THRESHOLD=64MiB", "--knob", "btl_tcp_if_include=eth1", "--", "true", file=two
    )
    assert "HOROVOD_FUSION_THRESHOLD=67108864" in line["line"]
    assert "--mca btl_tcp_if_include eth1" in line["line"]
    refused = failing("-i", str(two), "run", "--dry-run", "-x", "HOROVOD_FUSION_THRESHOLD=64MiB", "--", "true")
    assert "--knob HOROVOD_FUSION_THRESHOLD=64MiB" in refused


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--explain"], "--dry-run"),
        (["--to", "x"], "--dry-run"),
        (["--json"], "--dry-run"),
        (["--dry-run", "--profile", "atuo"], "did you mean 'auto'"),
        (["--dry-run", "--profile", "./nosuch.yaml"], ": file not found: nosuch.yaml"),
        (["--dry-run", "--interface", "eth0;reboot"], "is not a network interface"),
        (["--dry-run", "--transport", "roce"], "rdma"),
        (["--dry-run", "-x", "NCCL_IB_HAC=mlx5"], "did you mean 'NCCL_IB_HCA'"),
        (["--dry-run", "--np", "5"], "4 slots"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_is_refused(two: Path, args: list[str], said: str) -> None:
    result = call("-i", str(two), "run", *args, "--", "true")
    assert result.exit_code == (4 if "--np" in args else 2)
    assert said in result.stderr
    assert result.stdout == "" or set(json.loads(result.stdout)) == {"error"}


def test_an_unknown_knob_passes_where_it_is_allowed(two: Path) -> None:
    assert (
        "NCCL_IB_HAC=mlx5" in planned("--allow-unknown-knobs", "-x", "NCCL_IB_HAC=mlx5", "--", "true", file=two)["line"]
    )


@pytest.mark.parametrize(
    "verb", [["run", "--", "true"], ["submit", "--", "true"], ["list"], ["stop", "x"]], ids=" ".join
)
def test_a_container_that_was_not_set_up(tmp_path: Path, verb: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {"docker": "echo 'Error: No such container: it' >&2; exit 1", "sudo": 'shift 4; exec "$@"'}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")  # simulated
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    file = tmp_path / "contained.yaml"
    file.write_text("cluster: c\ncontainer: {image: x}\nhosts: {here: {connection: local, slots: 1}}\n")
    result = call("-i", str(file), *verb)
    assert result.exit_code == (125 if verb[0] == "run" else 5)
    assert "error: here: there is no container taco-launch-c\n" in result.stderr
    assert (
        f"hint: to set the hosts up: taco-launch -i {file} setup; records of earlier jobs, if any, are in "
        in result.stderr
    )
    assert "/var/lib/taco-launch/containers on here\n" in result.stderr


@pytest.mark.parametrize("there", [True, False])
def test_the_software_of_a_container_is_asked_in_it(two: Path, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the container that `setup` makes; where that does not exist, the plan says so."""
    two.write_text(TWO.replace('versions: {openmpi: "4.1.4"}', "container: {image: x}"))
    asked: list[str | None] = []

    def gather(fanout: Fanout, *_args: object, container: str | None, **_more: object) -> tuple[Answer[HostFacts], ...]:
        asked.append(container)
        found = [host(transport.name) for transport in fanout.transports]
        image = found[0].image
        assert isinstance(image, Software)
        inside = replace(image, where=container or "host") if there else Unknown("No such container: taco-launch-two")
        return tuple(Answer(facts.host, replace(facts, image=inside)) for facts in found)

    monkeypatch.setattr("taco_launch.hosts.gather_facts.gather", gather)
    result = succeeding("-i", str(two), "run", "--dry-run", "--", "true")
    assert asked == ["taco-launch-two"]
    assert "asking 2 hosts for: version of /usr/bin/mpirun" in result.stderr
    assert ("--mca oob_tcp_if_include eth0" in result.stdout) == there  # of Open MPI 4
    assert ("n1: No such container: taco-launch-two" in result.stderr) == (not there)


@pytest.mark.parametrize("verb", [["run"], ["submit"], ["bench", "run", "--np", "1"]], ids=" ".join)
def test_a_stray_word_is_not_taken_for_the_program(two: Path, verb: list[str]) -> None:
    for stray in (["-H", "n1:2", "n2:2"], ["-x", "HOME", "eth0"], ["true"]):
        assert f"{stray[-1]!r} is before --" in failing("-i", str(two), *verb, *stray, "--", "true")
    assert call("-i", str(two), "run", "--dry-run", "--mca", "pml", "--", "true").exit_code == 2


def test_hosts_given_one_by_one_are_all_taken(two: Path) -> None:
    """mpirun begins with its own host, the head, whatever the order."""
    assert "-H n1:2,n2:1" in planned("-H", "n2:1", "-H", "n1", "--", "true", file=two)["line"]


def test_the_number_of_ranks_as_mpirun_is_told(two: Path) -> None:
    for option in ("--np", "-np", "-n"):
        assert " -np 3 " in planned(option, "3", "--", "true", file=two)["line"]


def test_the_default_hostfile_is_written_as_well(two: Path, tmp_path: Path) -> None:
    result = call("-i", str(two), "run", "--dry-run", "--profile", "ack", "--to", str(tmp_path / "o"), "--", "true")
    assert (tmp_path / "o" / "hostfile").read_text() == "n1 slots=2\nn2 slots=2\n"
    assert "the line names no hosts" in result.stderr


def test_a_profile_of_ones_own(two: Path) -> None:
    folder = two.parent / "profiles"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "profile: mine\nabout: only what I need\noptions:\n"
        '  - {add: "-np {np}", why: ranks}\n  - {add: "-H {hosts}", why: hosts, when: [not many_hosts]}\n'
        "  - {add: \"-x NOTE='two words'\", why: a note, when: [rdma]}\n"
    )
    assert planned("--profile", "mine", "--", "true", file=two)["line"] == "/usr/bin/mpirun -np 4 -H n1:2,n2:2 true"
    rdma = planned("--profile", "mine", "--transport", "rdma", "--", "true", file=two)
    assert rdma["line"] == "/usr/bin/mpirun -np 4 -H n1:2,n2:2 -x 'NOTE=two words' true"
    assert {token["source"] for token in rdma["tokens"] if "NOTE" in token["text"]} == {"user"}


def test_a_profile_of_the_inventory_lies_beside_it(two: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text('profile: mine\nabout: x\noptions: [{add: "-np {np}", why: ranks}]\n')
    two.write_text(TWO + "profile: ./mine.yaml\n")
    monkeypatch.chdir("/")
    assert planned("--", "true", file=two)["line"] == "/usr/bin/mpirun -np 4 true"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profile: x\nabout: x\noptions: []\n", "must be a list of options"),
        ("profile: x\noptions: [{add: --bind-to none, why: x}]\n", "about: missing: must be text"),
        ("about: x\nprofile: x\noptions: [{add: none, why: x}]\n", "must be an option of mpirun"),
        ("about: x\nprofile: x\noptions: [{add: --bind-to none}]\n", "options[0].why"),
        ('about: x\nprofile: x\noptions: [{add: "-H {host}", why: x}]\n', "did you mean 'hosts'"),
        ("about: x\nprofile: x\noptions: [{add: -x A=1, why: x, when: [rmda]}]\n", "did you mean 'rdma'"),
        ("about: x\nprofile: x\noptions: [{add: -x NCCL_NET_GDR_LEVEL=pxb, why: x}]\n", "upper case"),
        ("about: x\nprofile: x\noptions: [{add: --mca pml, why: x}]\n", "--mca NAME VALUE"),
        ('about: x\nprofile: x\noptions: [{add: "-x A=\'", why: x}]\n', "cannot be split into words"),
        ("about: x\nprofile: x\noption: []\noptions: [{ad: 1, why: x}]\n", "did you mean 'options'"),
        (
            "about: x\nprofile: x\noptions: [{add: --bind-to none, why: x}]\n",
            "one of them has to set the number of ranks",
        ),
        (
            "about: x\nprofile: x\noptions: [{add: -x NCCL_DEBUGG=1, why: x}]\n",
            "'NCCL_DEBUG'? to set a name that this version does not know, use -x with --allow-unknown-knobs)",
        ),
        ("about: x\nprofile: x\noptions: [{add: '-x NCCL_DEBUGG={np}', why: x}]\n", "'NCCL_DEBUGG' no such knob"),
        ("about: x\nprofile: x\noptions: [{add: -x 1X=3, why: x}]\n", "is not the name of an environment variable"),
        ("about: x\nprofile: x\noptions: [{add: -x OMPI_MCA_btl=tcp, why: x}]\n", "write --mca btl tcp"),
        ("about: x\nprofile: x\noptions: [{add: --mca NCCL_DEBUG INFO, why: x}]\n", "is an environment variable"),
        ("about: x\nprofile: x\noptions: [{add: '-np {np} ; touch x', why: x}]\n", "must be 2 words: -np VALUE"),
        ("about: x\nprofile: x\noptions: [{add: '--hostfile', why: x}]\n", "must be 2 words: --hostfile VALUE"),
        ("about: x\nprofile: x\noptions: [{add: --allow-run-as-root ls, why: x}]\n", "must be 1 word: --allow-run"),
        (
            "about: x\nprofile: x\noptions: [{add: -np {np}, why: x}, {add: --mca pml ob1, why: x},"
            " {add: -mca pml ucx, why: x}]\n".replace("-np {np}", "'-np {np}'"),
            "is the same option as options[1]",
        ),
        ("- 1\n", "must be a mapping"),
        ("a: [\n", "invalid YAML"),
    ],
)
def test_a_profile_that_is_wrong(two: Path, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    result = failing("-i", str(two), "run", "--dry-run", "--profile", str(file), "--", "true")
    assert said in result
    assert str(file) in result


def test_2d_alone_becomes_horovods_torus(two: Path) -> None:
    two.write_text(TWO.replace('"4.1.4"', '"4.1.4", horovod: "0.28.1"'))
    plan = planned("-x", "LIGHT_2D_ALLREDUCE=1", "--", "true", file=two)
    assert "HOROVOD_TORUS_ALLREDUCE=1" in plan["line"]
    assert "LIGHT_" not in plan["line"]
    token = next(token for token in plan["tokens"] if token["text"] == "HOROVOD_TORUS_ALLREDUCE=1")
    assert token["source"] == "launcher"
    assert "LIGHT_2D_ALLREDUCE" in token["why"]
    both = planned("-x", "LIGHT_2D_ALLREDUCE=1", "-x", "LIGHT_TOPK_ALLREDUCE=1", "--", "true", file=two)
    assert "TORUS" not in both["line"]


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("run --np 2 python3 ddp.py --steps 1", "taco-launch run --np 2 -- python3 ddp.py --steps 1"),
        ("run --np 2 python3 ddp.py --name x", "taco-launch run --np 2 -- python3 ddp.py --name x"),
        ("submit -x A=1 -q slow.py -q --timeout 3", "taco-launch submit -x A=1 -q -- slow.py -q --timeout 3"),
    ],
)
def test_no_option_after_a_command_without_dashes_is_taken(typed: str, line: str) -> None:
    assert f"belongs to the program: {line}\n" in failing(*typed.split())


@pytest.mark.parametrize("typed", ["run --dry-run --np 2 true", "run --np 2 --dry-run cat -"])
def test_a_command_without_options_needs_no_dashes(typed: str) -> None:
    assert call(*typed.split()).exit_code == 0


def test_the_reason_for_threads_is_given_once() -> None:
    """The decision of {threads} says how it is computed; the profile adds only why it is set."""
    shipped = ROOT / "taco_launch" / "hosts" / "inventory" / "profiles" / "auto.yaml"
    (line,) = (line for line in shipped.read_text("utf-8").splitlines() if "{threads}" in line)
    assert "cores of" not in line
