"""Variants: what a job's own container is called, what it is made of, and which record the head keeps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import ContainerState
from taco_launch.core.model.host.hosts import Container
from taco_launch.core.model.host.job_containers import KEY_DIGITS, Variant, VariantRecord
from taco_launch.setup.files.container_definition import define
from taco_launch.setup.model import job_containers
from taco_launch.setup.model.ops import Op, Problem
from taco_launch.setup.stages import container as stage
from tests.support.host_facts import known
from tests.support.training import bare, cluster, image, inventory

BASE = Container("train:1", mounts=(("/nas", "/nas", "ro"),))
DATA = Variant("mine:1", "registry", data=(("/srv/set", "/data", "ro"),))
CLUSTERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
MOUNTS = st.lists(
    st.tuples(st.sampled_from(["/a", "/b"]), st.sampled_from(["/x", "/y"]), st.sampled_from(["ro", "rw"]))
)
VARIANTS = st.builds(
    Variant,
    st.sampled_from(["", "mine:1", "mine:2"]),
    st.sampled_from(["registry", "controller"]),
    st.sampled_from(["", "sha256:1"]),
    MOUNTS.map(tuple),
    MOUNTS.map(tuple),
    st.none() | st.integers(1, 1 << 40),
)


@given(one=CLUSTERS, two=CLUSTERS, variant=VARIANTS)
def test_nothing_of_a_variant_has_the_name_of_anything_of_a_cluster(one: str, two: str, variant: Variant) -> None:
    key = paths.variant(one, variant.key or "0" * KEY_DIGITS)
    called = (paths.container, paths.unfinished, paths.unit, paths.firewall_unit, paths.host_folder, paths.folder)
    for name in called:
        assert name(key) != name(two)
        assert name(key) not in [other(two) for other in called]
    assert len({name(key) for name in called}) == len(called)
    assert paths.split(key) == (one, key.rpartition("@")[2])
    assert paths.state(key) == paths.state(one)


@given(VARIANTS, VARIANTS)
def test_a_key_is_made_of_what_it_says_and_not_of_an_order(one: Variant, two: Variant) -> None:
    assert job_containers.is_key(one.key)
    turned = replace(one, mounts=one.mounts[::-1], data=one.data[::-1])
    assert turned.key == one.key
    same = (sorted(one.mounts), sorted(one.data), replace(one, mounts=(), data=())) == (
        sorted(two.mounts), sorted(two.data), replace(two, mounts=(), data=()),
    )  # fmt: skip
    assert (one.key == two.key) == same


@given(VARIANTS, st.integers(1, 65535))
def test_a_record_is_read_as_it_was_written(variant: Variant, port: int) -> None:
    record = VariantRecord(variant, port, ("gpu1", "gpu2"), (("gpu1", "sha256:1"),))
    assert job_containers.read(job_containers.written(record)) == record


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff", b'{"variant": 1}', b"[" * 2000])
def test_what_is_no_record_is_none(text: bytes) -> None:
    assert job_containers.read(text) is None


@given(VARIANTS)
def test_what_the_inventory_has_already_makes_no_variant(variant: Variant) -> None:
    same = Variant(BASE.image, BASE.source, data=BASE.mounts, shm_size=BASE.shm_size)
    assert job_containers.variant_of(same, BASE).key == ""
    assert job_containers.container_of(BASE, job_containers.variant_of(same, BASE)) == BASE
    made = job_containers.container_of(BASE, job_containers.variant_of(variant, BASE), 12400)
    assert {inside for _source, inside, _mode in variant.data} <= {inside for _, inside, _ in made.data}
    assert made.privileged == BASE.privileged
    assert made.ulimits == BASE.ulimits


def test_a_job_of_one_cluster_is_not_one_of_another_image() -> None:
    assert job_containers.variant_of(Variant("docker.io/library/train:1"), BASE).key == ""
    assert job_containers.variant_of(Variant("train:2"), BASE).key != ""


def test_a_job_goes_before_the_inventory_at_the_same_place() -> None:
    made = job_containers.container_of(BASE, job_containers.variant_of(Variant(data=(("/mine", "/nas", "rw"),)), BASE))
    assert (made.mounts, made.data) == ((), (("/mine", "/nas", "rw"),))


def test_it_has_the_privileges_of_the_clusters_own_container_and_sees_its_processes() -> None:
    of = job_containers.inventory_of(inventory(), DATA, 12400)
    assert of.container is not None
    own = define(inventory(), inventory().container or BASE, bare("gpu1", image("train:1")))
    facts = bare("gpu1", image("train:1"), image("mine:1"))
    made = define(of, of.container, facts)
    assert made is not None
    assert own is not None
    extra = set(made.options) - set(own.options)
    assert {option for option in extra if not option.startswith("--mount")} == {
        "--pid=container:taco-launch-hcc", f"--env={paths.VARIANT_VARIABLE}={DATA.key}",
    }  # fmt: skip
    assert "--mount=type=bind,source=/srv/set,target=/data,readonly" in extra
    assert f"--mount=type=bind,source={paths.folder('hcc')},target={paths.folder('hcc')},readonly" in made.options
    assert f"--env={paths.CLUSTER_VARIABLE}=hcc" in made.options


def _planned(*, main: str) -> list[Op | Problem]:
    allowing = replace(inventory(), data_roots=(("/nas", "rw"), ("/srv", "ro")))
    of = job_containers.inventory_of(allowing, DATA, 12400)
    facts = bare("gpu1", image("train:1"), image("mine:1"))
    own = ContainerState("taco-launch-hcc", "train:1", main, ((paths.CLUSTER_LABEL, "hcc"),))
    facts = replace(facts, docker=replace(known(facts.docker), containers=(own,) if main else ()))
    return list(stage.plan(of.hosts[0], facts, replace(cluster(facts), inventory=of)))


@pytest.mark.parametrize(("main", "why"), [("", "is not there"), ("exited", "does not run: it is exited")])
def test_without_the_clusters_own_container_there_is_none(main: str, why: str) -> None:
    (problem,) = _planned(main=main)
    assert isinstance(problem, Problem)
    assert why in problem.message
    assert "setup" in problem.hint


def test_beside_the_clusters_own_container_it_is_made() -> None:
    create, start = _planned(main="running")
    assert isinstance(create, Op)
    assert isinstance(start, Op)
    name = paths.container(paths.variant("hcc", DATA.key))
    assert create.name == f"create {name} from mine:1"
    assert create.args[8:12] == ("mpirun", "1", "rw:/nas\nro:/srv", "ro:/srv/set")
    assert f"After=docker.service {paths.unit('hcc')}" in start.files[-1].data.decode()


@given(st.integers(1, 65535))
def test_the_ports_of_variants_are_ports_and_not_those_of_the_cluster(port: int) -> None:
    first, last = job_containers.ports(replace(BASE, ssh_port=port))
    assert 0 < first <= last <= 65535 or port < 200
    assert not first <= port <= last
