"""Routes out of OpenSSH's configuration files: as `ssh -G` reads them, the inventory's word first."""

import shutil
import subprocess
from pathlib import Path

import pytest

from taco_launch.core.errors import HostError, SpecError
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts.ssh.config import Config, Route, jump_host


def route(home: Path, text: str, host: Host, environ: dict[str, str] | None = None) -> Route:
    (home / ".ssh/config").write_text(text)
    return Config(environ or {}, ("~/.ssh/config",)).route(host)


def test_without_a_word_anywhere(home: Path) -> None:
    found = route(home, "", Host("gpu1", "10.0.0.1", user="root"), {"SSH_AUTH_SOCK": "/run/agent"})
    assert (found.address, found.port, found.user, found.known_as) == ("10.0.0.1", 22, "root", "10.0.0.1")
    assert (found.jumps, found.proxy, found.agent, found.timeout) == ((), (), "/run/agent", 10)
    assert found.identity_files[0] == str(home / ".ssh/id_ed25519")
    assert not found.chosen
    assert found.known_hosts[0] == str(home / ".ssh/known_hosts")


CONFIG = """
Host gpu1
  HostName 10.1.1.1
  Port 2201
  User carol
  IdentityFile ~/.ssh/special
Host gpu*
  ProxyJump carol@bastion:2222, inner
  IdentityFile "~/.ssh/with space"
  ConnectTimeout 3
  UserKnownHostsFile ~/a ~/b
Match user dave
  HostKeyAlias daves
"""


def test_what_the_files_say(home: Path) -> None:
    found = route(home, CONFIG, Host("gpu1", "gpu1"))
    assert (found.address, found.port, found.user, found.known_as) == ("10.1.1.1", 2201, "carol", "[10.1.1.1]:2201")
    assert found.identity_files == (str(home / ".ssh/special"), str(home / ".ssh/with space"))
    assert (found.chosen, found.only_these, found.timeout) == (True, False, 3)
    assert found.jumps == ("carol@bastion:2222", "inner")
    assert found.known_hosts[:2] == (str(home / "a"), str(home / "b"))


def test_the_inventory_goes_first(home: Path) -> None:
    host = Host("gpu1", "gpu1", port=2299, user="dave", identity_file="~/.ssh/mine")
    found = route(home, CONFIG, host)
    assert (found.port, found.user, found.identity_files) == (2299, "dave", (str(home / ".ssh/mine"),))
    assert found.only_these
    assert found.known_as == "daves"  # `Match user` sees the inventory's user
    command = "Host *\n  ProxyCommand /bin/nc %h %p\n  Port 1\n"
    assert route(home, command, host).proxy == ("/bin/nc", "gpu1", "2299")


@pytest.mark.skipif(not shutil.which("ssh"), reason="ssh is not installed (apt-get install openssh-client)")
@pytest.mark.parametrize("name", ["gpu1", "gpu2", "web", "x.example.com"])
def test_ssh_itself_reads_them_alike(home: Path, name: str) -> None:
    text = (
        "Include extra\nUser late\nPort 2200\n"
        "Host gpu* !gpu2\n  Port 2201\n  Include inner\nHost web\n  Port = 2300\nHost *.example.com\n  User example\n"
    )
    (home / ".ssh/extra").write_text("Host gpu1\n  User early\n")
    (home / ".ssh/inner").write_text("HostName %h.cluster\n")
    found = route(home, text, Host(name, name))
    # ssh takes its home from the user database: what is included is named in full for it
    copied = text.replace("Include ", f"Include {home}/.ssh/")
    (home / "copy").write_text(copied)
    said = subprocess.run(["ssh", "-G", "-F", str(home / "copy"), name], capture_output=True, text=True, check=True)
    theirs = dict(line.split(" ", 1) for line in said.stdout.splitlines() if " " in line)
    assert (found.address, str(found.port), found.user) == (theirs["hostname"], theirs["port"], theirs["user"])


@pytest.mark.parametrize(
    ("text", "jumps", "proxy"),
    [
        ("ProxyJump a\nProxyCommand nc %h %p\n", ("a",), ()),
        ("ProxyCommand nc %h %p\nProxyJump a\n", (), ("nc", "gpu1", "22")),
        ("ProxyJump none\n", (), ()),
        ("ProxyCommand none\n", (), ()),
        ("ProxyCommand exec 'my proxy' \"%h\"\n", (), ("my proxy", "gpu1")),
    ],
)
def test_jump_or_command(home: Path, text: str, jumps: tuple[str, ...], proxy: tuple[str, ...]) -> None:
    found = route(home, text, Host("gpu1", "gpu1"))
    assert (found.jumps, found.proxy) == (jumps, proxy)


@pytest.mark.parametrize(
    "command", ["nc %h %p | tee x", "a && b", "nc $HOST", "`which nc` %h", "nc 'x", "nc %h >x", "a;b"]
)
def test_commands_that_need_a_shell(home: Path, command: str) -> None:
    with pytest.raises(HostError, match="ProxyCommand"):
        route(home, f"ProxyCommand {command}\n", Host("gpu1", "gpu1"))


def test_files_that_cannot_be_read(home: Path) -> None:
    with pytest.raises(SpecError, match="Include is nested too deep"):
        route(home, "Include config\n", Host("a", "a"))
    with pytest.raises(SpecError, match="Unparsable line"):
        route(home, "Port\n", Host("a", "a"))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("bastion", ("bastion", 22, "")),
        ("me@bastion:2222", ("bastion", 2222, "me")),
        ("ssh://me@bastion:2222/", ("bastion", 2222, "me")),
        ("me@bastion:https", ("bastion", 443, "me")),
        ("[fe80::1]:22", ("fe80::1", 22, "")),
    ],
)
def test_jump_hosts(spec: str, expected: tuple[str, int, str]) -> None:
    host = jump_host(spec)
    assert (host.address, host.port, host.user) == expected


@pytest.mark.parametrize("spec", ["", "a b", "a:b", "a:0", "a:70000", "a:1:2", "@a"])
def test_no_jump_hosts(spec: str) -> None:
    with pytest.raises(HostError, match="jump host"):
        jump_host(spec)


@pytest.mark.parametrize(
    ("text", "port", "timeout", "banner"),
    [
        ("Port 36 # c\nConnectTimeout 1m\n", 36, 60, 60),
        ("Port https\nConnectTimeout none\n", 443, 10, 30),
        ("ConnectTimeout 0\n", 22, 10, 30),
        ('Port "36"\nConnectTimeout = 1h1M30s#x\n', 0, 0, 0),
        ("ConnectTimeout 1h1M30s # x # y\n", 22, 3690, 3690),
        ("Port 0\n", 0, 0, 0),
        ("Port 1m\n", 0, 0, 0),
        ("ConnectTimeout 99999999999999999\n", 0, 0, 0),
    ],
)
def test_numbers_and_times(home: Path, text: str, port: int, timeout: float, banner: float) -> None:
    if not port:
        with pytest.raises(HostError, match=r"gpu1: ~/.ssh/config:[12]: (Port|ConnectTimeout) .*: must be a "):
            route(home, text, Host("gpu1", "gpu1"))
        return
    found = route(home, text, Host("gpu1", "gpu1"))
    assert (found.port, found.timeout, found.banner_timeout) == (port, timeout, banner)


def test_the_name_of_a_port_is_a_number_for_a_command(home: Path) -> None:
    found = route(home, "Port https\nProxyCommand nc %h %p\n", Host("gpu1", "gpu1"))
    assert (found.port, found.proxy, found.known_as) == (443, ("nc", "gpu1", "443"), "[gpu1]:443")
    found = route(home, "Port https\nProxyCommand nc %h %p\n", Host("gpu1", "gpu1", port=2201))
    assert (found.port, found.proxy) == (2201, ("nc", "gpu1", "2201"))


def test_the_inventorys_wait_goes_first(home: Path) -> None:
    (home / ".ssh/config").write_text("ConnectTimeout 20\n")
    found = Config({}, ("~/.ssh/config",), connect_timeout=5).route(Host("gpu1", "gpu1"))
    assert (found.timeout, found.banner_timeout) == (5, 5)


@pytest.mark.parametrize(
    ("host", "login"),
    [
        (Host("gpu1", "gpu1"), "gpu1"),
        (Host("gpu1", "10.0.0.1"), "10.0.0.1"),
        (Host("gpu1", "10.0.0.1", port=2222, user="me"), "-p 2222 me@10.0.0.1"),
        (Host("gpu1", "gpu1", identity_file="~/.ssh/it's"), "-i {home}/.ssh/it's gpu1"),
        (Host("gpu1", "gpu1", identity_file="none"), "gpu1"),
    ],
)
def test_what_a_person_types_to_get_there(home: Path, host: Host, login: str) -> None:
    """What the files say, ssh reads itself: what the inventory says has to be typed."""
    found = route(home, "User late\nPort 2200\nHostName 10.1.1.1\n", host)
    assert " ".join(found.login) == login.format(home=home)


def test_a_comment_is_none_where_a_command_or_quotes_hold_it(home: Path) -> None:
    text = 'ProxyCommand proxy # %p\nIdentityFile "~/a # b"  # c\nHostName a#b\n'
    found = route(home, text, Host("gpu1", "gpu1"))
    assert (found.proxy, found.identity_files, found.address) == (("proxy", "#", "22"), (str(home / "a # b"),), "a#b")


@pytest.mark.parametrize("name", ["gpu1", "gpu2", "web1"])
def test_blocks_that_are_included_in_a_block(home: Path, name: str) -> None:
    """They hold where both do: `Host *` of a file that is included for gpu* says nothing of web1."""
    (home / ".ssh/inner").write_text(
        "User inner\nHost *1\n  Port 2201\nHost *\n  Port 2200\nMatch all\n  ProxyJump j\n"
    )
    found = route(home, "Host gpu*\n  Include inner\n  HostKeyAlias gpu\nHost *\n  User all\n", Host(name, name))
    expected = {"gpu1": (2201, "inner", ("j",), "gpu"), "gpu2": (2200, "inner", ("j",), "gpu")}
    assert (found.port, found.user, found.jumps, found.known_as) == expected.get(name, (22, "all", (), "web1"))


def test_quotes_that_do_not_end(home: Path) -> None:
    for text in ('Include "a\n', 'Match user "a\n'):
        with pytest.raises(SpecError, match="No closing quotation"):
            route(home, text, Host("a", "a"))
