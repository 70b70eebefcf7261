"""The training image: in the registry after `lab up`, also of a new lab, and what images are added to by docker/train-from."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.core.errors import TacoLaunchError
from taco_launch.lab.images import training
from tests.lab.rig import Lab, docker, made
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

ROOT = Path(training.__file__).parents[3]
TRAIN = "import horovod.torch as hvd; hvd.init(); print(hvd.rank(), hvd.size())"


def training_up(user: Lab, *args: str) -> str:
    """Bring a lab up with its training image; give what that said."""
    done = user.verb("up", *args)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of one host, made without the training image."""
    with made("train", tmp_path_factory.mktemp("state"), "--hosts", "1", "--docker") as lab:
        yield lab


@pytest.fixture(scope="module")
def trained(bare: Lab) -> Lab:
    """The same lab, with the image."""
    try:
        training.recipe()
    except TacoLaunchError as error:
        pytest.skip(f"cannot: {error}")
    training_up(bare)
    return bare


def inventory(user: Lab) -> str:
    return user.cluster.ok("inventory", "--json")


def test_a_lab_without_it(bare: Lab) -> None:
    assert bare.status()["training_image"] is None
    assert (
        f"no image (taco-launch lab up --name {bare.name} adds one if it is run from a checkout; or use "
        in bare.verb("status").stdout
    )
    assert '"container": null' in inventory(bare)


def test_without_a_checkout_the_lab_is_up_all_the_same(bare: Lab, tmp_path: Path) -> None:
    """As installed from a wheel: the package alone, with nothing beside it."""
    code = (
        "import sys; from pathlib import Path; from taco_launch.lab.images import training; "
        f"training.recipe.__defaults__ = (Path({str(tmp_path)!r}),); "
        "from taco_launch.cli.main import main; sys.argv[0] = 'taco-launch'; main()"
    )
    argv = [bare.argv()[0], "-c", code, "lab", "up", "--yes", "--name", bare.name]
    done = subprocess.run(argv, env=bare.env, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 0, done.stderr
    assert f"no training image: docker/train-cpu/Dockerfile is not in {tmp_path}" in done.stderr
    assert "taco-launch lab push IMAGE" in done.stderr
    assert bare.status()["training_image"] is None


def test_the_lab_names_its_image(trained: Lab) -> None:
    image = f"registry:5000/{training.recipe().name}"
    assert trained.status()["training_image"] == image
    assert f"Training: {image}\n" in trained.verb("status").stdout
    assert f'"image": "{image}"' in inventory(trained)
    assert str(trained.folder / "registry-password") in inventory(trained)


@pytest.mark.nightly
def test_a_new_lab_has_it_at_once(trained: Lab) -> None:
    """The images of a registry outlive its lab, and a second lab beside the first has them as well."""
    other = Lab(f"{trained.name}-other", trained.state)
    try:
        said = training_up(other, "--hosts", "1")
        assert "training image" not in said  # neither made nor put into the registry
        assert other.status()["training_image"] == trained.status()["training_image"]
    finally:
        down = other.verb("down")
    assert down.returncode == 0, down.stderr


@pytest.mark.nightly
def test_images_that_another_lab_stands_on_stay(trained: Lab) -> None:
    """Others of this machine's images go, so nothing else may be at work on labs."""
    other = Lab(f"{trained.name}-other", trained.state)
    try:
        other.up("--hosts", "1")
    finally:
        down = other.verb("down", "--images")  # the lab beside it holds what it is on
    assert down.returncode == 0, down.stderr
    assert "the images in the registry stay: another lab uses the registry" in down.stderr
    assert re.search(r"kept for the next lab: taco-launch-lab:.* taco-launch-lab-registry \(the reg", down.stderr)
    assert "nothing changed" in training_up(trained)


@pytest.mark.nightly
def test_a_host_pulls_it_and_trains(trained: Lab) -> None:
    password = trained.password
    login = ("docker", "login", "-u", "lab", "--password-stdin", "registry:5000")
    assert trained.inside("gpu1", *login, input=password).returncode == 0
    image = trained.status()["training_image"]
    assert trained.inside("gpu1", "docker", "pull", "--quiet", image).returncode == 0
    mpirun = ("mpirun", "--allow-run-as-root", "-H", "localhost:2", "-np", "2", "python3", "-c", TRAIN)
    options = ("--rm", "--net=host", "--shm-size=256m", "--cap-add=SYS_PTRACE")
    done = trained.inside("gpu1", "docker", "run", *options, image, *mpirun)
    assert sorted(done.stdout.splitlines()) == ["0 2", "1 2"], done.stderr
    for absent in ("cmake", "git"):  # Horovod is built elsewhere; pip and g++ are for packages that people add
        assert trained.inside("gpu1", "docker", "run", *options, image, "sh", "-c", f"command -v {absent}").stdout == ""
    listed = trained.inside("gpu1", "docker", "run", *options, image, "sh", "-c", "command -v sshd; ls /etc/ssh")
    assert "/usr/sbin/sshd" in listed.stdout
    assert "ssh_host" not in listed.stdout  # no key that all who have the image know


@pytest.mark.nightly
def test_push_of_an_image_of_ones_own(trained: Lab) -> None:
    host = docker("inspect", "--format", "{{.Config.Image}}", trained.container("gpu1"))
    docker("tag", host, f"{trained.name}/mine:1")
    try:
        done = trained.verb("push", f"{trained.name}/mine:1")
    finally:
        docker("image", "rm", f"{trained.name}/mine:1")
    assert (done.returncode, done.stdout) == (0, f"registry:5000/{trained.name}/mine:1\n"), done.stderr
    tags = ("curl", "--silent", "--config", "-", f"https://registry:5000/v2/{trained.name}/mine/tags/list")
    told = trained.inside("gpu1", *tags, input=f"user = lab:{trained.password}\n").stdout
    assert '"tags":["1"]' in told
    missing = trained.verb("push", "nowhere:1")
    assert missing.returncode == 1
    assert "the Docker Engine of this machine has no image nowhere:1" in missing.stderr
    assert "hint: docker pull nowhere:1" in missing.stderr


@pytest.fixture(scope="module")
def plain(bare: Lab) -> str:
    """An image with none of what training needs but sshd: that of the lab's hosts."""
    return docker("inspect", "--format", "{{.Config.Image}}", bare.container("gpu1"))


@pytest.mark.nightly
def test_train_from_adds_what_is_missing_once(bare: Lab, plain: str) -> None:
    tag = f"{bare.name}-train-from"
    build = ("docker", "build", "--network", "host", "--tag", tag, str(ROOT / "docker/train-from"), "--build-arg")
    try:
        first = subprocess.run((*build, f"BASE={plain}"), capture_output=True, text=True, check=False)
        assert first.returncode == 0, first.stderr
        assert (
            "add.sh: installing openmpi-bin python3 libibverbs1 ibverbs-providers librdmacm1 (apt-get)" in first.stdout
        )
        again = ("docker", "run", "--rm", "--network", "none", tag, "/bin/sh", "/usr/local/share/taco-launch/add.sh")
        second = subprocess.run(again, capture_output=True, text=True, check=False)
        assert (second.returncode, "installing" in second.stdout) == (0, False), second.stderr
        assert "sshd, mpirun, Python 3." in second.stdout
    finally:
        subprocess.run(("docker", "image", "rm", tag), capture_output=True, check=False)


SIMULATED_DNF = """#!/bin/sh
# simulated: what dnf leaves on RHEL 9
[ "$1" = clean ] && exit
echo "dnf $*"
mkdir -p /usr/lib64/openmpi/bin /usr/lib64/libibverbs
for program in mpirun orted; do printf '#!/bin/sh\\n' >"/usr/lib64/openmpi/bin/$program"; done
chmod +x /usr/lib64/openmpi/bin/*
: >/usr/lib64/libibverbs.so.1
: >/usr/lib64/libibverbs/libmlx5-rdmav34.so
printf '#!/bin/sh\\ncase $1 in -c) exit %s ;; *) echo "Python 3.6.8" ;; esac\\n' "$OLD" >/usr/bin/python3
chmod +x /usr/bin/python3
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("old", "code", "said"), [("0", 0, "are there"), ("1", 1, "python3 is Python 3.6.8, and 3.8 is")]
)
def test_train_from_on_rhel_simulated(plain: str, old: str, code: int, said: str) -> None:
    script = (ROOT / "docker/train-from/add.sh").read_text("utf-8")
    prepare = 'rm /usr/bin/apt-get; cat >/usr/bin/dnf; chmod +x /usr/bin/dnf; sh -c "$ADD" && ls -l /usr/local/bin'
    argv = (
        "docker",
        "run",
        "--rm",
        "-i",
        "--env",
        "ADD",
        "--env",
        "OLD",
        "--network",
        "none",
        plain,
        "sh",
        "-c",
        prepare,
    )
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/usr/local/bin", "ADD": script, "OLD": old}
    done = subprocess.run(argv, input=SIMULATED_DNF, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "dnf install -y openmpi python3 libibverbs librdmacm" in done.stdout
    assert said in done.stdout + done.stderr
    if not code:
        assert "orted -> /usr/lib64/openmpi/bin/orted" in done.stdout
