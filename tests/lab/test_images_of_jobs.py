"""Jobs of two images side by side, with data of their own, on hosts that `setup` made ready for one image."""

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.lab.docker import hosts
from tests.conftest import eventually
from tests.lab.rig import Cluster, Lab, docker
from tests.support.browser import find, page
from tests.support.git_server import PASSWORD, USER, repository, served
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(600)]
IMAGE = "taco-test-second:1"
BOARD = "taco-test-board:1"
SCALARS = Path(__file__).parents[1] / "e2e" / "scalars.py"
DATA = "/srv/set:/data:ro"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package that no index has, and requirements that name it."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "wheels").mkdir()
    files = {
        "tacotest.py": 'VALUE = "from the wheel"\n',
        "tacotest-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: tacotest\nVersion: 1\n",
        "tacotest-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, "tacotest-1.dist-info/RECORD"))
    with zipfile.ZipFile(folder / "wheels" / "tacotest-1-py3-none-any.whl", "w") as written:
        for name, text in (*files.items(), ("tacotest-1.dist-info/RECORD", record)):
            written.writestr(name, text)
    (folder / "requirements.txt").write_text("tacotest==1\n")
    return folder


def image_of_hosts(lab: Lab) -> str:
    """Load the image of the hosts' containers into the controller's engine; return its name."""
    name = lab.sh("gpu1", "docker images --format '{{.Repository}}:{{.Tag}}' | grep train-base").strip()
    (host,) = [each.container for each in hosts.find(lab.name) if each.host.name == "gpu1"]
    with subprocess.Popen(("docker", "exec", host, "docker", "save", name), stdout=subprocess.PIPE) as saved:
        subprocess.run(("docker", "load"), stdin=saved.stdout, check=True)
    return name


@pytest.fixture(scope="module")
def second(cluster: Cluster, wheel: Path) -> Iterator[Cluster]:
    """The cluster; on the controller there is a second image, made by `image build`, and hosts have data."""
    words = ("--requirements", str(wheel / "requirements.txt"), "--wheels", str(wheel / "wheels"))
    cluster.ok("image", "build", "--from", image_of_hosts(cluster.lab), *words, "--tag", IMAGE, seconds=200)
    for host in ("gpu1", "gpu2"):
        cluster.lab.sh(host, "mkdir -p /srv/set && echo hello >/srv/set/file")
    yield cluster
    cluster("prune", "--older-than", "365d", "--unused", "0s")
    docker("image", "rm", "--force", IMAGE)


def test_two_images_side_by_side_and_data_that_is_read_only(second: Cluster) -> None:
    look = "import tacotest; print(tacotest.VALUE, open('/data/file').read().strip())"
    done = second("run", "--image", IMAGE, "--data", DATA, "--np", "4", "--", "python3", "-c", look, seconds=300)
    assert done.stdout.count("from the wheel hello") == 4, done.stderr
    # the package alone, of an image of some 500 MB
    few = r"the hosts already have [1-9][0-9]* of its layers; copying the remaining (?:[0-9.]+ KiB|[1-4](?:\.[0-9]+)? MiB)\b"
    assert re.search(few, done.stderr), done.stderr
    own = ("submit", "--np", "1", "-H", "gpu1", "--name")
    second.ok(*own, "one", "--", "sleep", "300")
    second.ok(*own, "two", "--image", IMAGE, "--data", DATA, "--", "sh", "-c", "touch /data/x; sleep 300")
    second.runs("one")
    second.runs("two")
    assert "Read-only file system" in second.ok("logs", "two")
    assert second.ok("exec", "two", "--", "cat", "/data/file") == "hello\n"
    assert second("exec", "one", "--", "cat", "/data/file").returncode != 0
    held = second.ok("top", "node", "-o", "wide")
    assert "job one" in held
    assert "job two" in held
    second.ok("prune", "--older-than", "365d", "--unused", "0s")  # it is needed
    assert "two" in second.ok("image", "list")
    second.ok("stop", "two")
    second.ok("stop", "one")


def test_into_the_container_of_a_job(second: Cluster, tmp_path: Path) -> None:
    second.ok("submit", "--name", "own", "--image", IMAGE, "--data", DATA, "--np", "4", "--", "sleep", "300")
    second.runs("own")
    second.ok("export", "ssh-config", "--job", "own", "--to", str(tmp_path / "ssh"))
    for host in ("gpu1", "gpu2"):
        words = ("ssh", "-F", str(tmp_path / "ssh"), f"own-{host}", "hostname; cat /data/file")
        done = subprocess.run(words, env=second.env, capture_output=True, text=True, check=False, timeout=patience(60))
        assert (done.returncode, done.stdout) == (0, f"{host}\nhello\n"), done.stderr
    second.ok("stop", "own", "--grace", "0")


def test_a_browser_shows_the_tensorboard_of_a_job_with_an_image(second: Cluster, tmp_path: Path) -> None:
    """TensorBoard is in the job's image alone, and the code comes by --sync."""
    browser = find()
    look = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = second.ok("run", "--np", "1", "--", "python3", "-c", look).split()[-1]
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version", version)
    subprocess.run((*pip, "--dest", str(tmp_path / "wheels"), "tensorboard"), check=True, timeout=patience(200))
    (tmp_path / "requirements.txt").write_text("tensorboard\n")
    words = ("--requirements", str(tmp_path / "requirements.txt"), "--wheels", str(tmp_path / "wheels"))
    second.ok("image", "build", "--from", IMAGE, *words, "--tag", BOARD, seconds=200)
    (tmp_path / "code").mkdir()
    shutil.copy(SCALARS, tmp_path / "code")
    job = ("--name", "curve", "--image", BOARD, "--sync", str(tmp_path / "code"), "--launcher", "env")
    board = ("--tensorboard", "--tensorboard-grace", "1s")  # the job's container is removed by a test below
    second.ok("submit", *job, *board, "--np", "2", "--", "python3", "scalars.py", "runs/one", "600", seconds=300)
    second.runs("curve")
    with second.start("tensorboard", "curve", "--port", "0") as opened:
        assert opened.stdout is not None
        shown = page(browser, f"{opened.stdout.readline().strip()}#timeseries", "38.125", tmp_path)
        assert ">loss<" in shown
        os.kill(opened.pid, signal.SIGINT)
    second.ok("stop", "curve", "--grace", "0")
    docker("image", "rm", "--force", BOARD)


def test_the_lines_of_arenas_guides(second: Cluster, tmp_path: Path) -> None:
    """A job of three workers out of a repository with a password, with an image and data; and one of mpirun."""
    program = (
        "import os\nfrom pathlib import Path\n"
        'print("CURRENT_RANK:", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], open("/mnist_data/file").read().strip())\n'
        'Path("out").mkdir(exist_ok=True)\nPath("out", os.environ["RANK"]).write_text("result")\n'
    )
    origin = repository(tmp_path / "srv" / "mnist-pytorch.git", {"mnist.py": program})
    with served(origin.parent, tmp_path / "tls") as server:
        second.ok(
            *("arena", "submit", "pytorch", "--name=pytorch-dist", "--gpus=0", "--workers=3", f"--image={IMAGE}"),
            *("--sync-mode=git", f"--sync-source={server.url}/mnist-pytorch.git", "--data=/srv/set:/mnist_data"),
            *(f"--env=GIT_SYNC_USERNAME={USER}", f"--env=GIT_SYNC_PASSWORD={PASSWORD}", "--cpu=1"),
            "python3 code/mnist-pytorch/mnist.py --epochs 10 --backend gloo",
            env=server.environment,
            seconds=300,
        )
    second("wait", "pytorch-dist")
    shown = second.ok("arena", "get", "pytorch-dist", "--type", "pytorchjob")
    assert "Status: SUCCEEDED" in shown, shown
    assert re.search(r"pytorch-dist-worker-1 +Succeeded +\S+ +false +1 +gpu[12]", shown)
    assert second.ok("arena", "logs", "pytorch-dist") == "CURRENT_RANK: 0 of 3 hello\n"
    assert second.ok("arena", "logs", "pytorch-dist", "-i", "pytorch-dist-worker-1", "-t", "1").startswith(
        "CURRENT_RANK: 2"
    )
    assert "pytorch-dist" in second.ok("arena", "list")
    for rank in ("0", "2"):  # one on each host
        second.ok("cp", "--rank", rank, f"pytorch-dist:out/{rank}", str(tmp_path / rank))
        assert (tmp_path / rank).read_text() == "result"
    line = "mpirun --allow-run-as-root -np 4 -bind-to none -map-by slot -x A=1 --mca btl ^openib sh -c 'echo $A on $(hostname)'"
    second.ok(
        "arena",
        "submit",
        "mpi",
        "--name=topo",
        "--workers=4",
        "--gputopology=true",
        f"--image={IMAGE}",
        line,
        seconds=300,
    )
    second("wait", "topo")
    assert second.ok("arena", "logs", "topo").count("1 on gpu") == 4
    assert "topo-launcher" in second.ok("arena", "get", "topo", "--type", "mpijob")
    second.ok("arena", "delete", "topo", "pytorch-dist")


def test_hosts_whose_images_differ_start_no_rank(second: Cluster) -> None:
    (line,) = [line for line in second.ok("image", "list").splitlines() if "/data" in line]
    file = f"/var/lib/taco-launch/clusters/*/variants/{line.split()[0]}/image"
    second.lab.sh(
        "gpu2", f"cp {file} /root/image; echo sha256:{'0' * 64} >/root/other; cat /root/other | tee {file} >/dev/null"
    )
    try:
        done = second("run", "--image", IMAGE, "--data", DATA, "--np", "4", "--", "hostname")
    finally:
        second.lab.sh("gpu2", f"cat /root/image | tee {file} >/dev/null")
    assert done.returncode != 0
    assert "have different images" in done.stderr
    assert "gpu2" in done.stderr
    assert done.stdout == ""


def test_a_supervisor_that_is_killed_leaves_nothing_on_any_host(second: Cluster) -> None:
    second.ok("submit", "--name", "killed", "--image", IMAGE, "--data", DATA, "--np", "4", "--", "sleep", "777")
    second.runs("killed")
    kill = 'for p in /proc/[0-9]*; do case $(tr "\\0" " " <$p/cmdline) in *" run "*/killed*) kill -9 ${p#/proc/} ;; esac; done'
    second.lab.sh("gpu1", f"docker exec taco-launch-{second.lab.name}-jobs sh -c '{kill}' 2>/dev/null || :")
    eventually(lambda: second.job("killed")["state"] == "LOST", 40, "the job to be lost")
    for host in ("gpu1", "gpu2"):
        assert second.lab.sh(host, "pgrep -fc '^sleep 777' || :").strip() == "0"


def test_prune_removes_what_nobody_needs(second: Cluster) -> None:
    second.ok("prune", "--older-than", "365d", "--unused", "0s")
    assert IMAGE not in second.ok("image", "list")
    for host in ("gpu1", "gpu2"):
        left = second.lab.sh(
            host, f"docker ps -a --format '{{{{.Names}}}}' | grep -c '[.]{second.lab.name}-jobs$' || :"
        )
        assert left.strip() == "0"
        assert second.lab.sh(host, f"ls -d /etc/taco-launch/{second.lab.name}-jobs@* 2>/dev/null || :") == ""
