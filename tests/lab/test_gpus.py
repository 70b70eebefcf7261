"""Jobs on two hosts of eight V100: which GPUs the guide's jobs get, and the same benchmark under every launcher."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab.rig import Cluster, Image, made
from tests.support.git_server import PASSWORD, USER, repository, served

# The first test waits for the hosts to be set up.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("mnist.py")
BENCHMARK = ("python3", "/opt/benchmark/pytorch_synthetic_benchmark.py", "--threads", "1")
TINY = (
    "--model", "tiny", "--image-size", "32", "--batch-size", "2",
    "--num-warmup-batches", "1", "--num-batches-per-iter", "1", "--num-iters", "2",
)  # fmt: skip
# The guide's models with as little to do as they take.
SMALL = (
    "--image-size", "32", "--batch-size", "2",
    "--num-warmup-batches", "0", "--num-batches-per-iter", "1", "--num-iters", "1",
)  # fmt: skip
# arena submit mpi --gpus=1 --workers=4 ... "mpirun --allow-run-as-root -np 4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO ..."
GUIDES_JOB = ("--workers", "4", "--gpus", "1", "--profile", "ack", "--interface", "eth0")
# What a rank sees, and then its command.
SEEN = ("sh", "-c", 'echo "sees $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES as $LOCAL_RANK"; exec "$@"', "sh")
# As cube-studio has people write it.
CUBE_STUDIO = (
    'echo "host $RANK of $WORLD_SIZE at $MASTER_PORT: $CUDA_VISIBLE_DEVICES"; exec python3 -m torch.distributed.launch '
    "--nproc_per_node=2 --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT "
)
TABLE = "RANKS  IMG/SEC  IMG/SEC PER RANK  LINEAR SPEEDUP\n"


class Hosts(Cluster):
    """Two hosts that are set up, and a person's inventory of them."""

    def uuids(self, host: str, gpus: Sequence[int]) -> str:
        """Return the UUIDs of GPUs as the host's own nvidia-smi has them, in its order."""
        listed = re.findall(r"UUID: (GPU-[0-9a-f-]+)", self.lab.inside(host, "nvidia-smi", "-L").stdout)
        assert len(listed) == 8
        return ",".join(listed[gpu] for gpu in gpus)

    def place(self, *args: str, **more: Any) -> dict[str, Any]:
        """Ask `place`, which asks no host."""
        done = self.lab.taco("place", "--gpus", "4", "--json", *args, **more)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    words = ("--hosts", "2", "--gpus", "v100x8", "--docker")
    with made("gpus", tmp_path_factory.mktemp("state"), *words, image=Image.TORCH) as lab:
        person = Hosts(lab, f"lab:{lab.name}")
        person.ok("setup", "--yes", seconds=400)
        yield person


@pytest.fixture(scope="module")
def captured(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the first host tells of itself, in a file."""
    file = tmp_path_factory.mktemp("facts") / "gpu1.json"
    file.write_text(hosts.ok("facts", "gpu1", "--json"))
    return str(file)


@pytest.fixture(scope="module")
def default(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    """The same hosts by an inventory that has them as the guide's label `default` does."""
    lab, file = hosts.lab, tmp_path_factory.mktemp("default") / "default.yaml"
    off = {"topology": "off"}
    lab.inventory(file, "gpu1", "gpu2", cluster=lab.name, slots=8, container=lab.training(), defaults=off)
    return Hosts(lab, str(file))


@pytest.fixture
def taken(hosts: Hosts) -> Iterator[None]:
    """GPU 2 of the first host is another job's, so that the lowest four that are free are not all linked by NVLinks."""
    hosts.ok("submit", "--name", "other", "--np", "1", "-H", "gpu1", "--gpu-ids", "2", "--", "sleep", "600")
    hosts.runs("other")
    yield
    hosts.ok("delete", "other")


@pytest.mark.parametrize(
    "model", ["tiny", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("vgg16", "resnet50"))]
)
@pytest.mark.usefixtures("taken")
def test_the_guides_jobs_with_and_without_topology(hosts: Hosts, default: Hosts, captured: str, model: str) -> None:
    by_links, output = placed(hosts, f"pytorch-topo-4-{model}", (*BENCHMARK, "--model", model, *SMALL), "--gputopology")
    assert f"gpu1/0 | Model: {model}\n" in output
    assert re.search(r"gpu1/0 \| Total img/sec on 4 GPU\(s\): [0-9.]+ \+-[0-9.]+\n", output)
    assert by_links == hosts.place("--topology", captured, "--free", "0,1,3-7")
    assert (by_links["gpus"], by_links["bottleneck_gbps"]) == ([4, 5, 6, 7], 25)
    assert by_links["why"].startswith("ring 4-7-6-5: NV2, NV2, NV2, NV1: slowest link 25 GB/s")
    # by the option, and by what stands in the place of the guide's label ack.node.gpu.schedule=default
    off = (default, ()) if model != "vgg16" else (hosts, ("--no-gputopology",))
    lowest, _output = placed(off[0], f"pytorch-4-{model}", ("true",), *off[1])
    predicted = hosts.place("--topology", captured, "--free", ",".join(map(str, lowest["gpus"])))
    figures = ("gpus", "ring", "bottleneck_gbps", "sum_gbps")
    assert (
        [lowest[name] for name in figures]
        == [predicted[name] for name in figures]
        == [[0, 1, 3, 4], [0, 3, 1, 4], 6, 162]
    )
    assert predicted["why"] == "ring 0-3-1-4: NV2, NV1, SYS, NV2: slowest link 6 GB/s"
    assert lowest["why"] == f"the lowest free indices, topology is off: {predicted['why']}"


def placed(hosts: Hosts, name: str, command: Sequence[str], *options: str) -> tuple[dict[str, Any], str]:
    """Run one of the guide's jobs, see that all tell of the same GPUs, and give what is told of them and its output."""
    job = (*GUIDES_JOB, *options)
    planned = json.loads(hosts.ok("run", *job, "--exclude", "gpu1:2", "--dry-run", "--explain", "--json", "--", "true"))
    output = hosts.ok("run", "--name", name, *job, "--", *SEEN, *command)
    found = hosts.job(name)
    assert [(share["host"], share["ranks"]) for share in found["shares"]] == [("gpu1", 4)]
    choice: dict[str, Any] = found["shares"][0]["choice"]
    assert choice == planned["choices"]["gpu1"]
    wide = hosts.ok("get", name, "-o", "wide")
    ring = "-".join(map(str, choice["ring"]))
    assert re.search(
        rf"^chosen +{','.join(map(str, choice['gpus']))} +{ring} +{choice['bottleneck_gbps']:g} ", wide, re.MULTILINE
    )
    instances = [f"{name}-launcher", *(f"{name}-worker-{number}" for number in range(4))]
    assert re.findall(r"^(\S+) +Succeeded .* gpu1$", hosts.ok("arena", "get", name), re.MULTILINE) == instances
    seen = hosts.uuids("gpu1", choice["gpus"])
    assert sorted(line for line in output.splitlines() if "| sees " in line) == [
        f"gpu1/{rank} | sees PCI_BUS_ID {seen} as {rank}" for rank in range(4)
    ]
    hosts.ok("delete", name)
    return choice, output


def test_place_reads_what_nvidia_smi_prints_there(hosts: Hosts, captured: str) -> None:
    matrix = hosts.lab.inside("gpu1", "nvidia-smi", "topo", "-m").stdout
    told = hosts.place("--topology", "-", "--model", "Tesla V100-SXM2", input=matrix)
    assert told == hosts.place("--topology", captured)
    assert (told["gpus"], [lost["gpus"] for lost in told["alternatives"]]) == (
        [0, 1, 2, 3],
        [[4, 5, 6, 7], [0, 3, 4, 7]],
    )


@pytest.mark.parametrize(
    "launcher",
    ["mpirun", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("torchrun", "env", "env --per-host"))],
)
def test_the_benchmark_gives_one_table(hosts: Hosts, launcher: str) -> None:
    each = 1 if "--per-host" in launcher else 2
    np, gpus = str(2 * each), (0, 3)[:each]
    where = ("--np", np, "-H", f"gpu1:{each},gpu2:{each}", "--launcher", *launcher.split())
    name = launcher.replace(" --", "-")
    table = hosts.ok("bench", "run", "--name", name, *where, "--", *SEEN, *BENCHMARK, *TINY)
    assert re.fullmatch(rf"{TABLE} +{np} +[0-9.]+ +[0-9.]+ +-\n", table), table
    (log,) = (hosts.lab.state / "ladders").glob(f"{name}-[0-9a-f]*[0-9a-f]/*.log")
    output = log.read_text()
    sample = json.loads(hosts.lab.taco("bench", "parse", "-", "--json", input=output).stdout)
    assert measured(sample["rows"]) == [(int(np), True, True)], sample
    same_lines(output, "gpu1/0", int(np))
    assert sorted(line for line in output.splitlines() if "| sees " in line) == [
        f"gpu{host}/{each * (host - 1) + local} | sees PCI_BUS_ID {hosts.uuids(f'gpu{host}', gpus)} as {local}"
        for host in (1, 2)
        for local in range(each)
    ]


@pytest.mark.nightly
def test_a_benchmark_at_two_sizes(hosts: Hosts) -> None:
    where = ("--np", "1,4", "-H", "gpu1:2,gpu2:2", "--json")
    rows = json.loads(hosts.ok("bench", "run", *where, "--", *BENCHMARK, *TINY))["rows"]
    assert measured(rows) == [(1, True, True), (4, True, True)]


def measured(rows: Sequence[dict[str, Any]]) -> list[tuple[int, bool, bool]]:
    return [(row["np"], row["img_per_sec"] > 0, row["img_per_sec_per_rank"] > 0) for row in rows]


def same_lines(output: str, rank: str, count: int) -> None:
    """See that a rank wrote the benchmark's lines, as every launcher has them."""
    lines = [line.partition(" | ")[2] for line in output.splitlines() if line.startswith(f"{rank} | ")]
    told = [re.sub(r"[0-9]+\.[0-9]", "V", line) for line in lines[lines.index("Model: tiny") :]]
    assert told == [
        "Model: tiny",
        "Batch size: 2",
        f"Number of GPUs: {count}",
        "No GPU is used: the ranks are CPU ranks",
        "Running warmup...",
        "Running benchmark...",
        "Iter #0: V img/sec per GPU",
        "Iter #1: V img/sec per GPU",
        "Img/sec per GPU: V +-V",
        f"Total img/sec on {count} GPU(s): V +-V",
    ]


def test_the_line_of_cube_studio(hosts: Hosts) -> None:
    """One process for each host, which starts one for each of its GPUs: RANK and WORLD_SIZE count hosts, then ranks."""
    line = CUBE_STUDIO + " ".join((*BENCHMARK[1:], *TINY))
    job = ("--launcher", "env", "--per-host", "--hosts", "2", "--slots-per-host", "2")
    output = hosts.ok("run", "--name", "cube", *job, "--", "bash", "-c", line)
    assert sorted(told for told in output.splitlines() if "| host " in told) == [
        f"gpu{1 + host}/{host} | host {host} of 2 at 23456: {hosts.uuids(f'gpu{1 + host}', (0, 3))}" for host in (0, 1)
    ]
    same_lines(output, "gpu1/0", 4)
    assert [(share["host"], share["ranks"], len(share["slots"])) for share in hosts.job("cube")["shares"]] == [
        ("gpu1", 1, 2),
        ("gpu2", 1, 2),
    ]
    hosts.ok("delete", "cube")


@pytest.fixture(scope="module")
def guides_image(hosts: Hosts) -> str:
    """The training image in the lab's registry, named as in Arena's guides, with their programs where they expect them."""
    name = "registry:5000/ai-samples/pytorch-with-tensorboard:1.5.1"
    added = "ln -s python3 /usr/bin/python && ln -s /opt/benchmark /examples"
    dockerfile = f"FROM {hosts.lab.status()['training_image']}\nRUN {added}\n"
    for words, text in (
        (("login", "-u", "lab", "--password-stdin", "registry:5000"), hosts.lab.password),
        (("build", "--quiet", "--network", "none", "--tag", name, "-"), dockerfile),
        (("push", "--quiet", name), ""),
    ):
        done = hosts.lab.inside("gpu1", "docker", *words, input=text, seconds=200)
        assert done.returncode == 0, done.stderr
    return name


@pytest.mark.nightly
def test_arenas_guide_of_pytorch(hosts: Hosts, guides_image: str, tmp_path: Path) -> None:
    """All its commands in their order, after `alias arena`: three workers, the master among them, one GPU each."""
    person = Hosts(hosts.lab, str(tmp_path / "hosts.yaml"))
    data = {"training-data": {"path": "/srv/training", "description": "MNIST"}}
    hosts.lab.inventory(
        Path(person.inventory),
        "gpu1",
        "gpu2",
        cluster=hosts.lab.name,
        slots=8,
        container=hosts.lab.training(),
        data=data,
    )
    for host in ("gpu1", "gpu2"):
        points = "".join(f"{x / 10} {x / 5 + 1}\\n" for x in range(10))
        hosts.lab.sh(
            host, f"mkdir -p /srv/training/pytorch_data && printf '{points}' >/srv/training/pytorch_data/points"
        )
    assert "0/16 (0%)" in person.ok("arena", "top", "node")
    assert re.search(r"^training-data +\S+ +MNIST", person.ok("arena", "data", "list"), re.MULTILINE)
    origin = repository(tmp_path / "srv" / "mnist-pytorch.git", {"mnist.py": PROGRAM.read_text()})
    folder = "/mnist_data/pytorch_data"
    with served(origin.parent, tmp_path / "tls") as server:
        person.ok(
            *("arena", "--loglevel", "info", "submit", "pytorch", "--name=pytorch-dist", "--gpus=1", "--workers=3"),
            *("--working-dir=/root", f"--image={guides_image}"),
            *("--sync-mode=git", f"--sync-source={server.url}/mnist-pytorch.git"),
            *("--data=training-data:/mnist_data", "--tensorboard", f"--logdir={folder}/logs"),
            *(f"--env=GIT_SYNC_USERNAME={USER}", f"--env=GIT_SYNC_PASSWORD={PASSWORD}"),
            f"python /root/code/mnist-pytorch/mnist.py --epochs 10 --backend gloo --dir {folder}/logs --data {folder}/",
            env=server.environment,
            seconds=300,
        )
    assert re.search(r"^pytorch-dist +\S+ +PYTORCHJOB ", person.ok("arena", "list"), re.MULTILINE)
    assert re.search(r"^pytorch-dist +3 +[03] +\S+ +PYTORCHJOB ", person.ok("arena", "top", "job"), re.MULTILINE)
    person.ok("wait", "pytorch-dist")
    for words in ((), ("--type", "pytorchjob")):
        told = person.ok("arena", "get", "pytorch-dist", *words)
        for instance in ("master-0", "worker-0", "worker-1"):
            assert f"pytorch-dist-{instance}" in told
    assert "ensor" in told  # where its TensorBoard is
    for rank, instance in enumerate(("master-0", "worker-0", "worker-1")):
        words = () if rank == 0 else ("-i", f"pytorch-dist-{instance}")
        lines = person.ok("arena", "logs", "pytorch-dist", *words).splitlines()
        assert f"WORLD_SIZE: 3, CURRENT_RANK: {rank}" in lines
        assert lines[-1].startswith("Train Epoch: 10 loss=")
    assert len(person.ok("arena", "logs", "pytorch-dist", "-t", "5").splitlines()) == 5
    assert "events.out.tfevents" in hosts.lab.sh("gpu1", "ls /srv/training/pytorch_data/logs")
    person.ok("arena", "delete", "pytorch-dist")


@pytest.mark.nightly
def test_arenas_guide_of_topology(hosts: Hosts, guides_image: str) -> None:
    """Its line of vgg16, with the smallest pictures and batches, on four GPUs of one host that NVLinks join."""
    line = (
        "mpirun --allow-run-as-root -np 4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 "
        "-x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "
        "--mca orte_keep_fqdn_hostnames t --mca btl ^openib python /examples/pytorch_synthetic_benchmark.py --model=vgg16"
    )
    hosts.ok(
        *("arena", "submit", "mpi", "--name=pytorch-topo-4-vgg16", "--gpus=1", "--workers=4", "--gputopology=true"),
        f"--image={guides_image}",
        f"{line} {' '.join(SMALL)} --threads 1",
        seconds=300,
    )
    shown = hosts.ok("arena", "get", "pytorch-topo-4-vgg16", "--type", "mpijob")
    assert re.search(r"pytorch-topo-4-vgg16-launcher +\S+ +\S+ +true +0 ", shown)
    assert len(re.findall(r"pytorch-topo-4-vgg16-worker-[0-3] +\S+ +\S+ +false +1 ", shown)) == 4
    followed = hosts.ok("arena", "logs", "-f", "pytorch-topo-4-vgg16", seconds=200)
    assert re.search(r"^gpu1/0 \| Total img/sec on 4 GPU\(s\): [0-9.]+ \+-[0-9.]+$", followed, re.MULTILINE)
    assert hosts.job("pytorch-topo-4-vgg16")["state"] == "SUCCEEDED"
    hosts.ok("arena", "delete", "pytorch-topo-4-vgg16")


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("env", marks=pytest.mark.nightly)])
def test_the_first_rank_that_fails_stands_at_the_end(hosts: Hosts, launcher: str) -> None:
    fails = "for line in $(seq 30); do echo line $line; done; sleep 1; exit 7"
    script = f"[ $RANK = 3 ] && {{ {fails}; }}; trap 'echo ended; exit 1' TERM; sleep 60 & wait"
    job = ("--np", "4", "-H", "gpu1:2,gpu2:2", "--launcher", launcher)
    done = hosts("run", "--name", f"fails-{launcher}", *job, "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    lines = [f"  line {number}" for number in range(11, 31)]
    log = f"gpu2:/var/lib/taco-launch/containers/{hosts.lab.name}/jobs/fails-{launcher}/logs/rank-3.0.log"
    *_, reason = [line for line in done.stderr.splitlines() if line.startswith(f"job fails-{launcher}: FAILED after ")]
    assert ": rank 3 on gpu2 exited with code 7" in reason
    assert done.stderr.splitlines()[-22:] == [
        f"the last lines of rank 3 on gpu2 ({log}):",
        *lines,
        f"its log: taco-launch -i {hosts.inventory} logs fails-{launcher} (that rank alone: --rank 3)",
    ]
    told = hosts.ok("get", f"fails-{launcher}")
    assert "\n".join([f"LAST LINES OF RANK 3 on gpu2 ({log}):", *lines]) in told
    host, path = log.split(":")
    assert hosts.lab.inside(host, "tail", "-n", "1", path).stdout == "line 30\n"
    hosts.ok("delete", f"fails-{launcher}")
