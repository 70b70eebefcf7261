"""The command line without mpirun: help, exit codes, errors, formats, completion."""

import errno
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import taco_launch
from taco_launch.cli import verbs
from taco_launch.cli.main import cli
from taco_launch.core.facts import SUBJECTS
from taco_launch.core.model.jobs import JobSpec
from taco_launch.hosts.inventory.schema.names import job_name
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.jobs.request.job_names import default_name
from tests.conftest import Taco
from tests.support.command_line import VERBS, call, failing
from tests.support.raisers import raiser


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_verb_has_help_with_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert re.search(rf"taco-launch (-i \S+ )?{' '.join(path)}", result.output)
    for parameter in VERBS[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_help_names_every_verb() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output
    for path in VERBS:
        assert f"  {path[0]} " in output


def test_a_verb_is_listed_with_its_own_help() -> None:
    listed = list(verbs.all_verbs())
    assert {verb.name: verb.get_short_help_str(500) for verb in listed} == {
        verb.name: verb.load().get_short_help_str(500) for verb in listed
    }


def test_version() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert result.output == f"taco-launch, version {taco_launch.__version__}\n"


@pytest.mark.parametrize(
    "args",
    [
        ["nosuch"],
        ["run"],
        ["run", "--np", "0", "--", "true"],
        ["run", "--np", "two", "--", "true"],
        ["run", "--grace", "-1", "--", "true"],
        ["run", "--grace", "nan", "--", "true"],
        ["run", "--timeout", "inf", "--", "true"],
        ["run", "--timeout", "1w", "--", "true"],
        ["run", "-x", "TACO_TEST_NOT_SET", "--", "true"],
        ["run", "--name", "-rf", "--", "true"],
        ["run", "--name", "a/b", "--", "true"],
        ["run", "--name", "", "--", "true"],
        ["run", "-x", "1BAD=2", "--", "true"],
        ["run", "-x", "", "--", "true"],
        ["run", "-H", "h1:", "--", "true"],
        ["run", "-H", "h1:0", "--", "true"],
        ["run", "-H", "h1:1 h2:1", "--", "true"],
        ["run", "-i", "/no/such/inventory.yaml", "--", "true"],
        ["run", "-i", "/", "--", "true"],
        ["run", "-i", "/dev/null", "--", "true"],
        ["list", "-o", "xml"],
        ["bench", "run", "--np", "1,x", "--", "true"],
        ["bench", "run", "--np", "", "--", "true"],
        ["bench", "parse", "/no/such/log"],
        ["bench", "parse", "/"],
        ["completion", "cmd.exe"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2_with_a_clear_error(args: list[str]) -> None:
    result = call(*args)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert "bug" not in result.output
    assert "error" in result.output.lower() or "usage" in result.output.lower()


def test_another_host_is_refused_but_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "taco_launch.hosts.gather_facts.job_hosts", lambda *_, **_options: ((), ("gpu1: no such name",))
    )
    hosts = ["-H", "gpu1:8,gpu2:8"]
    refused = call("run", *hosts, "--", "true")
    assert refused.exit_code == 2
    assert (
        "host gpu1: cannot be used: without a container jobs run on the head only, which is localhost" in refused.output
    )
    assert "taco-launch init HOST1 HOST2 --image IMAGE --to hosts.yaml" in refused.output
    dry = call("run", *hosts, "--dry-run", "--", "true")
    assert "-np 16 -H gpu1:8,gpu2:8" in dry.stdout
    assert "the network interface between the hosts is not known" in dry.stderr
    assert "-H gpu1:8" in failing("run", "-H", "gpu1", "--dry-run", "--", "true")


@pytest.mark.enable_socket
@pytest.mark.parametrize("verb", [["list"], ["run", "--", "true"], ["wait", "x"], ["logs", "-f", "x"]], ids=" ".join)
def test_a_head_that_cannot_be_reached_has_its_exit_code(tmp_path: Path, verb: list[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "cluster: c\nssh: {host_keys: accept-new}\nhosts: {gpu1: {address: 127.0.0.1, port: 1, slots: 1}}\n"
    )
    result = call("-i", str(file), *verb, env={"HOME": str(tmp_path), "TACO_LAUNCH_STATE": str(tmp_path / "state")})
    assert result.exit_code == (125 if verb[0] in ("run", "wait") else 5)
    assert "gpu1: no TCP connection to 127.0.0.1:1: Connection refused" in result.stderr
    if verb[0] in ("list", "wait"):
        result = call("-i", str(file), "-o", "json", *verb, env={"HOME": str(tmp_path)})
        error = json.loads(result.stdout)["error"]
        assert (error["kind"], error["host"], error["exit_code"]) == ("host-failed", "gpu1", result.exit_code)


@pytest.mark.parametrize("container", [True, False])
def test_the_head_is_the_inventory_s_where_there_is_a_container(
    tmp_path: Path, container: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.yaml"
    image = "container: {image: x}\n" if container else ""
    file.write_text(f"cluster: c\nhead: gpu1\n{image}hosts: {{gpu1: {{}}, gpu2: {{connection: local}}}}\n")
    specs: list[JobSpec] = []
    monkeypatch.setattr(AgentBackend, "submit", lambda _backend, spec, _environ: specs.append(spec))
    call("-i", str(file), "submit", "-H", "gpu2:1", "--", "true")
    assert [spec.head for spec in specs] == ["gpu1" if container else "gpu2"]


@pytest.mark.parametrize(
    ("declared", "asked", "seconds"),
    [("", (), 60.0), ("host_loss_timeout: 20\n", (), 20.0), ("host_loss_timeout: 20\n", ("7",), 7.0)],
)
def test_for_how_long_a_host_may_be_silent(
    tmp_path: Path, declared: str, asked: tuple[str, ...], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"cluster: c\n{declared}hosts: {{gpu1: {{slots: 1}}}}\n")
    specs: list[JobSpec] = []
    monkeypatch.setattr(AgentBackend, "submit", lambda _backend, spec, _environ: specs.append(spec))
    call("-i", str(file), "submit", *(word for value in asked for word in ("--host-loss-timeout", value)), "--", "true")
    assert [spec.policy.host_loss_timeout for spec in specs] == [seconds]


def test_options_before_or_after_the_verb() -> None:
    before = CliRunner().invoke(cli, ["--json", "inventory"])
    after = CliRunner().invoke(cli, ["inventory", "--json"])
    assert before.output == after.output
    assert json.loads(after.output)["hosts"][0]["name"] == "localhost"
    written = yaml.safe_load(CliRunner().invoke(cli, ["inventory", "-o", "yaml"]).output)
    assert written == yaml.safe_load(CliRunner().invoke(cli, ["-o", "yaml", "inventory"]).output)
    assert list(written["hosts"]) == ["localhost"]


def test_schema_takes_what_ships() -> None:
    schema = json.loads(CliRunner().invoke(cli, ["inventory", "--schema"]).output)
    assert {"cluster", "head", "hosts", "groups", "network", "container"} <= set(schema["properties"])


def test_dry_run_asks_nobody_and_leaves_nothing_behind(tmp_path: Path) -> None:
    words = ["run", "--np", "2", "-H", "gpu1:2", "--dry-run", "--profile", "ack", "--interface", "eth0", "--", "echo"]
    result = call(*words, "it's", env={"TACO_LAUNCH_STATE": str(tmp_path)})
    assert result.stdout.endswith("--mca btl '^openib' echo 'it'\"'\"'s'\n")
    assert (result.exit_code, result.stderr, list(tmp_path.iterdir())) == (0, "", [])


def test_dry_run_says_what_it_asks(taco: Taco) -> None:
    result = taco("run", "--np", "2", "--dry-run", "--", "true")
    assert result.returncode == 0
    wanted = "slots of localhost, version of mpirun, GPUs and memory access on localhost"
    assert result.stderr == f"asking the head for: {wanted}\n"


def test_a_bug_is_one_line_and_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.hosts.inventory.load.load", raiser(RuntimeError("boom")))
    result = failing("inventory", code=1)
    assert result.startswith("error: a bug in taco-launch: RuntimeError: boom\nhint: the details are in ")
    log = Path(result.rsplit(" ", 1)[1].strip())
    assert "Traceback" in log.read_text(encoding="utf-8")
    log.unlink()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("facts -i {file} gp", ["gpu1", "gpu2", "gpus"]),
        ("-i {file} facts gpu1 gp", ["gpu2", "gpus"]),
        ("-i {file} trust gpu", ["gpu1", "gpu2", "gpus"]),
        ("-i {file} run -H gpu1:8,gp", ["gpu1:8,gpu2", "gpu1:8,gpus"]),
        ("-i {file} facts --only gpu,", [f"gpu,{name}" for name in SUBJECTS if name != "gpu"]),
        ("-i {file}.none facts gp", []),
        ("facts ", ["localhost"]),
        ("run --profile a", ["ack", "auto"]),
        ("run --profile ./m", ["file:./m"]),
    ],
)
def test_completion_of_names(tmp_path: Path, words: str, offered: list[str]) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("cluster: c\nhosts: {'gpu[1-2]': {}, cpu1: {}}\ngroups: {gpus: ['gpu[1-2]']}\n")
    line = f"taco-launch {words.format(file=file)}"
    env = {"_TACO_LAUNCH_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    runner = CliRunner(env={"TACO_LAUNCH_INVENTORY": None, **env})
    result = runner.invoke(cli, [], prog_name="taco-launch", complete_var="_TACO_LAUNCH_COMPLETE")
    assert result.output.split() == [
        word.replace("file:", "file,") if ":./" in word else f"plain,{word}" for word in offered
    ]


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        *[("get", name) for name in ("nosuch", "../jobs", ".hidden", "a b", "naïve\x1b[31m")],
        *[(verb, "naïve\x1b[31m") for verb in ("logs", "wait", "stop", "delete")],
    ],
)
def test_a_job_that_is_not_there(taco: Taco, verb: str, name: str) -> None:
    result = call(verb, "--", name, env=taco.env)
    assert result.exit_code == (125 if verb == "wait" else 1)
    assert "not found" in result.stderr
    assert "\x1b" not in result.stderr


def test_a_state_folder_that_cannot_be_written(tmp_path: Path, taco: Taco) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    taco.env["TACO_LAUNCH_STATE"] = str(tmp_path / "file" / "state")
    result = taco("submit", "--np", "1", "--", "true")
    assert result.returncode == 5
    assert "Not a directory" in result.stderr
    assert "TACO_LAUNCH_STATE" in result.stderr


@pytest.mark.parametrize("is_own", [True, False])
def test_a_state_folder_that_another_user_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool) -> None:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    path = str(tmp_path / ("state/agent" if is_own else "other"))
    error = PermissionError(errno.EACCES, "Permission denied", path)
    monkeypatch.setattr("taco_launch.hosts.inventory.load.load", raiser(error))
    step = f"give this user the right to write there: ls -ld {path}, or name another folder with TACO_LAUNCH_STATE"
    hint = f"hint: {step}\n" if is_own else ""
    assert failing("inventory", code=1) == f"error: {path}: Permission denied\n{hint}"


def test_bench_parse_prints_a_table_or_why_not(tmp_path: Path) -> None:
    log = tmp_path / "log"
    good = "Model: vgg16\nBatch size: 64\nNumber of GPUs: 4\nIter #0: 205.1 img/sec per GPU\nImg/sec per GPU: 205.1 +-0.6\nTotal img/sec on 4 GPU(s): 820.5 +-2.5\n"
    log.write_text(good, encoding="ascii")
    table = call("bench", "parse", str(log))
    assert table.stdout.splitlines()[1].split() == ["4", "820.5", "205.1", "-"]
    row = json.loads(call("bench", "parse", "--json", str(log)).stdout)["rows"][0]
    assert row == {"np": 4, "img_per_sec": 820.5, "img_per_sec_per_rank": 205.125, "linear_speedup": None}
    log.write_text(good[:-30], encoding="ascii")
    cut = call("bench", "parse", str(log))
    assert (cut.exit_code, cut.stdout) == (1, "")
    assert "no sample: " in cut.stderr
    log.write_text("speed is 3\n")
    own = call("bench", "parse", str(log)).stderr
    assert "--workload FILE:NAME" in own
    assert "bench run --pattern" in own


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--pattern", "throughput"), "'throughput' must have exactly one group, which matches the number, but has 0"),
        (("--pattern", "(["), "is not a regular expression"),
        (("--unit", "it/s"), "--unit requires --pattern"),
    ],
)
def test_bench_run_refuses_a_pattern_that_finds_no_number(words: tuple[str, str], why: str) -> None:
    assert why in failing("bench", "run", "--np", "1", *words, "--", "true")


def test_output_that_cannot_be_written(taco: Taco) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(taco.argv("list"), env=taco.env, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"error: output: No space left on device\n")
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "-", *taco.argv("list")], env=taco.env, check=False)
    assert closed.returncode == 0


def test_heavy_libraries_are_imported_only_where_used() -> None:
    script = "import sys; from taco_launch.cli import main; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"yaml", "pydantic", "rich", "ClusterShell", "torch", "fabric", "matplotlib"} & set(loaded)


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(max_examples=50)
@given(
    name=words,
    hosts=words | st.from_regex(r"[a-z0-9\[\]:,-]{1,12}", fullmatch=True),
    env=words,
    inventory=st.none() | words,
    text=words,
)
def test_generated_input_is_a_plan_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, hosts: str, env: str, inventory: str | None, text: str
) -> None:
    options = [f"--name={name}", f"--host={hosts}", "-x", env]
    if inventory is not None:
        path = tmp_path_factory.mktemp("i") / "i.yaml"
        path.write_text(inventory, encoding="utf-8")
        options += ["-i", str(path)]
    result = call("run", "--dry-run", "--np", "1", *options, "--", "echo", text)
    assert result.exit_code in (0, 2, 4), result.output
    assert "Traceback" not in result.output
    assert "a bug in" not in result.output


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python3 train.py --lr 1", "train"),
        ("/usr/bin/python3 -u a/b/my_script.py", "my-script"),
        ("python -m torch.distributed.run x.py", "torch-distributed-run"),
        ("python3 -c pass", "python3"),
        ("python3", "python3"),
        ("./run.sh", "run-sh"),
        ("你好", "job"),
    ],
)
def test_a_jobs_name_tells_its_command(command: str, name: str) -> None:
    found = default_name(tuple(command.split()))
    assert found[:-5] == name
    assert re.fullmatch("-[0-9a-f]{4}", found[-5:])
    assert job_name(found)
