"""The plans of jobs without mpirun: the same decisions, a command on each host, every rank once."""

import shlex
from dataclasses import replace
from string import Template
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import UsageError
from taco_launch.core.launch.command_line.env import VISIBLE_GPUS, local_env, rank_env
from taco_launch.core.launch.command_line.separator import unescape
from taco_launch.core.launch.plan import line, own_ports, plan, processes
from taco_launch.core.model.host.hosts import Host, Network
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import LaunchPlan, Placement, Share
from tests.support.fleet import roce, with_hcas
from tests.support.planned import AUTO, FAR, PROFILES, told

START = ("/py", "-I", "-S", "/agent.pyz", "start", "/job", "--")
RANK = ("/py", "-I", "-S", "/agent.pyz", "rank", "/job", "--")
UNEQUAL = Placement((Share("gpu2", 3), Share("gpu1", 1)), "so")
FACTS = JobFacts(root=False, openmpi="4.1.4")
COMMAND = ("python3", "train.py", "--lr", ":", "a b")


def spec(launcher: str, **fields: Any) -> JobSpec:
    given = {
        "name": "j",
        "command": COMMAND,
        "hosts": FAR,
        "head": "gpu1",
        "profile": AUTO,
        "network": Network("bond0"),
    }
    return JobSpec(**{**given, "launcher": launcher, **fields})


def made(job: JobSpec, placement: Placement = UNEQUAL, facts: JobFacts = FACTS) -> LaunchPlan:
    wrapper = START if job.launcher == "env" else RANK
    return plan(job, "id1", processes(job, placement), facts, wrapper, "", (*own_ports(job), 4242)[0])


def variables(words: tuple[str, ...]) -> dict[str, str]:
    """Return what env(1) sets before a command."""
    assert words[0] == "env"
    found = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not equals:
            break
        assert name not in found
        found[name] = value
    return found


def test_torchrun_on_each_host() -> None:
    for number, (command, ranks) in enumerate(zip(made(spec("torchrun")).commands, (3, 1), strict=True)):
        assert command.host == UNEQUAL.shares[number].host
        options = (
            *("torchrun", "--nnodes", "2", "--nproc_per_node", str(ranks), "--node_rank", str(number)),
            *("--master_addr", "10.0.0.2", "--master_port", "4242", "--max_restarts", "0", "--monitor_interval", "1"),
            "--no_python",
        )
        assert command.argv[: len(options) + len(RANK)] == (*options, *RANK)
        assert tuple(map(unescape, command.argv[len(options) + len(RANK) :])) == COMMAND
        (words,) = command.lines
        assert words[len(variables(words)) + 1 :] == (*options, *COMMAND)
    assert [command.ranks for command in made(spec("torchrun")).commands] == [(0, 1, 2), (3,)]


def test_the_user_names_the_rendezvous() -> None:
    given = (("MASTER_PORT", "1234"), ("MASTER_ADDR", "10.9.9.9"))
    words = made(spec("torchrun", env=given)).executed
    assert words[words.index("--master_port") + 1] == "1234"
    assert words[words.index("--master_addr") + 1] == "10.9.9.9"
    for command in made(spec("env", env=given)).commands:
        for typed in command.lines:
            assert variables(typed)["MASTER_PORT"] == "1234"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans())
def test_env_starts_every_rank_once(counts: list[int], per_host: bool) -> None:
    hosts = tuple(Host(f"h{number}", f"10.0.0.{number}") for number in range(len(counts)))
    placement = Placement(tuple(Share(host.name, count) for host, count in zip(hosts, counts, strict=True)), "so")
    found = made(spec("env", hosts=hosts, head="h0", per_host=per_host), placement)
    world = len(counts) if per_host else sum(counts)
    seen = []
    for node, (command, count) in enumerate(zip(found.commands, counts, strict=True)):
        here = 1 if per_host else count
        numbers = [variables(words) for words in command.lines]
        start = (*START[:-1], str(command.ranks[0]), str(here), str(world), "1", "", "--")
        assert command.argv[: len(start)] == start
        assert [each["LOCAL_RANK"] for each in numbers] == [str(local) for local in range(here)]
        for each in numbers:
            assert (each["WORLD_SIZE"], each["LOCAL_WORLD_SIZE"]) == (str(world), str(here))
            assert (each["GROUP_RANK"], each["NODE_RANK"]) == (str(node), str(node))
            assert (each["MASTER_ADDR"], each["MASTER_PORT"]) == ("10.0.0.0", "23456" if per_host else "4242")
        seen += [int(each["RANK"]) for each in numbers]
        assert tuple(int(each["RANK"]) for each in numbers) == command.ranks
    assert seen == list(range(world))


@pytest.mark.parametrize("given", [(), ((VISIBLE_GPUS, "1,3"),)])
@pytest.mark.parametrize("mps", [True, False])
def test_processes_that_share_a_slot_are_its_own_world(given: tuple[tuple[str, str], ...], mps: bool) -> None:
    job = spec("env", procs_per_gpu=3, mps=mps, env=given)
    placement = Placement((Share("gpu2", 2, ("GPU-a", "GPU-b")), Share("gpu1", 1, ("slot-0",))), "so")
    found = made(job, placement)
    assert [command.ranks for command in found.commands] == [(0, 1, 2, 3, 4, 5), (6, 7, 8)]
    told_of = "--mps: not used on gpu1: the job has no GPU there, or CUDA_VISIBLE_DEVICES was set before"
    assert (told_of in found.warnings) == (mps and not given)
    gpus = dict(given).get(VISIBLE_GPUS, "GPU-a,GPU-b")
    behind = ("0", "6", "9", "3", gpus if mps else "", "--")
    assert found.executed[: len(START) - 1 + len(behind)] == (*START[:-1], *behind)
    for host, slots, command in zip(("gpu2", "gpu1"), ((0, 1), (2,)), found.commands, strict=True):
        shared = {**dict(dict(found.host_env).get(host, ())), **local_env(job, processes(job, placement), 4242, host)}
        for local, (rank, words) in enumerate(zip(command.ranks, command.lines, strict=True)):
            typed, ran = variables(words), rank_env(rank, local, shared, 3)
            here = local // 3
            expected = {"RANK": slots[here], "LOCAL_RANK": 0, "WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 1}
            expected |= {"PROCESS_INDEX": local % 3, "PROCESS_NUM": 3}
            expected |= {"GROUP_RANK": slots[here], "NODE_RANK": slots[here]}
            own = gpus.split(",")[here] if given or host == "gpu2" else None
            for each in (typed, ran):
                assert {name: int(each[name]) for name in expected} == expected
                assert each.get(VISIBLE_GPUS) == own
            assert words[-len(COMMAND) - 4 :] == (*COMMAND, "--process_index", str(local % 3), "--process_num", "3")


def test_torchrun_substitutes_nothing_in_arguments() -> None:
    words = ("a$b", "$$", "${local_rank}", "$HOME")
    (command, *_others) = made(replace(spec("torchrun"), command=words)).commands
    behind = ("$$$$", "$${local_rank}", "$$HOME")
    assert command.lines[0][-4:] == ("a$b", *behind)  # the program's own name is taken as it is
    assert command.argv[-4:] == ("a$$b", *behind)  # the wrapper is the program here
    assert [Template(word).safe_substitute(local_rank="7") for word in command.argv[-4:]] == list(words)


@pytest.mark.parametrize("launcher", ["torchrun", "env"])
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("gpus", [0, 8])
def test_a_profile_sets_the_same_for_every_launcher(launcher: str, profile: Any, gpus: int) -> None:
    hosts = [with_hcas(host.name, roce("mlx5_bond_0", "bond0", host.address, index)) for index, host in enumerate(FAR)]
    facts = told(*hosts, nccl="2.18.3", gpus=gpus)
    job = spec("mpirun", profile=profile, env=(("A", "b"), ("HOME", None)), network=Network("bond0", "on"))
    by_mpirun, found = made(job, facts=facts), made(replace(job, launcher=launcher), facts=facts)
    words = by_mpirun.argv
    wanted = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "-x"]
    assert wanted
    for command in found.commands:
        env = {name: value for name, value in command.env if not name.startswith("TACO_LAUNCH")}
        assert env == {name: value for name, equals, value in wanted if equals}
        assert set(command.passed) == {name for name, equals, _value in wanted if not equals}
    assert found.host_env == by_mpirun.host_env
    reasons = {token.text: (token.source, token.why) for token in by_mpirun.tokens}
    for token in found.tokens:
        if token.text.partition("=")[0] in dict(found.env):
            assert (token.source, token.why) == reasons[token.text]
    assert not any("mpirun" in warning for warning in found.warnings)


def test_what_is_mpiruns_alone_is_told() -> None:
    found = made(spec("env", mca=(("btl", "tcp"), ("pml", "ob1"))))
    assert found.warnings[0] == "--mca btl, pml: not used: --launcher env starts the ranks without mpirun"
    assert "btl" not in " ".join(found.argv)


def test_this_machine_is_taken_once() -> None:
    hosts = (Host("a", "127.0.0.1", connection="local"), Host("b", "127.0.0.1", connection="local"))
    with pytest.raises(UsageError, match="hosts a and b are both this machine, which env accepts only once"):
        made(spec("env", hosts=hosts), Placement((Share("a", 1), Share("b", 1)), "so"))


def test_one_line_for_each_host() -> None:
    first, second = made(spec("env")).commands
    assert line(first).count(" & ") == 3
    assert line(first).endswith(" & wait")
    assert tuple(shlex.split(line(second))) == second.lines[0]
