"""SSH between the containers of a lab, as set-up makes it: who reaches whom, what is left alone, what is named."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.inventory import profile
from taco_launch.hosts.inventory.load import load
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.setup.apply.host_ops import SetupEvent
from taco_launch.setup.apply.setup_run import Setup, SetupRequest, SetupResult
from tests.conftest import eventually
from tests.lab.rig import Lab
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

PORT, OTHER, TAKEN = 12422, 12423, 12424


@dataclass(frozen=True)
class Mesh:
    """A lab of two hosts that are set up; each test changes the inventory as it likes, and has it set up."""

    lab: Lab
    inventory: Inventory

    def set_up(self, steps: list[SetupEvent] | None = None, **changes: Any) -> SetupResult:
        """Set up with another inventory; `steps` gets what was done."""
        wanted, seen = replace(self.inventory, **changes), [] if steps is None else steps
        with connect(wanted, wanted.hosts, Credentials()) as fanout:
            work = Setup(wanted, wanted.hosts, fanout, SetupRequest(profile.load("auto", "", os.environ)), seen.append)
            work.refresh()
            return work.apply()

    def ready(self, **changes: Any) -> dict[str, int]:
        """Set up without any fault; give how many changes of SSH each host took."""
        steps: list[SetupEvent] = []
        done = self.set_up(steps, **changes)
        assert [(host.host, str(host.error)) for host in done.hosts if host.error] == []
        assert [str(flaw) for flaw in done.found] == []
        took = [step.host for step in steps if (step.stage, step.kind) == ("ssh_mesh", "done")]
        return {host.host: took.count(host.host) for host in done.hosts}

    def sh(self, host: str, script: str, *, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a script in a host's container."""
        done = self.lab.inside(host, *self.within("sh", "-s"), input=script, seconds=60)
        assert not check or done.returncode == 0, done.stderr
        return done

    def within(self, *command: str) -> tuple[str, ...]:
        """Return what runs a command in the container of the host that it is typed on."""
        return ("docker", "exec", "--interactive", f"taco-launch-{self.inventory.cluster}", *command)

    def session(self) -> "subprocess.Popen[bytes]":
        """Start a session from gpu2's container to gpu1's, which gives back what is written to it."""
        argv = self.lab.exec_argv("gpu2", *self.within("ssh", "gpu1", "cat"))
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def container(self, host: str) -> str:
        """Return what tells this host's container from one that is made or started anew."""
        what = "{{.Id}} {{.State.StartedAt}}"
        return self.lab.sh(host, f"docker inspect --format '{what}' taco-launch-{self.inventory.cluster}")

    def sshd(self, host: str) -> str:
        """Return the process number of its sshd."""
        return self.sh(host, "cat /run/taco-launch/sshd.pid").stdout.strip()


@pytest.fixture(scope="module")
def mesh(four: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A cluster on two of the shared hosts, beside those of other modules: so it has ports of its own."""
    file, container = tmp_path_factory.mktemp("mesh") / "cluster.yaml", four.training(ssh_port=PORT)
    network = {"port_range": "40000-40999"}
    written = four.inventory(file, "gpu1", "gpu2", cluster=f"{four.name}-mesh", container=container, network=network)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACO_LAUNCH_STATE", str(four.state))
        made = Mesh(four, load(written.inventory, four.env))
        made.ready()
        yield made


def test_mpirun_and_ssh_just_work_inside(mesh: Mesh) -> None:
    names = mesh.sh("gpu1", "mpirun --allow-run-as-root -H gpu1:2,gpu2:2 hostname").stdout.split()
    assert sorted(names) == ["gpu1", "gpu1", "gpu2", "gpu2"]
    for host, other in (("gpu1", "gpu2"), ("gpu2", "gpu1")):
        assert mesh.sh(host, f"ssh {other} hostname; getent hosts {other} >&2").stdout == f"{other}\n"
    assert mesh.sh("gpu1", "echo data >/tmp/a && scp -q /tmp/a gpu2:/tmp/b && ssh gpu2 cat /tmp/b").stdout == "data\n"
    assert mesh.sh("gpu1", "echo 'get /tmp/b /tmp/c' | sftp -q -b - gpu2 >/dev/null && cat /tmp/c").stdout == "data\n"
    assert mesh.sh("gpu1", "ssh gpu2 exit 3", check=False).returncode == 3
    assert mesh.ready() == {"gpu1": 0, "gpu2": 0}


def test_what_start_up_files_of_the_image_print_is_in_nobodys_way(mesh: Mesh) -> None:
    noise = "cp ~/.bashrc ~/before; printf 'echo noise\\necho noise >&2\\n' >~/.bashrc; echo data >/tmp/d"
    mesh.sh("gpu2", noise)
    try:
        done = mesh.sh(
            "gpu1", "ssh gpu2 hostname; scp -q gpu2:/tmp/d /tmp/e && cat /tmp/e; scp -q -O gpu2:/tmp/d /tmp/f"
        )
        assert (done.stdout, done.stderr) == ("gpu2\ndata\n", "")
        assert (
            mesh.sh("gpu1", "echo 'get /tmp/d /tmp/g' | sftp -q -b - gpu2 >/dev/null && cat /tmp/g").stdout == "data\n"
        )
        names = mesh.sh("gpu1", "mpirun --allow-run-as-root -H gpu1:1,gpu2:1 hostname").stdout.split()
        assert sorted(names) == ["gpu1", "gpu2"]
    finally:
        mesh.sh("gpu2", "mv ~/before ~/.bashrc")


def test_only_the_cluster_s_key_and_address_let_in(mesh: Mesh) -> None:
    address = mesh.inventory.hosts[1].address
    listening = mesh.lab.sh("gpu2", f"ss -ltnH 'sport = :{PORT}'")
    assert [line.split()[3] for line in listening.splitlines()] == [f"{address}:{PORT}"]
    stranger = (
        "ssh-keygen -q -t ed25519 -N '' -f /tmp/stranger </dev/null; "
        f"ssh -F none -i /tmp/stranger -o StrictHostKeyChecking=no -o UserKnownHostsFile=/tmp/known -p {PORT} {address} true"
    )
    refused = mesh.sh("gpu1", stranger, check=False)
    assert refused.returncode == 255
    assert "Permission denied (publickey)." in refused.stderr
    # another host key than the known one
    folder = f"/var/lib/taco-launch/clusters/{mesh.inventory.cluster}/ssh"
    wrong = f"sed 's/^\\[[0-9.]*\\]/[{address}]/' {folder}/known_hosts | head -n 1 >/tmp/wrong"
    refused = mesh.sh("gpu1", f"{wrong}; ssh -o UserKnownHostsFile=/tmp/wrong gpu2 true", check=False)
    assert (refused.returncode, "HOST IDENTIFICATION HAS CHANGED" in refused.stderr) == (255, True)


def test_hosts_that_come_and_go_stop_nothing(mesh: Mesh) -> None:
    before = {host: (mesh.container(host), mesh.sshd(host)) for host in ("gpu1", "gpu2")}
    with mesh.session() as job:
        assert mesh.ready(hosts=mesh.inventory.hosts[:1]) == {"gpu1": 1}
        assert "gpu2" not in mesh.sh("gpu1", "cat /etc/ssh/ssh_config").stdout
        assert "\tregistry\n" in mesh.sh("gpu1", "cat /etc/hosts").stdout  # which the host itself knows
        assert mesh.sh("gpu1", "ssh gpu2 true", check=False).returncode == 255
        assert mesh.ready() == {"gpu1": 1, "gpu2": 0}
        assert mesh.sh("gpu1", "ssh gpu2 hostname").stdout == "gpu2\n"
        out, _ = job.communicate(b"the same session\n", timeout=patience(20))
        assert (job.returncode, out) == (0, b"the same session\n")
    assert before == {host: (mesh.container(host), mesh.sshd(host)) for host in ("gpu1", "gpu2")}


@pytest.mark.nightly
def test_another_port_leaves_sessions_and_containers(mesh: Mesh) -> None:
    assert mesh.inventory.container is not None
    before = mesh.container("gpu1"), mesh.sshd("gpu1")
    with mesh.session() as job:
        mesh.ready(container=replace(mesh.inventory.container, ssh_port=OTHER))
        assert f":{OTHER}" in mesh.lab.sh("gpu1", f"ss -ltnH 'sport = :{OTHER}'")
        assert mesh.lab.sh("gpu1", f"ss -ltnH 'sport = :{PORT}'") == ""
        out, _ = job.communicate(b"the same session\n", timeout=patience(20))
        assert (job.returncode, out) == (0, b"the same session\n")
    assert before == (mesh.container("gpu1"), mesh.sshd("gpu1"))
    mesh.ready()


@pytest.mark.nightly
def test_a_port_that_is_taken(mesh: Mesh) -> None:
    assert mesh.inventory.container is not None
    serve = f"systemd-run --quiet --unit=test-taker python3 -m http.server {TAKEN}"
    mesh.lab.sh("gpu2", f"command -v python3 || apt-get -qq install -y python3-minimal >/dev/null; {serve}")
    try:
        eventually(lambda: mesh.lab.sh("gpu2", f"ss -ltnH 'sport = :{TAKEN}'"), 20, "the taker")
        done = mesh.set_up(container=replace(mesh.inventory.container, ssh_port=TAKEN))
        first, second = done.hosts
        assert first.error is None
        assert str(second.error) == (
            f"gpu2: port {TAKEN}, for the container's sshd, is taken: python3 listens on 0.0.0.0:{TAKEN}"
        )
        assert second.error is not None
        assert f"ssh_port: {TAKEN + 1}" in str(second.error.hint)
    finally:
        mesh.lab.sh("gpu2", "systemctl stop test-taker")
    mesh.ready()


def test_a_lost_host_key_and_a_dead_sshd_are_mended(mesh: Mesh) -> None:
    folder = f"/var/lib/taco-launch/clusters/{mesh.inventory.cluster}/ssh"
    before = mesh.container("gpu2")
    mesh.lab.sh("gpu2", f"rm {folder}/host_key.pub; echo broken >{folder}/known_hosts")
    mesh.sh("gpu2", "kill $(cat /run/taco-launch/sshd.pid)")
    changes = mesh.ready()
    assert changes["gpu1"] == 1
    assert mesh.sh("gpu1", "ssh gpu2 hostname").stdout == "gpu2\n"
    assert mesh.container("gpu2") == before


def test_a_reboot(mesh: Mesh) -> None:
    before = mesh.container("gpu2").split()[0]
    mesh.lab.reboot("gpu2")
    eventually(lambda: mesh.sh("gpu1", "ssh gpu2 hostname", check=False).stdout == "gpu2\n", 60, "its container")
    assert mesh.ready() == {"gpu1": 0, "gpu2": 0}
    assert mesh.container("gpu2").split()[0] == before


DROP = "iptables -I INPUT -p tcp --dport 32768:60999 -m conntrack --ctstate NEW -j DROP"
GUARD = """nft -f - <<'END'
table inet guard {
  chain input {
    type filter hook input priority 0; policy drop;
    iif lo accept
    ct state established,related accept
    tcp dport 22 accept
  }
}
END
"""


def test_a_blocked_pair_is_named_and_opened_on_demand(mesh: Mesh) -> None:
    where = [host.address for host in mesh.inventory.hosts]
    managed = replace(mesh.inventory.network, firewall="manage")
    mesh.lab.sh("gpu1", DROP)
    mesh.lab.sh("gpu2", GUARD)
    rules = {host: mesh.lab.sh(host, "nft list ruleset | sed 's/packets.*bytes [0-9]*//'") for host in ("gpu1", "gpu2")}
    try:
        first, second = sorted(mesh.set_up().found, key=lambda flaw: flaw.hosts)
        assert str(first).startswith(f"gpu1 cannot reach gpu2 at {where[1]}:{PORT} and :")
        assert ": timed out; firewall: nftables on gpu2 drops: policy drop (nft table inet guard)" in str(first)
        assert str(second).startswith(f"gpu2 cannot reach gpu1 at {where[0]}:")
        assert f":{PORT}" not in str(second)
        assert "firewall: nftables on gpu1 drops: " in str(second)
        assert "network: {firewall: manage}" in second.hint

        assert mesh.ready(network=managed) == {"gpu1": 1, "gpu2": 1}
        assert mesh.ready(network=managed) == {"gpu1": 0, "gpu2": 0}
        for host in ("gpu1", "gpu2"):
            mesh.lab.sh(host, f"systemctl restart taco-launch_{mesh.inventory.cluster}_firewall")
            rules_now = mesh.lab.sh(host, "iptables -S INPUT; nft list table inet guard 2>&1 || :")
            assert rules_now.count(f"taco-launch:{mesh.inventory.cluster}") == 1
        mesh.ready(network=managed)

        assert len(mesh.set_up().found) == 2, "what was opened was not closed again"
        for host, before in rules.items():
            assert mesh.lab.sh(host, "nft list ruleset | sed 's/packets.*bytes [0-9]*//'") == before
            assert "firewall" not in mesh.lab.sh(host, f"ls /etc/taco-launch/{mesh.inventory.cluster} /etc/systemd/system")  # fmt: skip
    finally:
        mesh.lab.sh("gpu1", DROP.replace("-I", "-D"))
        mesh.lab.sh("gpu2", "nft delete table inet guard")
    mesh.ready()


def test_sessions_and_ranks_have_the_environment_of_the_container(mesh: Mesh) -> None:
    assert mesh.inventory.container is not None
    odd = (("LD_LIBRARY_PATH", "/opt/nccl:/opt/it's odd"), ("NCCL_ALGO", "Ring"), ("HOME", "/root"))
    mesh.ready(container=replace(mesh.inventory.container, env=odd))
    told = mesh.sh("gpu1", "ssh gpu2 'echo $LD_LIBRARY_PATH $NCCL_ALGO; ulimit -l; umask'").stdout.splitlines()
    assert told[0] == "/opt/nccl:/opt/it's odd Ring"
    assert told[1:] == mesh.sh("gpu2", "ulimit -l; umask").stdout.splitlines()
    # a start-up file of the image that sets it anew
    mesh.sh("gpu2", "sed -i '/NCCL_ALGO/d' /run/taco-launch/environment")
    wanted = replace(mesh.inventory.container, env=odd)
    (flaw,) = mesh.set_up(container=wanted).found
    assert (
        str(flaw)
        == "gpu2 does not give ranks the environment of its container: different values in the ranks: NCCL_ALGO"
    )
