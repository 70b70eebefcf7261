"""The image stage: which image every host is to have, where it comes from, and what is said of it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import Disk, HostFacts, System
from taco_launch.core.model.host.hosts import DockerEngine, Registry
from taco_launch.core.model.host.image_reference import parse_reference
from taco_launch.setup.model.ops import Op, PlanContext, Problem, SourceImage
from taco_launch.setup.stages import image as stage
from taco_launch.setup.stages.image import resolve
from tests.support.host_facts import known
from tests.support.training import ONE, TWO, bare, cluster, image, inventory, op, problem

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
GIB = 1 << 30
COPIED = {"source": "controller"}


def plan(name: str, of: PlanContext, facts: HostFacts | None = None) -> list[Op | Problem]:
    return list(stage.plan(of.host(name), facts or of.facts[name], of))


@pytest.mark.parametrize(
    ("text", "name", "registry"),
    [
        ("train", "train:latest", ""),
        ("docker.io/library/ubuntu:20.04", "ubuntu:20.04", ""),
        ("index.docker.io/horovod/horovod:0.28", "horovod/horovod:0.28", ""),
        ("library/ubuntu", "ubuntu:latest", ""),
        ("ccr.ccs.tencentyun.com/qcloud/taco-train:torch111", "ccr.ccs.tencentyun.com/qcloud/taco-train:torch111", "ccr.ccs.tencentyun.com"),
        ("registry:5000/train", "registry:5000/train:latest", "registry:5000"),
        ("localhost/library/train:1", "localhost/library/train:1", "localhost"),
        ("[::1]:5000/train:1", "[::1]:5000/train:1", "[::1]:5000"),
        (f"r.example/train:1@{A}", f"r.example/train@{A}", "r.example"),
    ],
)  # fmt: skip
def test_references(text: str, name: str, registry: str) -> None:
    """Names as `docker images` shows them: docker(1), and the reference grammar of the distribution project."""
    assert (parse_reference(text).name, parse_reference(text).registry) == (name, registry)


words = st.from_regex(r"[a-z0-9]{1,5}(?:[._-][a-z0-9]{1,5})?", fullmatch=True)


@given(
    st.lists(words, min_size=1, max_size=3), st.none() | words, st.sampled_from(["", "r.example:5000/", "docker.io/"])
)
def test_the_engines_own_name_stands_for_the_same_image(path: list[str], tag: str | None, registry: str) -> None:
    once = parse_reference(f"{registry}{'/'.join(path)}" + (f":{tag}" if tag else ""))
    assert once.tag == (tag or "latest")
    assert once.repository.endswith(path[-1])
    if path[0] != "library":
        assert parse_reference(once.name) == once


def test_without_a_container_there_is_nothing_to_do() -> None:
    of = cluster(bare())
    assert plan("gpu1", replace(of, inventory=replace(of.inventory, container=None))) == []


def test_where_no_host_has_it_all_pull_the_tag() -> None:
    of = cluster(bare("gpu1"), bare("gpu2"))
    for name in ("gpu1", "gpu2"):
        found = op(plan(name, of))
        assert (found.name, found.args[:2]) == ("pull train:1", ("train:1", ""))
        assert "of unknown size, so at least 2.0 GiB must be free" in found.why
        assert int(found.args[2]) << 10 == 2 * GIB
        assert plan(name, of, found.expect(of.facts[name])) == []
    assert resolve(of.inventory, of.facts) is None


def test_others_pull_the_very_digest_that_the_head_has() -> None:
    of = cluster(
        bare("gpu1"), bare("gpu2", image(digest=A, size=4 * GIB)), bare("gpu3", image("train:1", TWO, B)), head="gpu2"
    )
    assert resolve(of.inventory, of.facts) == A
    missing, odd = op(plan("gpu1", of)), op(plan("gpu3", of))
    assert missing.args[:2] == odd.args[:2] == (f"train@{A}", "train:1")
    assert missing.name == f"pull train@{A} as train:1"
    assert "it is not here, and on gpu2 it is sha256:aaaaaaaaaaaa; requires about 6.0 GiB" in missing.why
    assert "it is sha256:222222222222 here, and on gpu2 it is sha256:aaaaaaaaaaaa" in odd.why
    assert plan("gpu2", of) == []
    assert plan("gpu3", of, odd.expect(of.facts["gpu3"])) == []
    after = known(missing.expect(of.facts["gpu1"]).docker)
    assert [each.id for each in known(after.images)] == [ONE], "it is known by then, so no container of it is recreated"


def test_the_first_host_that_has_it_counts_where_the_head_has_not() -> None:
    of = cluster(bare("gpu1"), bare("gpu2", image(digest=B)), bare("gpu3", image(digest=A, identity=TWO)))
    assert resolve(of.inventory, of.facts) == B
    assert op(plan("gpu1", of)).args[0] == op(plan("gpu3", of)).args[0] == f"train@{B}"


def test_the_head_counts_before_hosts_that_stand_before_it() -> None:
    of = cluster(bare("gpu1", image(digest=B, identity=TWO)), bare("gpu2", image(digest=A)), head="gpu2")
    assert resolve(of.inventory, of.facts) == A
    assert op(plan("gpu1", of)).args[0] == f"train@{A}"
    assert plan("gpu2", of) == []


def test_a_digest_resolved_before_holds_for_a_host_alone() -> None:
    of = cluster(bare("gpu2"), head="gpu2", digest=A)
    assert op(plan("gpu2", of)).args[:2] == (f"train@{A}", "train:1")
    assert plan("gpu2", of, bare("gpu2", image(digest=A))) == []
    assert op(plan("gpu2", of, bare("gpu2", image(digest=B)))).args[0] == f"train@{A}"


def test_the_same_image_is_the_same_with_and_without_a_digest_and_by_any_of_several() -> None:
    loaded, pulled = bare("gpu1", image()), bare("gpu2", image(digest=A))
    of = cluster(loaded, pulled)
    assert plan("gpu1", of) == plan("gpu2", of) == []
    assert resolve(of.inventory, of.facts) == A  # so a third host may pull what the head had loaded
    twice = bare("gpu3", image(digest=A), image(digest=B))
    assert plan("gpu3", cluster(pulled, twice)) == []
    other_store = bare("gpu3", image(identity=TWO, digest=A))  # engines differ in what they call an id
    assert plan("gpu3", cluster(pulled, other_store, head="gpu2")) == []


@pytest.mark.parametrize(
    ("images", "says"),
    [((), "train:1 is not here"), ((image(identity=TWO),), "train:1 is another image here (sha256:222222222222)")],
)
def test_what_no_registry_has_is_to_be_copied(images: Any, says: str) -> None:
    of = cluster(bare("gpu1", image()), bare("gpu2", *images))
    found = problem(plan("gpu2", of))
    assert (
        found.message
        == f"{says}, and the image on gpu1 (sha256:111111111111) was loaded or built there, not pulled from a registry"
    )
    by_hand, _, by_setup = found.hint.partition("; ")
    assert by_hand == "copy it: ssh root@10.0.0.1 docker save train:1 | ssh root@10.0.0.2 docker load"
    assert "container.image: {name: train:1, from: controller}" in by_setup
    assert plan("gpu1", of) == []


def test_a_digest_is_pulled_as_such_and_gets_no_tag() -> None:
    of = cluster(bare(), container={"image": f"r.example/train:1@{A}"})
    assert op(plan("gpu1", of)).args[:2] == (f"r.example/train@{A}", "")
    assert plan("gpu1", of, bare("gpu1", image("r.example/train:2", digest=A))) == []
    assert plan("gpu1", of, bare("gpu1", image(f"r.example/train@{A}", digest=A))) == []
    assert op(plan("gpu1", of, bare("gpu1", image("s.example/train:1", digest=A)))).args[0] == f"r.example/train@{A}"


def test_a_login_hands_the_password_over_in_a_secret_file() -> None:
    given = {"image": "registry:5000/train:1", "registry": Registry("lab")}
    found = op(plan("gpu1", cluster(bare(), container=given, password="geheim")))
    assert found.args[4:] == ("registry:5000", "lab", stage.PASSWORD_FILE)
    assert [(file.path, file.data, file.mode, file.secret) for file in found.files] == [
        (stage.PASSWORD_FILE, b"geheim", 0o600, True)
    ]
    assert "geheim" not in f"{found.name}{found.why}{found.script}{found.args}"
    assert "login as lab" in found.why
    missing = problem(plan("gpu1", cluster(bare(), container=given)))
    assert missing.message == "registry:5000/train:1: there is no password for lab at registry:5000"
    assert "TACO_LAUNCH_REGISTRY_PASSWORD" in missing.hint
    assert plan("gpu1", cluster(bare("gpu1", image("registry:5000/train:1")), container=given)) == []


def with_disk(facts: HostFacts, path: str, free: int) -> HostFacts:
    return replace(facts, system=replace(known(facts.system), disks=(Disk(path, "ext4", 100 * GIB, free),)))


def test_space_is_looked_at_on_the_disk_of_the_engine() -> None:
    has = bare("gpu1", image(digest=A, size=10 * GIB))
    small, over = (with_disk(bare("gpu2"), path, 14 * GIB) for path in ("/var/lib/docker", "/"))
    found = problem(plan("gpu2", cluster(has, small)))
    assert found.message == "train:1: /var/lib/docker has 14.0 GiB free; it requires about 15.0 GiB"
    found = problem(plan("gpu2", cluster(has, over)))
    assert found.message == "train:1: / has 14.0 GiB free (docker's /var/lib/docker); it requires about 15.0 GiB"
    assert op(plan("gpu2", cluster(has, with_disk(bare("gpu2"), "/var/lib/docker", 16 * GIB))))
    unknown = with_disk(bare("gpu1"), "/var/lib/docker", GIB)
    assert "of unknown size, so at least 2.0 GiB must be free" in problem(plan("gpu1", cluster(unknown))).message


def test_space_is_looked_at_where_the_data_root_is_or_will_be() -> None:
    """The probe looks at the disks of /var/lib/docker, and of what inventory and daemon.json name; else the host does."""

    def message(engine: DockerEngine, root: Any, daemon_json: Any = None) -> str:
        facts = with_disk(bare("gpu1", daemon_json=daemon_json or Absent()), "/data", GIB)
        assert isinstance(facts.system, System)
        disks = (
            Disk("/", "ext4", 100 * GIB, 90 * GIB),
            *(facts.system.disks if isinstance(facts.system.disks, tuple) else ()),
        )
        facts = replace(
            facts, docker=replace(known(facts.docker), root=root), system=replace(facts.system, disks=disks)
        )
        of = cluster(facts)
        (found,) = plan("gpu1", replace(of, inventory=replace(of.inventory, docker=engine)))
        return found.message if isinstance(found, Problem) else found.why

    small = "train:1: /data has 1.0 GiB free (docker's /data/docker); it is of unknown size"
    later = Unknown("docker is installed first")
    assert message(DockerEngine(data_root="/data/docker"), later).startswith(small)
    assert message(DockerEngine(), later, '{"data-root": "/data/docker"}').startswith(small)
    assert message(DockerEngine(), "/data/docker", '{"data-root": "/data/docker"}').startswith(small)
    for there in ("{", '{"data-root": 5}', None):
        said = message(DockerEngine(), "/data/docker", there)  # by a flag of dockerd, say
        assert said.endswith("at least 2.0 GiB must be free, which is checked on the host")
    assert message(DockerEngine(), later).endswith("must be free")


def test_what_the_registry_has_now_is_pulled_by_all_that_have_it_not() -> None:
    old, new = image(digest=A), image(identity=TWO, digest=B)
    of = cluster(
        bare("gpu1", old), bare("gpu2", new), bare("gpu3"), bare("gpu4", image(identity=TWO)), latest=B, digest=A
    )
    found = op(plan("gpu1", of))
    assert (found.name, found.args[:2]) == (f"pull train@{B} as train:1", (f"train@{B}", "train:1"))
    assert found.why.startswith("it is sha256:111111111111 here, and the registry has sha256:bbbbbbbbbbbb now; ")
    assert plan("gpu1", of, found.expect(of.facts["gpu1"])) == []
    assert op(plan("gpu3", of)).why.startswith("it is not here, and the registry has ")
    assert plan("gpu2", of) == []
    assert plan("gpu4", of) == [], "loaded from what gpu2 has"


@pytest.mark.parametrize("docker", [Absent("docker: not found"), Unknown("permission denied")])
def test_without_an_answer_of_the_engine_the_reason_is_told(docker: Any) -> None:
    facts = replace(bare(), docker=docker)
    assert docker.reason in problem(plan("gpu1", cluster(facts))).message


images = st.lists(
    st.builds(image, st.just("train:1"), st.sampled_from([ONE, TWO]), st.sampled_from([None, A, B])), max_size=1
)


@given(st.lists(images, min_size=1, max_size=4))
def test_after_pulling_what_is_planned_all_hosts_agree(given: list[list[Any]]) -> None:
    """Whatever the hosts have: what is pulled settles it, or a person is told; the standard host is left alone."""
    hosts = [bare(f"gpu{number}", *held) for number, held in enumerate(given, 1)]
    of = cluster(
        *hosts, digest=resolve(inventory([facts.host for facts in hosts]), {facts.host: facts for facts in hosts})
    )
    for facts in hosts:
        for item in plan(facts.host, of):
            if isinstance(item, Op):
                assert plan(facts.host, of, item.expect(facts)) == []
            else:
                assert "docker save" in item.hint
    first = next((facts.host for facts, held in zip(hosts, given, strict=True) if held), None)
    assert first is None or plan(first, of) == []


def test_what_the_controller_has_is_copied_and_what_it_has_not_is_said() -> None:
    has = SourceImage("the controller", frozenset((ONE,)), 2 * GIB)
    of = cluster(bare("gpu1"), bare("gpu2", image()), bare("gpu3", image(identity=TWO)), container=COPIED, given=has)
    found, odd = op(plan("gpu1", of)), op(plan("gpu3", of))
    assert (found.name, found.args) == ("copy train:1 from the controller", ("train:1", "mpirun", ONE))
    assert "it is not here; requires about 6.0 GiB during the copy, a third of that afterwards" in found.why
    assert "it is sha256:222222222222 here, and it is sha256:111111111111 there" in odd.why
    assert plan("gpu2", of) == []
    assert plan("gpu1", of, found.expect(of.facts["gpu1"])) == []
    much = replace(of, given=SourceImage("~/a.tar", frozenset((ONE,)), 1 << 50))
    assert problem(plan("gpu1", much)).message.startswith("train:1: / has ")

    none = replace(of, given="this machine: docker image inspect: No such image: train:1")
    assert problem(plan("gpu1", none)).message == (
        "train:1: it is not here; it cannot be copied: this machine: docker image inspect: No such image: train:1"
    )
    assert "and on gpu2 it is sha256:111111111111; it cannot be copied" in problem(plan("gpu3", none)).message
    assert plan("gpu2", none) == []  # a controller that has lost its own is not a reason to change what exists
