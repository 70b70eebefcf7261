"""The container of a job on Slurm, by what the inventory says that the nodes have."""

from dataclasses import replace

import pytest

from taco_launch.core.errors import SpecError, UsageError
from taco_launch.core.model.engines import SlurmContainer
from taco_launch.core.model.host.hosts import DataSet, Host, Inventory, SlurmCluster
from taco_launch.core.model.job_request import JobRequest
from taco_launch.hosts.inventory.load import parse
from taco_launch.hosts.inventory.to_document import document
from taco_launch.jobs.request.caller import Caller
from taco_launch.jobs.request.resolve import resolve

SETS = (DataSet("imagenet", "/mnt/x", mode="ro"),)
HERE = Inventory("c", "h", (Host("h", "h"),), engine="slurm", slurm=SlurmCluster("apptainer"), data=SETS)
PYXIS = replace(HERE, slurm=SlurmCluster("pyxis"))
CALLER = Caller("/home/u", {}, "u", frozenset, lambda _word: False, lambda _word: False)


def of(inventory: Inventory = HERE, **fields: object) -> SlurmContainer | None:
    request = JobRequest(command=("python3", "t.py"), np=2, **fields)  # type: ignore[arg-type]
    spec = resolve(request, inventory, CALLER)
    assert spec.container is None
    assert spec.slurm is not None
    return spec.slurm.container


@pytest.mark.parametrize(
    ("inventory", "image", "called"),
    [
        (HERE, "a:1", "docker://a:1"),
        (HERE, "r.io/team/a", "docker://r.io/team/a"),
        (HERE, "/img/a.sif", "/img/a.sif"),
        (PYXIS, "team/a:1", "docker://team/a:1"),
        (PYXIS, "r.io/team/a:1", "docker://r.io#team/a:1"),
        (PYXIS, "localhost/a", "docker://localhost#a"),
        (PYXIS, "r:5000/a", "docker://r:5000#a"),
        (PYXIS, "/img/a.sqsh", "/img/a.sqsh"),
    ],
)
def test_an_image(inventory: Inventory, image: str, called: str) -> None:
    found = of(inventory, image=image, data=("/any/folder:/x:ro", "imagenet:/data"))
    mounts = (("/mnt/x", "/data", "ro"), ("/any/folder", "/x", "ro"))
    assert found == SlurmContainer(inventory.slurm.containers, called, mounts)


def test_no_image_is_no_container() -> None:
    assert of() is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": "a.sif"}, r"'a\.sif': must be the absolute path of a file \*\.sif"),
        ({"image": "/a.sqsh"}, r"absolute path of a file \*\.sif"),
        ({"image": "docker://a"}, "no scheme"),
        ({"image": "a", "worker_image": "b"}, "one image"),
        ({"image": "a", "launcher": "torchrun"}, "torchrun starts no ranks in containers on Slurm"),
        ({"image": "a", "shm_size": "1g"}, "shm_size does not apply"),
        ({"image": "a", "image_from": "registry"}, "image_from does not apply"),
        ({"data": ("/a:/a",)}, "data: requires a container"),
        ({"image": "a", "data": ("/a:/x", "/b:/x")}, "/x has /a already"),
        ({"image": "a", "data": ("net:/x",)}, "data sets of the inventory: imagenet"),
    ],
)
def test_what_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises((UsageError, SpecError), match=words):
        of(HERE, **fields)


def test_without_a_word_of_the_inventory_it_is_refused_with_the_key() -> None:
    with pytest.raises(UsageError, match="image: requires a container") as caught:
        of(replace(HERE, slurm=SlurmCluster()), image="a")
    assert "slurm: {containers: apptainer}" in (caught.value.hint or "")


def test_the_key_of_the_inventory() -> None:
    text = "cluster: c\nengine: slurm\nslurm: {containers: pyxis}\nhosts: {h: }\n"
    found = parse(text.encode(), "i.yaml")
    assert found.slurm.containers == "pyxis"
    assert document(found)["slurm"] == {"containers": "pyxis"}
    with pytest.raises(SpecError, match=r"slurm\.containers .*applies only to a Slurm cluster \(add engine: slurm"):
        parse(text.replace("engine: slurm\n", "").encode(), "i.yaml")
    with pytest.raises(SpecError, match="'docker'"):
        parse(text.replace("pyxis", "docker").encode(), "i.yaml")
