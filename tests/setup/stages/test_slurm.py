"""The slurm stage: plans on written facts until nothing is left to do, what is refused, its proof; and its scripts, run."""

import os
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.facts.parse import parse
from taco_launch.core.facts.text.sections import feed
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import Cpu, HostFacts, Memory, Os, SetupFile
from taco_launch.core.model.host.hosts import Host
from taco_launch.setup.files.slurm_conf import SlurmNode, node
from taco_launch.setup.model.host_files import with_made
from taco_launch.setup.model.ops import Op, PlanContext, Problem, ProofFailure, StageRun
from taco_launch.setup.plan.diff import diffs
from taco_launch.setup.plan.stage_rules import RULES, STAGES
from taco_launch.setup.plan.teardown import plan as plan_teardown
from taco_launch.setup.stages import slurm
from tests.support.host_facts import GIB, host, known
from tests.support.mesh import NAME, inventory
from tests.support.setup_scripts import SHELLS, Fakes
from tests.support.shells import SCRIPT, each_shell, run, tool
from tests.support.training import made

KEY = b"k" * 1024
GPUS = tuple(f"/dev/nvidia{number}" for number in range(8))
CONF = f"{paths.SLURM}/slurm.conf"
SETTINGS = "write slurm.conf, gres.conf, cgroup.conf"
START = "start munge, slurmctld, slurmd, now and at boot"


def facts(name: str = "gpu1", os: tuple[str, str] = ("debian", "12"), **of: Any) -> HostFacts:
    """Return a Debian with eight GPUs and no Slurm."""
    asked: dict[str, Any] = {"slurm": (("cgroup", "2"),), "devices": (*GPUS, "/dev/nvidiactl")}
    found = host(name, made=made(**{**asked, **of}))
    return replace(found, system=replace(known(found.system), os=Os(*os, " ".join(os)), package_manager="apt-get"))


def of_system(found: HostFacts, **of: Any) -> HostFacts:
    return replace(found, system=replace(known(found.system), **of))


class Hosts:
    """A cluster in the making, looked at again after every round."""

    def __init__(self, *found: HostFacts, with_head: bool = True) -> None:
        self.facts = {each.host: each for each in found or (facts("gpu1"), facts("gpu2"))}
        self.with_head = with_head

    @property
    def cluster(self) -> PlanContext:
        head = self.facts.get("gpu1")
        files = known(known(head.made).files) if head else ()
        there = any(file.path == paths.MUNGE_KEY for file in files)
        keys = {paths.MUNGE_KEY: KEY} if there else {}
        return PlanContext(inventory(), self.facts, head_files=keys, with_head=self.with_head)

    def plan(self, name: str) -> tuple[Op | Problem, ...]:
        cluster = self.cluster
        return tuple(slurm.plan(cluster.host(name), self.facts[name], cluster))

    def round(self) -> dict[str, list[str]]:
        """Apply all plans; return the names of the operations."""
        plans = {name: self.plan(name) for name in self.facts}
        for name, items in plans.items():
            for op in items:
                assert isinstance(op, Op), op
                self.facts[name] = op.expect(self.facts[name])
                if op.name.startswith("install") or "make it" in op.name:  # the package of munge makes one
                    own = SetupFile(paths.MUNGE_KEY, sha256(KEY if name == "gpu1" else b"own").hexdigest(), 0o400)
                    self.facts[name] = with_made(self.facts[name], (own,))
        return {name: [op.name for op in items if isinstance(op, Op)] for name, items in plans.items() if items}

    def converge(self) -> list[dict[str, list[str]]]:
        rounds = []
        while any(self.plan(name) for name in self.facts):
            rounds.append(self.round())
            assert len(rounds) < 4
        return rounds


def problem(hosts: Hosts, name: str = "gpu1") -> Problem:
    (only,) = hosts.plan(name)
    assert isinstance(only, Problem)
    assert only.stage == "slurm"
    assert only.hint
    return only


def test_it_runs_only_where_it_is_named() -> None:
    assert "slurm" in RULES
    assert "slurm" not in STAGES
    assert [name for name, rules in RULES.items() if rules.optional] == ["slurm"]


def test_bare_hosts_get_all_of_it_and_then_there_is_nothing_to_do() -> None:
    hosts = Hosts()
    assert hosts.converge() == [
        {
            "gpu1": [
                "install munge, slurmctld, slurmd, slurm-client, dbus, python3 (distribution)",
                SETTINGS,
                "munge.key: make it",
            ],
            "gpu2": ["install munge, slurmd, slurm-client, dbus, python3 (distribution)", SETTINGS],
        },
        {"gpu1": [START], "gpu2": ["munge.key: copy it", "start munge, slurmd, now and at boot"]},
    ]
    assert hosts.plan("gpu1") == hosts.plan("gpu2") == ()


def test_all_hosts_have_the_same_settings_which_name_their_hardware() -> None:
    hosts = Hosts()
    files = [
        {file.path: file.data for op in hosts.plan(name) for file in getattr(op, "files", ())} for name in hosts.facts
    ]
    assert files[0] == files[1]
    text = files[0][CONF].decode()
    assert text.startswith(f"# by taco-launch setup, cluster {NAME}\n")
    lines = text.splitlines()
    assert "SlurmctldHost=gpu1(10.0.0.1)" in lines
    assert "ProctrackType=proctrack/cgroup" in lines
    assert (
        "NodeName=gpu2 NodeHostname=gpu2 NodeAddr=10.0.0.2 CPUs=96 Sockets=2 CoresPerSocket=24 ThreadsPerCore=2 "
        "RealMemory=1032192 Gres=gpu:8 State=UNKNOWN"
    ) in lines
    gres = files[0][f"{paths.SLURM}/gres.conf"].decode()
    assert "AutoDetect=off\n" in gres
    assert f"NodeName=gpu1 Name=gpu File={','.join(GPUS)}\n" in gres


def test_one_host_without_control_groups_of_version_2_decides_for_all() -> None:
    hosts = Hosts(facts("gpu1"), facts("gpu2", slurm=()))
    text = b"".join(file.data for op in hosts.plan("gpu1") for file in getattr(op, "files", ()))
    assert b"ProctrackType=proctrack/linuxproc\n" in text
    assert b"task/cgroup" not in text


def test_a_host_without_gpus_has_none_in_slurm() -> None:
    one = Host("gpu1", "10.0.0.1", gpus="none")
    found = node(one, facts(), "10.0.0.1")
    assert isinstance(found, SlurmNode)
    assert found.devices == ()
    assert "Gres" not in found.hardware


def test_odd_processors_are_told_by_their_number_alone() -> None:
    found = node(
        Host("gpu1", "a"), of_system(facts(), cpu=Cpu("x", 2, 3, 6), memory=Memory(GIB // 8, GIB // 8, 0)), "10.0.0.1"
    )
    assert isinstance(found, SlurmNode)
    assert found.hardware == "CPUs=6 RealMemory=128 Gres=gpu:8"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (of_system(facts(), cpu=Unknown("x")), "processors or memory"),
        (replace(facts(), system=Unknown("x")), "its system is not known"),
        (replace(facts(), gpu=Unknown("nvidia-smi hangs")), "nvidia-smi hangs"),
        (facts(devices=GPUS[:7]), "8 GPUs, but 7 device files"),
    ],
)
def test_what_slurm_has_to_know_is_never_guessed(found: HostFacts, why: str) -> None:
    text = node(Host("gpu1", "10.0.0.1"), found, "10.0.0.1")
    assert isinstance(text, str)
    assert why in text
    assert "address" in str(node(Host("gpu1", "a"), facts(), Unknown("two routes")))


def test_a_host_that_does_not_answer_keeps_the_settings_from_being_written() -> None:
    hosts = Hosts(facts("gpu1"))
    first, second = hosts.plan("gpu1")
    assert isinstance(first, Op)
    assert isinstance(second, Problem)
    assert "gpu2: it does not answer" in second.message


@pytest.mark.parametrize(
    ("owner", "told"), [("-", f"{CONF} was not written by set-up"), ("other", f"{CONF} is of cluster other")]
)
def test_the_settings_of_another_are_never_overwritten(owner: str, told: str) -> None:
    refused = problem(Hosts(facts("gpu1", slurm=((CONF, owner),)), facts("gpu2")))
    assert told in refused.message


@pytest.mark.parametrize(
    ("os", "fits"),
    [(("ubuntu", "24.04"), True), (("debian", "13"), True), (("ubuntu", "22.04"), False), (("rocky", "9.4"), False)],
)
def test_distributions_whose_slurm_is_too_old_or_unknown_are_refused(os: tuple[str, str], fits: bool) -> None:
    first = Hosts(facts("gpu1", os), facts("gpu2")).plan("gpu1")[0]
    assert isinstance(first, Op) == fits
    if isinstance(first, Problem):
        assert " ".join(os) in first.message
        assert "epel" in first.hint


def test_a_slurm_that_was_installed_by_hand_is_configured_on_any_distribution() -> None:
    units = tuple((f"{unit}.service", "disabled inactive") for unit in ("munge", "slurmctld", "slurmd"))
    hosts = Hosts(*(facts(name, ("rocky", "9.4"), slurm=units) for name in ("gpu1", "gpu2")))
    assert hosts.plan("gpu1")[-1] == hosts.plan("gpu1")[1]
    assert hosts.converge()[0]["gpu1"] == [SETTINGS, "munge.key: make it"]


def test_a_host_without_systemd_is_refused() -> None:
    assert "not systemd" in problem(Hosts(of_system(facts(), init="sh"), facts("gpu2"))).message
    assert "cannot be read" in problem(Hosts(replace(facts(), system=Unknown("x")), facts("gpu2"))).message
    assert problem(Hosts(facts(slurm=Unknown("x")), facts("gpu2")))


def test_the_head_comes_first() -> None:
    hosts = Hosts(facts("gpu1"), facts("gpu2"), with_head=False)
    refused = hosts.plan("gpu2")[-1]
    assert isinstance(refused, Problem)
    assert "setup --only slurm -H gpu1" in refused.hint


def test_the_key_is_in_no_plan_that_is_shown() -> None:
    hosts = Hosts()
    hosts.round()
    (copied, _start) = hosts.plan("gpu2")
    assert isinstance(copied, Op)
    assert diffs([copied], {}) == (f"--- {paths.MUNGE_KEY}\n+++ {paths.MUNGE_KEY}\n(secret, not shown)\n",)
    shown = repr((copied, hosts.cluster))
    assert "kkkk" not in shown
    assert all("kkkk" not in word for word in (copied.name, copied.why, *copied.args))


def test_services_start_again_only_if_they_stopped_or_their_settings_or_key_changed() -> None:
    hosts = Hosts()
    hosts.converge()
    before = hosts.facts["gpu2"]
    state = known(before.made)
    hosts.facts["gpu2"] = replace(
        before,
        made=replace(
            state, slurm=(("cgroup", "2"), ("munge.service", "enabled active"), ("slurmd.service", "enabled failed"))
        ),
    )
    (op,) = hosts.plan("gpu2")
    assert isinstance(op, Op)
    assert op.why == "not running, or not at boot: slurmd"
    hosts.facts["gpu2"] = of_system(before, cpu=Cpu("x", 1, 4, 4))
    assert [[op.name for op in hosts.plan(name) if isinstance(op, Op)] for name in ("gpu1", "gpu2")] == [
        ["write slurm.conf", START],
        ["write slurm.conf", "start munge, slurmd, now and at boot"],
    ]


# --- proof ------------------------------------------------------------------------------------------------------------


def proved(stdout: str, code: int = 0, stderr: str = "", hosts: Hosts | None = None) -> tuple[ProofFailure, ...]:
    """Prove a cluster that is set up, of which Slurm tells this."""
    if hosts is None:
        hosts = Hosts()
        hosts.converge()
        owned = [(path, NAME) for path in (CONF,)]
        for name, each in hosts.facts.items():
            state = known(each.made)
            hosts.facts[name] = replace(each, made=replace(state, slurm=(*known(state.slurm), *owned)))
    nothing: Any = None

    def ask(name: str, command: Command) -> Result:
        assert name == "gpu1"
        assert command.argv[-2:] == ("gpu1", "gpu2")
        return Result(name, command, code, stdout.encode(), stderr.encode(), 0.1)

    names = tuple(hosts.facts)
    return slurm.prove(
        StageRun(
            hosts.cluster,
            names,
            names,
            pull=False,
            is_applied=True,
            read_image=nothing,
            ask_registry=nothing,
            send_image=nothing,
            compare_gpus=nothing,
            run=ask,
        )
    )


def test_a_slurm_that_works_is_proved() -> None:
    assert proved("gpu1 idle\ngpu2 idle\nran gpu1\nran gpu2\n") == ()
    assert proved("gpu1 mixed\ngpu2 allocated\n") == ()


@pytest.mark.parametrize(
    ("stdout", "stderr", "hosts", "evidence"),
    [
        ("gpu1 idle\ngpu2 down*\nran gpu1\n", "", ("gpu2",), "gpu2: down*"),
        ("gpu1 idle\ngpu2 idle*\nran gpu1\n", "", ("gpu2",), "gpu2: idle*"),
        ("gpu1 idle\n", "", ("gpu2",), "gpu2: unknown"),
        ("", "sinfo: error: no slurmctld\n", ("gpu1", "gpu2"), "sinfo: error: no slurmctld"),
        ("gpu1 idle\ngpu2 idle\nran gpu1\n", "srun: error: timed out\n", ("gpu2",), "srun: error: timed out"),
    ],
)
def test_what_is_wrong_is_told(stdout: str, stderr: str, hosts: tuple[str, ...], evidence: str) -> None:
    (failure,) = proved(stdout, 1, stderr)
    assert failure.hosts == hosts
    assert failure.evidence == evidence
    assert failure.hint


def test_hosts_that_are_not_set_up_are_not_asked() -> None:
    assert proved("", hosts=Hosts()) == ()


def test_hosts_that_are_not_set_up_now_have_to_get_the_new_settings() -> None:
    hosts = Hosts()
    hosts.converge()
    hosts.facts["gpu1"] = of_system(hosts.facts["gpu1"], cpu=Cpu("x", 1, 4, 4))
    hosts.facts["gpu1"] = slurm_op(hosts, "gpu1").expect(hosts.facts["gpu1"])
    nothing: Any = None
    run_of = StageRun(hosts.cluster, ("gpu1",), ("gpu1",), False, True, nothing, nothing, nothing, nothing, nothing)
    (failure,) = slurm.prove_same(run_of)
    assert failure.hosts == ("gpu2",)
    assert "setup --only slurm" in failure.hint
    assert slurm.prove_same(replace(run_of, is_applied=False)) == ()
    hosts.facts["gpu2"] = slurm_op(hosts, "gpu2").expect(hosts.facts["gpu2"])
    assert slurm.prove_same(replace(run_of, cluster=hosts.cluster)) == ()


def slurm_op(hosts: Hosts, name: str) -> Op:
    first = hosts.plan(name)[0]
    assert isinstance(first, Op)
    return first


# --- teardown ---------------------------------------------------------------------------------------------------------


def test_teardown_removes_what_is_of_this_cluster() -> None:
    found = facts(slurm=((CONF, NAME), (f"{paths.SLURM}/gres.conf", "-"), ("slurmd.service", "enabled active")))
    (op,) = plan_teardown(found, NAME, None, "", RULES)
    assert isinstance(op, Op)
    assert op.args == (paths.SLURM_MARK, "/var/lib/slurm/slurmctld/clustername", CONF)
    assert list(plan_teardown(found, "other", None, "", RULES)) == []
    assert list(plan_teardown(facts(slurm=Absent()), NAME, None, "", RULES)) == []


# --- scripts ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=SHELLS)
def fakes(tmp_path: Path, request: pytest.FixtureRequest) -> Fakes:
    """Programs of systemd that do nothing, and a user for all."""
    made_here = Fakes(tmp_path / "bin", request.param)
    for name in ("systemctl", "journalctl", "chown", "sleep", "pgrep"):
        made_here.make(name)
    made_here.make("install", f'for last; do :; done; mkdir -p "{tmp_path}$last"')
    return made_here


def test_services_are_enabled_and_started_and_then_marked(fakes: Fakes, tmp_path: Path) -> None:
    mark = tmp_path / "state" / "slurm"
    done = fakes.run("slurm_start.sh", str(mark), "abc", "munge", "slurmd")
    assert done.returncode == 0, done.stderr
    assert mark.read_text() == "abc"
    assert mark.stat().st_mode & 0o777 == 0o600
    calls = [call for call in fakes.calls if call.startswith("systemctl")]
    assert calls[:4] == [
        "systemctl enable --quiet munge",
        "systemctl restart munge",
        "systemctl enable --quiet slurmd",
        "systemctl restart slurmd",
    ]


def test_a_service_that_ends_is_told_in_its_own_words_and_leaves_no_mark(fakes: Fakes, tmp_path: Path) -> None:
    fakes.make("systemctl", '[ "$1" != is-active ] || [ "$3" = munge ]')
    fakes.make("journalctl", "printf '%s\\n' 'fatal: unable to read gres.conf' 'slurmd.service: Failed'")
    mark = tmp_path / "mark"
    mark.write_text("old")
    done = fakes.run("slurm_start.sh", str(mark), "abc", "munge", "slurmd")
    assert done.returncode == 1
    assert (
        done.stderr
        == "error: slurmd has ended: fatal: unable to read gres.conf\nhint: on the host: journalctl -u slurmd\n"
    )
    assert not mark.exists()


def test_a_key_is_made_once_and_replaced_by_that_of_the_head(fakes: Fakes, tmp_path: Path) -> None:
    key, new = tmp_path / "munge.key", tmp_path / "new"
    assert fakes.run("slurm_key.sh", str(key)).returncode == 0
    first = key.read_bytes()
    assert len(first) == 1024
    assert key.stat().st_mode & 0o777 == 0o400
    assert fakes.run("slurm_key.sh", str(key)).returncode == 0
    assert key.read_bytes() == first
    new.write_bytes(KEY)
    done = fakes.run("slurm_key.sh", str(key), str(new))
    assert (done.returncode, done.stdout, key.read_bytes(), new.exists()) == (0, "", KEY, False)
    assert f"chown munge:munge {new}" in fakes.calls


def test_teardown_stops_services_and_waits_for_jobs(fakes: Fakes, tmp_path: Path) -> None:
    file = tmp_path / "slurm.conf"
    file.write_text("x")
    fakes.make("pgrep", "echo 17")
    done = fakes.run("slurm_removal.sh", str(tmp_path / "mark"), str(file))
    assert done.returncode == 1
    assert "a job of Slurm runs" in done.stderr
    assert file.exists()
    fakes.make("pgrep", "exit 1")
    assert fakes.run("slurm_removal.sh", str(tmp_path / "mark"), str(file)).returncode == 0
    assert not file.exists()
    assert "systemctl disable --now --quiet slurmctld" in fakes.calls


def test_the_proof_waits_for_nodes_and_starts_a_process_on_each_that_is_idle(fakes: Fakes, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    fakes.make("sinfo", f'state=unknown; [ ! -e {seen} ] || state=idle; touch {seen}; echo "a $state"; echo "b mixed"')
    fakes.make("srun", "echo ran a")
    done = fakes.run("slurm_proof.sh", "4", "a", "b")
    assert (done.returncode, done.stdout) == (0, "a idle\nb mixed\nran a\n")
    (call,) = (call for call in fakes.calls if call.startswith("srun"))
    assert "--nodelist=a --nodes=1 --ntasks=1" in call


# --- facts ------------------------------------------------------------------------------------------------------------


@each_shell
def test_the_probe_reads_services_and_whose_settings_they_are(shell: tuple[str, ...], tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "slurm.conf").write_text("# by taco-launch setup, cluster a-b.c_d\nClusterName=x\n")
    (etc / "gres.conf").write_text("# by hand\n")
    script = feed(SCRIPT.replace(b"state=/var/lib/taco-launch\n", b"state=/no/such/folder\n"), cluster="c")
    script = script.replace(b'"/etc/slurm/$each.conf"', f'"{etc}/$each.conf"'.encode())
    for name in ("munge", "slurmd"):
        tool(tmp_path, name, "")
    tool(tmp_path, "systemctl", '[ "$1" = is-enabled ] && echo disabled || { echo inactive; exit 3; }')
    answer = run(shell, "made", script=script, path=f"{tmp_path}:{os.environ['PATH']}").stdout
    state = dict(known(known(parse("here", answer, time.time(), time.time()).made).slurm))
    assert state["munge.service"] == state["slurmd.service"] == "disabled inactive"
    assert state[CONF] == "a-b.c_d"
    assert state[f"{paths.SLURM}/gres.conf"] == "-"
    assert ("cgroup" in state) == Path("/sys/fs/cgroup/cgroup.controllers").exists()
    odd = parse("here", answer.replace(b"disabled inactive", b"$(id)"), time.time(), time.time()).made
    assert isinstance(known(odd).slurm, Unknown)
