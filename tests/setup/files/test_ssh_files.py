"""The files of SSH between containers: what they say, and that OpenSSH reads them as they are meant."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.host import paths
from taco_launch.setup.files import ssh_files
from taco_launch.setup.files.ssh_files import Member

TWO = (Member("gpu1", "10.0.0.1", "ssh-ed25519 AAA1"), Member("gpu2", "10.0.0.2", "ssh-ed25519 AAA2"))


def many(count: int) -> tuple[Member, ...]:
    return tuple(
        Member(f"gpu{number:04}", f"10.0.{number >> 8}.{number & 255}", f"ssh-ed25519 AA{number}")
        for number in range(1, count + 1)
    )


def test_hosts_file() -> None:
    text = ssh_files.hosts_file(TWO, "gpu2", "node-b.example.com")
    assert text.splitlines()[1:] == [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "10.0.0.1\tgpu1",
        "10.0.0.2\tgpu2 node-b.example.com node-b",
    ]


def test_a_name_of_another_host_stays_that_ones() -> None:
    text = ssh_files.hosts_file(TWO, "gpu2", "gpu1.example.com")
    assert text.splitlines()[-2:] == ["10.0.0.1\tgpu1", "10.0.0.2\tgpu2 gpu1.example.com"]


def test_what_the_host_knows_is_known_in_the_container() -> None:
    theirs = """127.0.0.1 localhost
127.0.1.1 node-b.example.com node-b
::1 localhost ip6-localhost
::ffff:127.0.0.1 mapped
192.168.7.1 gpu1 gpu1.admin # the management network's
10.9.0.1\tdata data.example.com # NFS
fe80::7%eth0 switch
not-an-address data2
10.9.0.2 node-b # an old one
10.9.0.3 bad;name
"""
    lines = ssh_files.hosts_file(TWO, "gpu2", "node-b.example.com", theirs).splitlines()
    assert lines[5:] == ["192.168.7.1\tgpu1.admin", "10.9.0.1\tdata data.example.com", "fe80::7%eth0\tswitch"]


def test_a_host_known_by_a_name_only_is_left_to_the_resolver() -> None:
    members = (TWO[0], Member("gpu2", "node-b.example.com"))
    assert "gpu2" not in ssh_files.hosts_file(members, "gpu1", None)
    assert "HostName node-b.example.com\n" in ssh_files.ssh_config("c", members, 12222)


def test_known_hosts_and_back() -> None:
    members = (*TWO, Member("gpu3", "10.0.0.3"), Member("gpu4", "fd00::4", "ssh-ed25519 AAA4"))
    text = ssh_files.known_hosts(members, 12222)
    assert text.splitlines() == [
        "[10.0.0.1]:12222 ssh-ed25519 AAA1 gpu1",
        "[10.0.0.2]:12222 ssh-ed25519 AAA2 gpu2",
        "[fd00::4]:12222 ssh-ed25519 AAA4 gpu4",
    ]
    for port in (22, 12222):
        told = ssh_files.parse_known_hosts(ssh_files.known_hosts(members, port))
        assert tuple(told.values()) == (*TWO, members[3])
    assert ssh_files.known_hosts(TWO, 22).startswith("10.0.0.1 ssh-ed25519")


@given(st.text())
def test_what_is_no_line_of_ours_is_passed_over(text: str) -> None:
    told = ssh_files.parse_known_hosts(f"{text}\n{ssh_files.known_hosts(TWO, 12222)}")
    assert told["gpu1"] == TWO[0]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("ssh-ed25519 AAAA+/= gpu1 of hcc\n", "ssh-ed25519 AAAA+/="),
        ("ssh-ed25519 AAAA", "ssh-ed25519 AAAA"),
        ("ssh-ed25519", None),
        ("", None),
        ('command="rm" ssh-ed25519 AAAA', None),
        ("ssh-ed25519 AAAA\nssh-rsa BBBB", None),
        (None, None),
    ],
)
def test_public_key(text: object, key: str | None) -> None:
    assert ssh_files.public_key(text) == key


def test_same_members_same_text_and_no_line_too_long_for_old_ssh() -> None:
    for count in (2, 1000):
        text = ssh_files.ssh_config("c", many(count), 12222)
        assert text == ssh_files.ssh_config("c", many(count), 12222)
        assert max(map(len, text.splitlines())) < 1024
        assert text.count("HostName") == count


def asked(config: Path, host: str) -> dict[str, str]:
    """What the real ssh makes of a configuration for a host."""
    argv = ("ssh", "-G", "-F", str(config), host)
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.mark.parametrize("host", ["gpu0001", "gpu0517", "gpu1000", "10.0.3.232"])
def test_ssh_reads_its_configuration(tmp_path: Path, host: str) -> None:
    config = tmp_path / "ssh_config"
    config.write_text(ssh_files.ssh_config("hcc", many(1000), 12222))
    told = asked(config, host)
    assert told["hostname"].startswith("10.0.")
    assert told["port"] == "12222"
    assert told["user"] == "root"
    assert told["stricthostkeychecking"] in ("true", "yes")
    assert told["userknownhostsfile"] == paths.known_hosts("hcc")
    assert told["identityfile"] == paths.key("hcc")
    assert told["batchmode"] == "yes"


def test_hosts_outside_are_not_spoken_of(tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.write_text(ssh_files.ssh_config("hcc", many(1000), 12222))
    told = asked(config, "data.example.com")
    assert told["port"] == "22"
    assert told["userknownhostsfile"] != paths.known_hosts("hcc")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_sshd_reads_its_settings(tmp_path: Path, address: str) -> None:
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if sshd is None:
        pytest.skip("sshd is not installed (apt-get install openssh-server)")
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "host_key")), check=True)
    config = tmp_path / "sshd_config"
    text = ssh_files.sshd_config("hcc", address, 12222)
    config.write_text(text.replace(paths.host_key("hcc"), str(tmp_path / "host_key")))
    done = subprocess.run((sshd, "-T", "-f", str(config)), capture_output=True, text=True, check=False)
    if "privilege separation" in done.stderr:
        pytest.skip(f"cannot: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert [line for line in told if line.startswith("listenaddress")] == [
        f"listenaddress {f'[{address}]' if ':' in address else address}:12222"
    ]
    for line in (
        "passwordauthentication no",
        "kbdinteractiveauthentication no",
        "usepam no",
        "permitrootlogin without-password",
        "authenticationmethods publickey",
        "allowusers root",
        f"forcecommand /bin/sh {paths.session_script('hcc')}",
        "subsystem sftp sftp-server",
        "pidfile /run/taco-launch/sshd.pid",
        "permituserenvironment yes",
    ):
        assert line in told
