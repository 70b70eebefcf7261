"""Names of images in a lab's registry, and what the images of docker/ are made from; no engine is asked."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.lab import registry
from taco_launch.lab.docker.labels import LabHost
from taco_launch.lab.images import training
from tests.support.setup_scripts import Fakes


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("mine", "mine:latest"),
        ("mine:1", "mine:1"),
        ("team/train:cu12.1_a", "team/train:cu12.1_a"),
        ("registry.test/team/train:2", "team/train:2"),
        ("registry:5000/train", "train:latest"),
        ("localhost/train:2", "train:2"),
    ],
)
def test_names_of_images(image: str, name: str) -> None:
    assert registry.name_of(image) == name


@pytest.mark.parametrize(
    "image", ["", "Mine:1", "mine:", "mine@sha256:00", "a b", "-x", "mine:1;reboot", "registry.test/"]
)
def test_names_of_images_that_are_none(image: str) -> None:
    with pytest.raises(UsageError, match="is not an image name"):
        registry.name_of(image)


@given(st.text())
def test_no_name_of_an_image_reaches_a_shell_as_code(image: str) -> None:
    try:
        name = registry.name_of(image)
    except UsageError:
        return
    assert re.fullmatch(r"[a-z0-9][a-z0-9._/-]*:\w[\w.-]*", name, re.ASCII)


REGISTRY = LabHost("lab", "registry", "10.0.0.9", 1, 2, "none")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker that has an image of 3 MB, and a registry of which `take` in that folder is the shell."""
    fakes = Fakes(tmp_path / "bin")
    fakes.make(
        "docker", f"case $1 in image) echo 3000000 ;; save) head -c 3000000 /dev/zero ;; *) . {tmp_path}/take ;; esac"
    )
    monkeypatch.setenv("PATH", fakes.env()["PATH"])
    return tmp_path


def test_push_shows_how_much_of_an_image_is_sent(engine: Path) -> None:
    (engine / "take").write_text(f"cat >{engine}/taken")
    shown: list[str] = []
    registry.push(REGISTRY, "taco-lab-lab-registry", "mine:1", "mine:1", shown.append)
    assert (engine / "taken").stat().st_size == 3000000
    assert shown == [
        *(f"mine:1: {sent} of about 3 MB sent to the registry" for sent in (1, 2, 3)),
        "mine:1: 3 MB sent; the registry stores it",
    ]


def test_a_registry_that_does_not_take_an_image_says_why(engine: Path) -> None:
    (engine / "take").write_text("echo 'no space left on device' >&2; exit 1")
    with pytest.raises(HostError, match=r"^registry: the registry did not accept mine:1: no space left on device$"):
        registry.push(REGISTRY, "taco-lab-lab-registry", "mine:1", "mine:1", lambda _text: None)


def test_the_training_image_is_the_hash_of_what_it_is_made_of(tmp_path: Path) -> None:
    checkout = Path(training.__file__).parents[3]
    if not Path("/etc/apt").is_dir():
        pytest.skip("cannot: images are made on Debian or Ubuntu")
    copy = tmp_path / "copy"
    for name in training._FILES:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((checkout / name).read_bytes())
    found = training.recipe(checkout)
    assert training.recipe(copy).tag == found.tag
    assert re.fullmatch(r"train-cpu:[0-9a-f]{12}", found.name)
    assert found.pins == training.Pins("2.13.0", "0.28.1", "numpy>=1.26,<3", "tensorboard>=2.17,<3")
    (copy / "scripts/benchmark_run.py").write_text("other")
    assert (training.recipe(copy).tag == found.tag, training.recipe(copy).base == found.base) == (False, True)
    (copy / "docker/train-cpu/Dockerfile").unlink()
    with pytest.raises(TacoLaunchError, match="docker/train-cpu/Dockerfile is not in") as caught:
        training.recipe(copy)
    assert "taco-launch lab push IMAGE" in str(caught.value.hint)


def copied(dockerfile: Path) -> list[str]:
    """What a Dockerfile takes from its context, as paths there."""
    instructions = re.findall(r"^COPY (?!--from)(.+)$", dockerfile.read_text("utf-8"), re.MULTILINE)
    return [path for words in instructions for path in words.split()[:-1]]


def test_dockerfiles_copy_what_is_there() -> None:
    """Those of users are built from the checkout, of which .dockerignore lets only parts in, or from their own folder."""
    checkout = Path(training.__file__).parents[3]
    let_in = [line[1:] for line in (checkout / ".dockerignore").read_text("utf-8").splitlines() if line[0] == "!"]
    for name, context in (("train", "."), ("train-from", "docker/train-from")):
        paths = copied(checkout / "docker" / name / "Dockerfile")
        assert paths
        for path in paths:
            assert (checkout / context / path).is_file()
            assert context != "." or any(path == each or path.startswith(f"{each}/") for each in let_in)
    assert copied(checkout / "docker/train-cpu/Dockerfile") == ["wheels", "benchmark"]


def test_the_wheel_cache_is_the_one_of_the_scripts(tmp_path: Path) -> None:
    assert training.cache({"TACO_LAUNCH_WHEEL_CACHE": "/kept", "HOME": "/root"}, tmp_path) == Path("/kept")
    assert training.cache({"XDG_CACHE_HOME": "/x", "HOME": "/root"}, tmp_path) == Path("/x/taco-launch/wheels")
    assert training.cache({"HOME": "/h"}, tmp_path) == Path("/h/.cache/taco-launch/wheels")
    assert training.cache({}, tmp_path) == tmp_path / ".cache/wheels"
    target = training.Target("3.11", "cpython-311-x86_64-linux-gnu", "4.1.4", "glibc 2.36")
    assert target.key("2.13.0+cpu") == "cpython-311-x86_64-linux-gnu-torch2.13.0+cpu-openmpi4.1.4-glibc2.36-cpu"
