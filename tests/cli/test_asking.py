"""What `run` and `submit` ask for: flags, a job file under them, and the JobSpec that the head is sent."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.cli.main import cli
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import CleanUp, JobRecord, JobSpec, JobState, Policy, Restart
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.calls.jobs import Accepted, JobReply
from taco_launch.core.protocol.calls.jobs import Submit as Submit_
from taco_launch.hosts.inventory.durations import MOST_SECONDS, parse_duration
from taco_launch.jobs.backend.agent_client import AgentClient
from tests.support.command_line import call, failing
from tests.support.paths import TESTS

Submit = Callable[..., tuple[JobSpec, Result]]

CLUSTER = """
cluster: c
hosts: {"gpu[1-4]": {slots: 8}}
groups: {nightly: [gpu2, gpu3]}
container: {image: "registry/taco:1"}
network: {interface: eth0, rdma: off}
host_loss_timeout: 45
versions: {openmpi: "4.1.4", nccl: "2.18.3", horovod: "0.28.1"}
"""
JOB = """
name: vgg16
command: python3 train.py --epochs 10
np: 16
env: {OMP_NUM_THREADS: 4, LEVEL: low}
knobs: {NCCL_DEBUG: info}
mca: {btl_tcp_if_include: eth0}
transport: tcp
light: true
runPolicy:
  cleanPodPolicy: All
  ttlSecondsAfterFinished: 2d
  activeDeadlineSeconds: 3600
  backoffLimit: 3
  restartPolicy: ExitCode
  gracePeriodSeconds: 5
  schedulingPolicy: {queue: night, priority: 10, scheduleTimeoutSeconds: 15m}
"""
OF_FILE = Policy(
    grace=5,
    timeout=3600,
    host_loss_timeout=45,
    queue="night",
    priority=10,
    queue_timeout=900,
    clean_up=CleanUp.ALL,
    restart=Restart.EXIT_CODE,
    backoff_limit=3,
    ttl=172800,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    (tmp_path / "job.yaml").write_text(JOB)
    return file


@pytest.fixture
def submit(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """Submit to a head that takes everything; gives the spec that it was sent, and what the command line said."""

    def answer(_head: AgentClient, request: Request) -> list[Reply]:
        assert isinstance(request, Submit_)
        read = Submit_.from_wire(request.to_wire())
        sent.append(read.spec)
        return [Accepted(name="it"), JobReply(job=JobView(read.spec, JobRecord("id", JobState.QUEUED), "/f"))]

    sent: list[JobSpec] = []
    monkeypatch.setattr(AgentClient, "call", answer)
    monkeypatch.chdir(cluster.parent)

    def submitted(*words: str, stdin: str | None = None) -> tuple[JobSpec, Result]:
        result = CliRunner(env={"TACO_LAUNCH_INVENTORY": None}).invoke(
            cli, ["-i", str(cluster), "submit", *words], input=stdin
        )
        assert result.exit_code == 0, result.output
        return sent.pop(), result

    return submitted


PLAIN = Policy(host_loss_timeout=45)


@pytest.mark.parametrize(
    ("flags", "policy"),
    [
        ("", PLAIN),
        ("--queue night --priority -5", replace(PLAIN, queue="night", priority=-5)),
        ("--queue-timeout 3h", replace(PLAIN, queue_timeout=10800)),
        ("--no-wait", replace(PLAIN, queue_timeout=0)),
        ("--no-wait --queue-timeout 0", replace(PLAIN, queue_timeout=0)),
        ("--clean-up none --ttl 2d", replace(PLAIN, clean_up=CleanUp.NONE, ttl=172800)),
        ("--timeout 15m --grace 0 --host-loss-timeout 90s", Policy(grace=0, timeout=900, host_loss_timeout=90)),
        ("--stall-timeout 20m", replace(PLAIN, stall_timeout=1200)),
        ("--notify https://h/x", replace(PLAIN, notify="https://h/x")),
        ("--silence-timeout 20m", replace(PLAIN, silence_timeout=1200)),
        ("--backoff-limit 3", replace(PLAIN, restart=Restart.ON_FAILURE, backoff_limit=3)),
        ("--backoff-limit 0", PLAIN),
        ("--restart exit-code", replace(PLAIN, restart=Restart.EXIT_CODE, backoff_limit=6)),
        (
            "--restart exit-code --backoff-limit 1 --backoff 1.5",
            replace(PLAIN, restart=Restart.EXIT_CODE, backoff_limit=1, backoff=1.5),
        ),
        ("--restart never", PLAIN),
        ("--suspend --log-max-bytes 4096", replace(PLAIN, suspend=True, log_max_bytes=4096)),
        ("--agent-log", replace(PLAIN, agent_log=True)),
        ("--strict", replace(PLAIN, strict=True)),
    ],
)
def test_flags_become_the_policy(flags: str, policy: Policy, submit: Submit) -> None:
    spec, _result = submit(*flags.split(), "--", "true")
    assert replace(spec.policy, typed="") == policy


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--no-wait --queue-timeout 3h", "--no-wait and --queue-timeout: a job either waits or does not"),
        ("--no-wait --suspend", "--no-wait and --suspend: a job either waits or does not"),
        ("--restart never --backoff-limit 3", "--backoff-limit and --restart never: the job is never tried again"),
        ("--backoff 5s", "--backoff: the job is never tried again"),
        ("--queue night/1", "--queue: 'night/1': is not a queue name"),
        ("--hosts 0", "0 is not in the range 1<=x<=1000000"),
        ("--priority high", "'high' is not a valid whole number"),
        ("--ttl 2w", "'2w': must be seconds, or a number and s, m, h or d: 90, 90s, 15m, 3h, 2d"),
        ("--ttl -1", "'-1': must be seconds"),
        ("--timeout 0", "'0': must be at least 0.001s"),
        ("--host-loss-timeout 0s", "'0s': must be at least 1s"),
        ("--restart ever", "'ever' is not one of 'never', 'on-failure', 'exit-code', 'always'"),
        ("-f nosuch.yaml", "error: -f: file not found: nosuch.yaml"),
    ],
)
def test_what_cannot_be_asked_for(flags: str, said: str, cluster: Path) -> None:
    assert said in failing("-i", str(cluster), "submit", *flags.split(), "--", "true")


@pytest.mark.parametrize("verb", ["run", "submit", "bench run --np 1"])
def test_without_a_command(verb: str, cluster: Path) -> None:
    assert "The command is missing: add -- COMMAND" in failing("-i", str(cluster), *verb.split())


@pytest.mark.parametrize("verb", ["run", "submit", "run --dry-run"])
def test_a_line_in_quotes(verb: str, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = failing("-i", str(cluster), *verb.split(), "--name", "q", "python3 -c 'print(1)' --epochs 10")
    assert "no program has the name \"python3 -c 'print(1)' --epochs 10\"\nhint: the quotes make it one word" in result
    assert "remove them, or use sh -c '...'" in result
    cluster.with_name("my tool").touch()
    monkeypatch.chdir(cluster.parent)
    assert call("-i", str(cluster), "run", "--dry-run", "my tool").exit_code == 0


@pytest.mark.parametrize(
    ("name", "mode", "hint"),
    [
        ("ddp.py", 0o755, "write python3 ddp.py, or ./ddp.py\n"),
        ("ddp.py", 0o644, "write python3 ddp.py\n"),
        ("tool", 0o755, "write ./tool\n"),
    ],
)
def test_a_file_without_a_path_is_no_program(
    name: str, mode: int, hint: str, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_name(name).touch(mode)
    monkeypatch.chdir(cluster.parent)
    told = failing("run", "--dry-run", "--np", "1", "--", name)
    assert f"{name} is a file in this folder, not a program on PATH\nhint: {hint}" in told
    remote = call("-i", str(cluster), "run", "--dry-run", "--", name)
    assert "not a program on PATH" not in remote.output, "the hosts may have it on theirs"
    assert "not a program on PATH" not in call("run", "--dry-run", "--np", "1", "--", f"./{name}").output


def test_each_value_is_used_in_the_command(cluster: Path) -> None:
    words = ("-i", str(cluster), "submit", "--each", "lr=1,2", "--np", "1", "--")
    for command, warned in (("train --lr {LR}", True), ("sh -c 'train --lr $lr'", False), ("train {lr}", False)):
        assert ("{lr} is not in the command" in call(*words, *shlex.split(command)).stderr) is warned


def test_a_file_is_a_whole_job(submit: Submit) -> None:
    spec, result = submit("-f", "job.yaml")
    assert result.stdout == "vgg16\n"
    assert (spec.name, spec.command, spec.np) == (
        "vgg16",
        ("python3", "-m", "taco_launch.light", "train.py", "--epochs", "10"),
        16,
    )
    assert spec.env == (("OMP_NUM_THREADS", "4"), ("LEVEL", "low"), ("NCCL_DEBUG", "INFO"))
    assert spec.mca == (("btl_tcp_if_include", "eth0"),)
    assert (spec.asked.transport, spec.asked.light) == ("tcp", True)
    assert spec.policy == OF_FILE


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        ("--name b -- other 1", {"name": "b", "command": ("other", "1")}),
        ("--hosts 2", {"np": None, "host_count": 2}),
        ("--slots-per-host 2", {"np": None, "slots_per_host": 2}),
        ("--grace 0 --no-wait", {"policy": replace(OF_FILE, grace=0, queue_timeout=0)}),
        ("--suspend", {"policy": replace(OF_FILE, suspend=True)}),
        ("--restart never", {"policy": replace(OF_FILE, restart=Restart.NEVER, backoff_limit=0)}),
        ("--backoff-limit 1", {"policy": replace(OF_FILE, backoff_limit=1)}),
        ("--clean-up running", {"policy": replace(OF_FILE, clean_up=CleanUp.RUNNING)}),
        ("-x LEVEL=high", {"env": (("OMP_NUM_THREADS", "4"), ("LEVEL", "high"), ("NCCL_DEBUG", "INFO"))}),
        ("-x NCCL_DEBUG=WARN", {"env": (("OMP_NUM_THREADS", "4"), ("LEVEL", "low"), ("NCCL_DEBUG", "WARN"))}),
        ("--mca btl_tcp_if_include eth1", {"mca": (("btl_tcp_if_include", "eth1"),)}),
    ],
)
def test_the_command_line_goes_before_the_file(flags: str, changed: dict[str, Any], submit: Submit) -> None:
    alone, _ = submit("-f", "job.yaml")
    spec, _ = submit("-f", "job.yaml", *flags.split())
    expected = replace(alone, **changed)
    assert replace(spec, env=tuple(sorted(spec.env))) == replace(expected, env=tuple(sorted(expected.env)))


def test_what_a_flag_turns_off(submit: Submit) -> None:
    spec, _ = submit("-f", "job.yaml", "--no-light", "--transport", "auto")
    assert (spec.asked.light, spec.asked.transport) == (False, "auto")


def test_a_file_that_does_not_wait_is_suspended(submit: Submit) -> None:
    file = "command: x\nrunPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 0}}\n"
    assert submit("-f", "-", stdin=file)[0].policy.queue_timeout == 0
    assert submit("-f", "-", "--suspend", stdin=file)[0].policy == replace(PLAIN, suspend=True)


def test_a_file_that_never_restarts_under_a_limit(submit: Submit) -> None:
    spec, _ = submit("-f", "-", "--backoff-limit", "2", stdin="command: x\nrunPolicy: {restartPolicy: Never}\n")
    assert (spec.policy.restart, spec.policy.backoff_limit) == (Restart.ON_FAILURE, 2)


def test_hosts_of_a_file_and_a_group(submit: Submit) -> None:
    spec, _ = submit("-f", "-", stdin="command: x\nhost: gpu4,nightly:4\nhosts: 2\nslotsPerHost: 4\n")
    assert [(host.name, host.slots) for host in spec.hosts] == [("gpu4", 8), ("gpu2", 4), ("gpu3", 4)]
    assert (spec.np, spec.host_count, spec.slots_per_host) == (None, 2, 4)
    spec, _ = submit("-f", "-", "--hosts", "3", stdin="command: x\nhosts: 2\nslotsPerHost: 4\n")
    assert (spec.host_count, spec.slots_per_host) == (3, 4)
    spec, _ = submit("-f", "-", "--np", "3", stdin="command: x\nhosts: 2\nslotsPerHost: 4\n")
    assert (spec.np, spec.host_count, spec.slots_per_host) == (3, None, None)


def test_a_profile_lies_beside_its_file(submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text('profile: mine\nabout: a\noptions: [{add: "-np {np}", why: x}]\n')
    (tmp_path / "with.yaml").write_text("command: x\nprofile: mine.yaml\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    spec, _ = submit("-f", "../with.yaml")
    assert spec.profile.name == "mine"


def test_an_mpijob(submit: Submit) -> None:
    guide = TESTS / "jobs/documents/cases" / "good_mpijob_of_the_guide.yaml"
    spec, result = submit("-f", str(guide), "--image", "registry/taco:1")
    assert spec.command[:2] == ("python", "scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py")
    assert (spec.name, spec.np, spec.slots_per_worker) == ("tensorflow-benchmarks", 2, 2)
    assert re.search(
        r"good_mpijob_of_the_guide\.yaml: not used here:\n  mpirun's --allow-run-as-root: taco-launch adds it where it is needed\n  mpirun's -bind-to none: the profile decides it\n",
        result.stderr,
    )


def test_an_mpijob_keeps_the_number_of_ranks_of_its_line(submit: Submit, cluster: Path) -> None:
    guide = str(TESTS / "jobs/documents/cases" / "good_mpijob_of_the_guide.yaml")
    image = ("--image", "registry/taco:1")
    for size, options, makes in (
        (("--hosts", "1", "--slots-per-host", "1"), "--hosts and --slots-per-host", "only 1 with {}"),
        (("--workers", "1", "--slots-per-worker", "1"), "--workers and --slots-per-worker", "only 1 with {}"),
        (("--hosts", "1"), "--hosts", "{} alone does not set their number"),
    ):
        refused = failing("-i", str(cluster), "submit", "-f", guide, *image, *size)
        assert f"the mpirun line of the file starts 2 ranks: {makes.format(options)}\n" in refused
        assert f"hint: omit {options} to keep 2, or give --np N instead" in refused
    assert submit("-f", guide, *image, "--np", "1")[0].np == 1
    assert submit("-f", guide, *image, "--hosts", "2", "--slots-per-host", "1")[0].host_count == 2
    both = call("-i", str(cluster), "submit", "--gpus", "2", "--slots-per-worker", "2", "--", "x")
    assert "--gpus and --slots-per-worker: each sets how many ranks there are" in both.stderr


def test_the_image_that_a_file_wants(submit: Submit, cluster: Path) -> None:
    submit("-f", "-", stdin="command: x\nimage: registry/taco:1\n")
    other = cluster.with_name("other.yaml")
    other.write_text("command: x\nimage: registry/taco:2\nworkerImage: registry/taco:3\n")
    wrong = failing("-i", str(cluster), "submit", "-f", str(other))
    assert "--worker-image: registry/taco:3: all ranks of a job run in one image, which is registry/taco:2" in wrong
    none = failing("run", "-f", str(other), "--worker-image", "registry/taco:2")
    assert "--image: requires a container, and the inventory has none: the job would run directly on the hosts" in none


def test_a_suspended_job_is_not_followed(cluster: Path) -> None:
    file = cluster.with_name("suspended.yaml")
    file.write_text("command: x\nrunPolicy: {suspend: true}\n")
    result = failing("-i", str(cluster), "run", "-f", str(file))
    assert "a suspended job has no output to follow\nhint: start it with submit instead of run" in result


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--hosts 2 --slots-per-host 4", "-np 8 -H gpu1:4,gpu2:4"),
        ("--hosts 2", "-np 16 -H gpu1:8,gpu2:8"),
        ("-H nightly:2 --slots-per-host 1", "-np 2 -H gpu2:1,gpu3:1"),
        ("-H gpu4,nightly --np 10", "-np 10 -H gpu4:8,gpu2:2"),
        ("-f job.yaml --np 3", "-np 3 -H gpu1:3"),
    ],
)
def test_the_line_of_a_dry_run(flags: str, line: str, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cluster.parent)
    result = call("-i", str(cluster), "run", "--dry-run", *flags.split(), "--", "true")
    assert f"mpirun {line} " in result.stdout, result.output


def test_who_says_how_many_ranks_there_are(cluster: Path) -> None:
    result = call(
        "-i", str(cluster), *["run", "--dry-run", "--explain", "--hosts", "2", "--slots-per-host", "8", "--", "true"]
    )
    assert re.search(r"^16 +user +one process per rank; --hosts x --slots-per-host$", result.stdout, re.MULTILINE)


@given(st.floats(0, MOST_SECONDS / 86400, allow_nan=False).map(lambda number: round(number, 3)))
def test_durations(number: float) -> None:
    for unit, seconds in (("", 1), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400)):
        assert parse_duration(f"{number:.3f}{unit}") == pytest.approx(number * seconds)


@given(st.text(st.characters(codec="ascii"), max_size=8) | st.sampled_from(["90S", "1 h", "-1", "inf", "nan", "1e3"]))
def test_what_is_no_duration(text: str) -> None:
    if re.fullmatch(r"\d+(\.\d+)?[smhd]?", text) and text.isascii():
        return
    with pytest.raises(ValueError, match="must be"):
        parse_duration(text)
