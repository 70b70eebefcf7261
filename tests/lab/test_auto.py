"""The line that the profile `auto` makes for simulated machines, by what is wrong with them; and one that is run."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.lab.rig import Done, Lab, made

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

HOSTS = ("gpu1", "gpu2")
OLD, NEW = "2.9.9", "2.21.5"
# The line of two hosts of a kind; what is between has to do with the network.
LINE = (
    "mpirun -np 16 -H gpu1:8,gpu2:8 --allow-run-as-root --bind-to none --map-by slot -x PATH -x NCCL_DEBUG=WARN "
    "-x NCCL_SOCKET_IFNAME==bond0 {} --mca pml ob1 --mca coll '^hcoll' --mca btl '^openib,ofi' "
    "--mca btl_tcp_if_include bond0 --mca oob_tcp_if_include bond0 true"
)
# What hangs on how many CPUs the machine has that all simulated hosts share.
_OF_CPUS = re.compile(r" -x OMP_NUM_THREADS=\d+( --mca mpi_yield_when_idle 1)?")
EIGHT = "=" + ",".join(f"mlx5_{number}:1" for number in range(8))
_MPI = """export DEBIAN_FRONTEND=noninteractive
apt-get --quiet --quiet update
apt-get --quiet --quiet install --yes --no-install-recommends openmpi-bin >/dev/null
"""


@dataclass(frozen=True)
class Planned:
    """What a dry run says: the plan, where there is one, else why not."""

    code: int
    document: dict[str, Any]
    stderr: str

    @property
    def network(self) -> str:
        """What the line says of RDMA, with the rest of it as it has to be."""
        before, after = LINE.split("{}")
        line = _OF_CPUS.sub("", str(self.document["line"]))
        assert line.startswith(before), line
        assert line.endswith(after), line
        return line[len(before) : len(line) - len(after)]

    @property
    def own(self) -> list[Any]:
        """What each host is given besides the interface of torch's own libraries, which all are."""
        found = [
            [host, [pair for pair in pairs if not pair[0].endswith(("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"))]]
            for host, pairs in self.document["host_env"]
        ]
        return [each for each in found if each[1]]

    @property
    def warnings(self) -> list[str]:
        others = ("~/.ssh/config", "ranks share CPUs")
        return [text for text in self.document["warnings"] if not any(words in text for words in others)]

    def why(self, word: str) -> str:
        return next(str(token["why"]) for token in self.document["tokens"] if token["text"].startswith(word))


@dataclass(frozen=True)
class Planner:
    """Plan jobs for two machines of one kind, by inventories that differ in what they say of network and NCCL."""

    lab: Lab
    folder: Path

    def taco(self, *args: str, network: Mapping[str, Any] | None = None, nccl: str = OLD) -> Done:
        """Run a command with an inventory that says this of the network, and which NCCL the image has."""
        file = self.folder / "cluster.yaml"
        return self.lab.inventory(file, *HOSTS, slots=8, network=network or {}, versions={"nccl": nccl})(*args)

    def plan(self, *args: str, **inventory: Any) -> Planned:
        done = self.taco("run", "--np", "16", "--dry-run", "--json", *args, "--", "true", **inventory)
        return Planned(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)

    def on(self, host: str, script: str) -> str:
        return self.lab.sh(host, f"set -e\n{script}")

    @contextmanager
    def changed(self, host: str, script: str, back: str) -> Iterator[None]:
        self.on(host, script)
        try:
            yield
        finally:
            self.on(host, back)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Planner]]:
    """Make two machines of a kind, in the place of those of the kind before."""
    with ExitStack() as up:

        def of(kind: str) -> Planner:
            up.close()
            folder = tmp_path_factory.mktemp(kind)
            return Planner(up.enter_context(made(kind, folder / "state", "--hosts", "2", "--gpus", kind)), folder)

        yield of


@pytest.fixture(scope="module")
def roce(machines: Callable[[str], Planner]) -> Planner:
    """Two of the guide's machines, with Open MPI."""
    planner = machines("a100x8")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda host: planner.on(host, _MPI), HOSTS))
    return planner


@pytest.fixture(scope="module")
def infiniband(machines: Callable[[str], Planner]) -> Planner:
    """Two machines of eight InfiniBand HCAs and a bond for management."""
    planner = machines("h100x8")
    for host in HOSTS:  # what it would say of itself: there is no Open MPI
        planner.on(
            host, "printf '#!/bin/sh\\necho mpirun \"(Open MPI)\" 4.1.4\\n' >/usr/bin/mpirun; chmod +x /usr/bin/mpirun"
        )
    return planner


AGAIN = "simulated-hardware set hca/mlx5_bond_0/state ACTIVE"
AS_IT_WAS = f"rm -f /run/simulated-hardware/addresses; {AGAIN}"


def addresses(*given: str) -> str:
    """Return the HCA these addresses, in this order, whatever its interface has."""
    return f"printf '%s\\n' {' '.join(given)} | sed '/^$/d' >/run/simulated-hardware/addresses; {AGAIN}"


def test_gpudirect_rdma_where_every_host_has_peer_memory(roce: Planner) -> None:
    """The guide's machines: none has it, then one, then both."""
    hca = "-x NCCL_IB_HCA==mlx5_bond_0:1 -x NCCL_IB_GID_INDEX=3"
    for loads, lacking in ((None, "gpu1, gpu2"), ("gpu1", "gpu2")):
        if loads:
            roce.on(loads, "modprobe nvidia_peermem")
        found = roce.plan()
        assert found.network == f"{hca} -x NCCL_NET_GDR_LEVEL=LOC"
        reason = f"{lacking}: neither nvidia_peermem nor nv_peer_mem is loaded"
        assert reason in found.why("NCCL_NET_GDR_LEVEL")
        assert [text for text in found.warnings if reason in text and "setup --only peermem" in text] == found.warnings
        for refused in (roce.plan("--gdr"), roce.plan(network={"gdr": "on"})):
            assert refused.code == 5
            assert reason in refused.stderr
            assert "setup --only peermem" in refused.stderr
        assert roce.plan("--no-gdr").warnings == roce.plan(network={"gdr": "off"}).warnings == []
    roce.on("gpu2", "modprobe nvidia_peermem")
    for found in (roce.plan(), roce.plan("--gdr")):
        assert (found.network, found.warnings) == (f"{hca} -x NCCL_NET_GDR_LEVEL=PXB", [])
    assert "gpu1, gpu2: nvidia_peermem is loaded" in roce.plan().why("NCCL_NET_GDR_LEVEL")
    assert "NCCL 2.9.9" in roce.plan().why("NCCL_IB_GID_INDEX")


@pytest.mark.nightly
def test_hosts_whose_gid_indices_differ(roce: Planner) -> None:
    own = {host: roce.lab.address(host) for host in HOSTS}
    with (
        roce.changed("gpu1", addresses("192.168.7.1", own["gpu1"]), AS_IT_WAS),
        roce.changed("gpu2", addresses("192.168.7.2", "192.168.8.2", own["gpu2"]), AS_IT_WAS),
    ):
        found = roce.plan()
        assert "NCCL_IB_GID_INDEX" not in found.network
        env = [[["NCCL_IB_GID_INDEX", "5"]], [["NCCL_IB_GID_INDEX", "7"]]]
        assert found.own == [[host, pairs] for host, pairs in zip(HOSTS, env, strict=True)]
        assert any("differs from host to host (gpu1 5, gpu2 7)" in text for text in found.warnings)
        subnet = own["gpu1"].rpartition(".")[0]
        new = roce.plan(nccl=NEW)
        assert f"-x NCCL_IB_ADDR_RANGE={subnet}.0/24 " in new.network
        assert new.own == new.warnings == []
        mine = roce.plan(network={"gid_index": 5})
        assert "-x NCCL_IB_GID_INDEX=5" in mine.network
        assert ["at 7 on gpu2: check the inventory" in text for text in mine.warnings] == [True]


@pytest.mark.parametrize(
    ("script", "back", "reason"),
    [
        (addresses(""), AS_IT_WAS, "mlx5_bond_0:1: it has no GID of RoCE v2 over IPv4 on bond0"),
        pytest.param(
            "simulated-hardware set hca/mlx5_bond_0/state DOWN",
            "simulated-hardware set hca/mlx5_bond_0/state ACTIVE",
            "mlx5_bond_0:1 is DOWN",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_one_host_without_rdma(roce: Planner, script: str, back: str, reason: str) -> None:
    """Link-local GIDs alone, or the only HCA down: TCP for all, or a refusal."""
    with roce.changed("gpu2", script, back):
        found = roce.plan()
        assert found.network == "-x NCCL_IB_DISABLE=1"
        assert [f"gpu2: {reason}" in text for text in found.warnings] == [True]
        for refused in (roce.plan("--transport", "rdma"), roce.plan(network={"rdma": "on"})):
            assert refused.code == 5
            assert f"gpu2: {reason}" in refused.stderr
            assert "--transport tcp" in refused.stderr
        off = roce.plan(network={"rdma": "off"})
        assert (off.network, off.warnings) == ("-x NCCL_IB_DISABLE=1", [])
        assert (
            roce.taco("run", "--np", "8", "-H", "gpu1:8", "--dry-run", "--transport", "rdma", "--", "true").returncode
            == 0
        )


def test_the_line_runs(roce: Planner) -> None:
    """As it is pasted, over TCP: NCCL does not exist, and what its ranks would read is."""
    key = roce.lab.key.read_text()
    roce.on("gpu1", f"umask 077; cat >~/.ssh/id_ed25519 <<'KEY'\n{key}KEY\nssh-keyscan gpu2 >~/.ssh/known_hosts")
    asked = ("run", "--np", "4", "-H", "gpu1:2,gpu2:2", "--dry-run", "--json", "--", "sh", "-c", "hostname; env")
    done = roce.taco(*asked, network={"rdma": "off"})
    line = json.loads(done.stdout)["line"]
    words = roce.lab.sh("gpu1", line).splitlines()
    assert [words.count(host) for host in HOSTS] == [2, 2], shlex.split(line)
    assert words.count("NCCL_IB_DISABLE=1") == words.count("NCCL_SOCKET_IFNAME==bond0") == 4


@pytest.mark.nightly
def test_eight_hcas_and_a_bond_for_management(infiniband: Planner) -> None:
    found = infiniband.plan(nccl="2.18.3")
    assert found.network == f"-x NCCL_IB_HCA={EIGHT} -x NCCL_NET_GDR_LEVEL=PXB"
    assert (
        "not used: mlx5_bond_0:1 is Ethernet, but a job uses ports of one link layer only, here InfiniBand"
        in found.why("NCCL_IB_HCA")
    )
    assert "DMA-BUF" in found.why("NCCL_NET_GDR_LEVEL")
    assert found.warnings == []
    # an NCCL that knows no DMA-BUF
    old = infiniband.plan()
    assert old.network == f"-x NCCL_IB_HCA={EIGHT} -x NCCL_NET_GDR_LEVEL=LOC"
    assert ["NCCL 2.9.9 does not support DMA-BUF" in text for text in old.warnings] == [True]


@pytest.mark.nightly
def test_one_hca_of_eight_is_down(infiniband: Planner) -> None:
    state = "simulated-hardware set hca/mlx5_3/state"
    with infiniband.changed("gpu2", f"{state} DOWN", f"{state} ACTIVE"):
        found = infiniband.plan(nccl="2.18.3")
    assert found.network == f"-x NCCL_IB_HCA={EIGHT} -x NCCL_NET_GDR_LEVEL=PXB"
    assert [
        "gpu2: only 7 of the 8 RDMA ports that the job" in text and "mlx5_3:1 is DOWN" in text
        for text in found.warnings
    ] == [True]


@pytest.mark.nightly
def test_an_hca_that_is_called_otherwise_on_one_host(infiniband: Planner) -> None:
    def renamed(old: str, new: str) -> str:
        return (
            f"cd /var/lib/simulated-hardware/hca; simulated-hardware set hca/{old}/state gone; mv {old} {new}; "
            f"simulated-hardware set hca/{new}/state ACTIVE"
        )

    with infiniband.changed("gpu2", renamed("mlx5_0", "ibp23s0"), renamed("ibp23s0", "mlx5_0")):
        found = infiniband.plan(nccl="2.18.3")
    assert found.network == "-x NCCL_NET_GDR_LEVEL=PXB"
    assert found.own == [
        ["gpu1", [["NCCL_IB_HCA", EIGHT]]],
        ["gpu2", [["NCCL_IB_HCA", EIGHT.replace("mlx5_0:", "ibp23s0:")]]],
    ]
    assert ["NCCL_IB_HCA differs from host to host" in text for text in found.warnings] == [True]
    eventually(lambda: infiniband.plan(nccl="2.18.3").own == [], 10, "the name to be back")
