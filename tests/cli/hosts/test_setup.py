"""setup and teardown on simulated hosts: real shells and files below one folder per host, simulated stages and facts."""

import json
import os

import pytest

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.facts import DockerFacts
from taco_launch.setup.apply import setup_run as flow
from taco_launch.setup.apply import sources
from taco_launch.setup.files import ssh_files
from taco_launch.setup.files.ssh_files import Member
from taco_launch.setup.model.ops import Problem, ProofFailure
from taco_launch.setup.plan.stage_rules import STAGES
from taco_launch.setup.stages import ssh_mesh
from tests.support.host_facts import host as facts_of
from tests.support.simulated_setup import PASSWORD, Simulated, World, code, rows, setup


def test_the_plan_is_folded_over_equal_hosts(world: World) -> None:
    (world.of("gpu2") / "docker").write_text("docker\n")
    done = setup(world, "--dry-run")
    assert code(done) == 0
    assert done.stdout.splitlines() == [
        "gpu[1,3]: + docker: put docker (it does not exist)",
        *(f"gpu[1-3]: + {stage}: put {stage} (it does not exist)" for stage in STAGES[1:]),
    ]
    assert not (world.of("gpu1") / "docker").exists()


def test_drift_has_its_own_exit_code(world: World) -> None:
    assert code(setup(world, "--check")) == 3
    assert code(setup(world, "--check", "--only", "image,docker")) == 3
    assert code(setup(world, "--yes")) == 0
    done = setup(world, "--check")
    assert (code(done), done.stdout) == (0, "")
    assert "nothing to do: gpu[1-3] already set up as " in done.stderr
    assert done.stderr.rstrip().endswith(" check reads them")
    assert "Xids, links and error counters are not read: taco-launch -i " in done.stderr


def test_a_host_that_left_the_inventory_is_named_until_the_key_is_replaced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, gone = Member("gpu1", "10.0.0.1", "ssh-ed25519 AAAA"), Member("gpu9", "10.0.0.9", "ssh-ed25519 BBBB")
    text = ssh_files.known_hosts((now, gone), 12300)
    monkeypatch.setattr(sources.HeadFiles, "known_hosts", property(lambda _self: text))
    done = setup(world, "--dry-run")
    assert code(done) == 0
    assert "gpu9: warning: cluster's key: no longer in the inventory; unless teardown has cleaned it" in done.stdout
    assert "cluster.yaml setup --rotate-keys --only ssh_mesh)" in done.stdout
    assert "gpu9" not in setup(world, "--dry-run", "--rotate-keys").stdout


def test_everything_is_done_and_then_nothing(world: World) -> None:
    done = setup(world, "--yes")
    assert (code(done), rows(done)) == (0, {f"gpu{number}": ["ready", str(len(STAGES))] for number in (1, 2, 3)})
    assert "gpu2: stage 4 of 7, image: put image: done (0 s)" in done.stderr
    assert {path.name for path in world.of("gpu3").iterdir()} == set(STAGES)
    again = setup(world)
    assert (code(again), rows(again)) == (0, {f"gpu{number}": ["ready", "0"] for number in (1, 2, 3)})
    assert "logs in" not in again.stderr


def test_only_what_may_have_changed_is_looked_at_again(world: World) -> None:
    setup(world, "--yes", "--only", "agent")
    assert world.looks == [flow.SUBJECTS, ("made",)]


def test_without_a_terminal_nobody_is_asked(world: World) -> None:
    done = setup(world)
    assert code(done) == 2
    assert (
        str(done.exception)
        == f"{3 * len(STAGES)} operations on 3 hosts to do, but stdin is not a terminal, so you cannot confirm"
    )
    assert not list(world.of("gpu1").iterdir())


def test_some_hosts_and_some_stages(world: World) -> None:
    done = setup(world, "--yes", "--host", "gpu[2-3]", "--only", "image", "--only", "docker")
    assert (code(done), set(rows(done))) == (0, {"gpu2", "gpu3"})
    assert [sorted(path.name for path in world.of(name).iterdir()) for name in ("gpu1", "gpu2")] == [
        [],
        ["docker", "image"],
    ]
    # the others are looked at all the same: each host has to know of them
    assert set(world.clusters[-1].facts) == {"gpu1", "gpu2", "gpu3"}


def test_the_stages_know_whether_the_head_is_set_up_as_well(world: World) -> None:
    setup(world, "--yes", "--host", "gpu[2-3]")
    assert not any(cluster.with_head for cluster in world.clusters)
    world.clusters.clear()
    world.refused["gpu1", "image"] = Problem("image", "no room", "make some")
    setup(world, "--yes", "--only", "image,ssh_mesh")
    assert world.clusters[0].with_head
    assert not world.clusters[-1].with_head, "it has failed in a stage before"


def test_hosts_that_are_to_be_told_of_a_new_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_mesh, "unaware", lambda _cluster: ("gpu1", "gpu2", "gpu3"))
    done = setup(world, "--yes", "--host", "gpu3")
    assert (code(done), rows(done)) == (5, {"gpu3": ["ready", str(len(STAGES))]})
    step = f"next: taco-launch -i {world.folder.parent}/cluster.yaml setup --only ssh_mesh\n"
    assert done.stderr.endswith(f"gpu[1-2] has an outdated host list: only gpu3 was set up; {step}")
    assert "1 of 1 host ready" in done.stderr
    assert all(word not in done.stderr for word in ("error", "fault", "rerun", "setup -H")), "nothing is broken"
    assert code(setup(world, "--yes")) == 0, "none is left out"
    assert code(setup(world, "--yes", "--host", "gpu3", "--only", "agent")) == 0, "the mesh was not requested"


def test_a_host_that_fails_keeps_no_other_from_it(world: World) -> None:
    world.scripts["gpu2", "image"] = (
        "echo pulling; echo 'error: registry: no route to host' >&2; echo \"hint: try: $taco_typed stop j\"; exit 1"
    )
    done = setup(world, "--yes")
    assert code(done) == 5
    assert rows(done) == {
        "gpu1": ["ready", str(len(STAGES))],
        "gpu2": ["failed", str(STAGES.index("image"))],
        "gpu3": ["ready", str(len(STAGES))],
    }
    assert "error: gpu2: put image: registry: no route to host\n" in done.stderr
    typed = f"taco-launch -i {world.folder.parent}/cluster.yaml stop j"
    assert f"\nhint: try: {typed}; full output: " in done.stderr
    assert "2 of 3 hosts ready after " in done.stderr
    assert not (world.of("gpu2") / "container").exists()
    log = next((world.folder.parent / "state" / "setup" / "c").glob("*/gpu2.log")).read_text()
    assert "image: put image (it does not exist): exit code 1\npulling\nerror: registry: no route to host\n" in log


def test_a_host_that_does_not_answer(world: World) -> None:
    world.broken["gpu3"] = HostError("gpu3: no TCP connection to 10.0.0.3:22: Connection refused", "is it up?")
    assert code(setup(world, "--check")) == 5
    done = setup(world, "--yes")
    assert (code(done), rows(done)["gpu1"], rows(done)["gpu3"]) == (5, ["ready", str(len(STAGES))], ["failed", "0"])
    assert done.stderr.count("error: gpu3: no TCP connection") == 1, "with the plan"
    chosen = setup(world, "--yes", "--host", "gpu1")
    assert (code(chosen), rows(chosen)) == (0, {"gpu1": ["ready", "0"]})
    check = setup(world, "--check", "--host", "gpu1")
    assert code(check) == 0
    assert "error: gpu3: no TCP connection" in check.stderr


def test_what_cannot_be_set_up_is_said_before_and_after(world: World) -> None:
    world.refused["gpu1", "container"] = Problem("container", "port 12222 is taken by nginx", "name another ssh_port")
    plan = setup(world, "--dry-run")
    assert code(plan) == 5
    assert "error: gpu1: container: port 12222 is taken by nginx\nhint: name another ssh_port" in plan.stderr
    done = setup(world, "--yes")
    assert (code(done), rows(done)["gpu1"], rows(done)["gpu2"]) == (
        5,
        ["failed", str(STAGES.index("container"))],
        ["ready", str(len(STAGES))],
    )


def test_equal_problems_are_folded(world: World) -> None:
    for name in ("gpu1", "gpu2", "gpu3"):
        world.refused[name, "docker"] = Problem("docker", "podman answers as docker")
    assert "error: gpu[1-3]: docker: podman answers as docker\n" in setup(world, "--check").stderr


def test_what_remains_is_named(world: World) -> None:
    world.scripts["gpu1", "agent"] = f"rm {world.of('gpu1')}/agent"
    done = setup(world, "--yes")
    assert (code(done), rows(done)["gpu1"][0], rows(done)["gpu2"][0]) == (5, "failed", "ready")
    assert "error: gpu1: not converged after apply: put agent\n" in done.stderr


def test_the_proof_fails(world: World) -> None:
    world.flaws = (ProofFailure(("gpu2", "gpu1"), "gpu2 cannot reach gpu1", "timed out", "open the port"),)
    done = setup(world, "--yes")
    assert code(done) == 5
    assert f"error: {world.flaws[0]}\nhint: open the port" in done.stderr
    assert code(setup(world, "--yes", "--only", "docker")) == 0, "a part proves nothing"


def test_diffs(world: World) -> None:
    (world.of("gpu1") / "docker").write_text("other\n")
    world.scripts["gpu1", "docker"] = ""
    done = setup(world, "--dry-run", "--diff", "--host", "gpu2")
    assert f"gpu2:\n--- /dev/null\n+++ {world.of('gpu2')}/docker\n@@ -0,0 +1 @@\n+docker\n" in done.stdout
    assert f"+++ {world.of('gpu2')}/ssh_mesh\n(secret, not shown)\n" in done.stdout
    assert "+ssh_mesh\n" not in done.stdout


def test_json(world: World) -> None:
    world.refused["gpu2", "image"] = Problem("image", "no room", "make some")
    told = json.loads(setup(world, "--check", "--json").stdout)
    assert told["plan"][0] == {
        "hosts": ["gpu1", "gpu2", "gpu3"],
        "sign": "+",
        "stage": "docker",
        "what": "put docker",
        "why": "it does not exist",
        "disrupts": "nothing",
    }
    assert told["problems"] == [{"host": "gpu2", "stage": "image", "message": "no room", "hint": "make some"}]
    told = json.loads(setup(world, "--yes", "--json").stdout)
    assert [(host["host"], host["state"], host["changes"]) for host in told["hosts"]] == [
        ("gpu1", "ready", len(STAGES)),
        ("gpu2", "failed", STAGES.index("image")),
        ("gpu3", "ready", len(STAGES)),
    ]


def test_secrets_are_nowhere(world: World) -> None:
    world.scripts["gpu1", "image"] = f"echo login with {PASSWORD}"
    done = setup(world, "--yes", "--diff")
    log = next((world.folder.parent / "state" / "setup" / "c").glob("*/gpu1.log"))
    assert "login with ********" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in done.stdout + done.stderr
    assert world.clusters[-1].password == PASSWORD
    assert PASSWORD not in repr(world.clusters[-1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--check", "--dry-run"), "--check and --dry-run cannot be combined"),
        (
            ("--only", "dokcer"),
            "unknown stage 'dokcer'; stages: docker, toolkit, peermem, image, container, ssh_mesh, agent",
        ),
        (("--host", "gpu9"), "gpu9"),
        (("--disrupt", "everything"), "everything"),
    ],
)
def test_usage(world: World, words: tuple[str, ...], message: str) -> None:
    done = setup(world, *words)
    assert code(done) == 2
    assert message in str(getattr(done.exception, "message", done.exception))


def test_an_inventory_without_a_container(world: World) -> None:
    (world.folder.parent / "cluster.yaml").write_text("cluster: c\nhosts: {gpu1: {}}\n")
    done = setup(world)
    assert code(done) == 2
    assert "the inventory names no container" in str(done.exception)


def test_an_optional_stage_requires_no_container_and_runs_only_where_it_is_named(world: World) -> None:
    (world.folder.parent / "cluster.yaml").write_text("cluster: c\nhosts: {gpu1: {}}\n")
    done = setup(world, "--only", "slurm", "--dry-run")
    assert code(done) == 0, done.exception


def test_a_login_without_a_password(world: World) -> None:
    assert str(setup(world, password=None).exception) == "container.registry: no password was given for user me"


def test_nothing_runs_on_this_machine_by_mistake() -> None:
    """The simulated hosts must never be root's: what the tests above do is done as whoever runs them."""
    assert Simulated("x").run(Command(("id", "-u"), sudo=True)).stdout.strip() == str(os.geteuid()).encode()
    assert isinstance(facts_of("gpu1").docker, DockerFacts)
