"""Many hosts at once: order, faults of one host, bugs, Ctrl-C, and the limit on open files. No network."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts import fanout as module
from taco_launch.hosts.fanout import POOL, Answer, Fanout, connect
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.hosts.remote.transport import Transport
from taco_launch.hosts.ssh.connection import SshTransport
from taco_launch.hosts.ssh.connection_factory import ConnectionFactory
from tests.support.fake_hosts import Fake
from tests.support.patience import HANG


def hosts(count: int) -> tuple[Fake, ...]:
    return tuple(Fake(number) for number in range(count))


def test_answers_come_in_order_whoever_is_first() -> None:
    fakes = hosts(200)
    active, most, lock = 0, 0, threading.Lock()

    def work(transport: Transport) -> str:
        nonlocal active, most
        with lock:
            active += 1
            most = max(most, active)
        time.sleep(0.001 * (200 - int(transport.name[3:])) / 10)
        with lock:
            active -= 1
        return transport.name

    told: list[str] = []
    with Fanout(fakes) as fanout:
        answers = fanout.each(work, lambda answer: told.append(answer.host))
    assert [answer.value for answer in answers] == [fake.name for fake in fakes]
    assert sorted(told) == sorted(fake.name for fake in fakes)
    assert 1 < most <= POOL
    assert all(fake.closed.wait(HANG) for fake in fakes)


def test_one_bad_host_never_stops_the_others() -> None:
    def work(transport: Transport) -> str:
        if transport.name == "gpu3":
            raise HostError("gpu3: on fire", "run")
        return transport.name

    with Fanout(hosts(9)) as fanout:
        answers = fanout.each(work)
    assert [answer.host for answer in answers if answer.error] == ["gpu3"]
    assert len([answer for answer in answers if answer.value]) == 8
    assert answers[0] == Answer("gpu0", "gpu0")


def test_no_hosts() -> None:
    with Fanout(()) as fanout:
        assert fanout.each(lambda transport: transport.name) == ()


@pytest.mark.parametrize("bug", [ZeroDivisionError("bug"), AssertionError("bug")])
def test_a_bug_is_raised(bug: Exception) -> None:
    def work(transport: Transport) -> None:
        if transport.name == "gpu3":
            raise bug

    with Fanout(hosts(9)) as fanout, pytest.raises(type(bug), match="bug"):
        fanout.each(work)


CTRL_C = """
import threading, time, sys
sys.path.insert(0, ".")
from tests.support.fake_hosts import Fake
from taco_launch.hosts.fanout import Fanout
fakes = tuple(Fake(n) for n in range(100))
with Fanout(fakes) as fanout:
    print("begun", flush=True)
    fanout.each(lambda transport: time.sleep(600))
"""


def test_ctrl_c_ends_it_at_once() -> None:
    process = subprocess.Popen([sys.executable, "-c", CTRL_C], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"begun\n"
    time.sleep(0.2)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=HANG)
    assert time.monotonic() - begun < HANG
    assert err.strip().endswith(b"KeyboardInterrupt")


def test_hosts_of_this_machine_need_no_ssh(home: object) -> None:
    del home
    script = (
        "import sys\nfrom taco_launch.core.model.host.hosts import *\nfrom taco_launch.hosts.remote.credentials import Credentials\n"
        "from taco_launch.hosts.fanout import connect\nhosts = (Host('a', 'a', connection='local'),)\n"
        "with connect(Inventory('c', 'a', hosts), hosts, Credentials()) as f: print(f.transports[0].name)\n"
        "assert not {'fabric', 'paramiko'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("a\n", "")


def test_mixed_hosts_keep_their_order(home: object) -> None:
    del home
    both = (Host("a", "a"), Host("b", "b", connection="local"), Host("c", "c"))
    with connect(Inventory("c", "a", both), both, Credentials()) as fanout:
        assert [transport.name for transport in fanout.transports] == ["a", "b", "c"]
        assert isinstance(fanout.transports[1], LocalTransport)


def test_the_inventorys_wait_is_every_hosts(home: Path) -> None:
    (home / ".ssh/config").write_text("Host a\n  ProxyJump b\n")
    host = Host("a", "a")
    routes = ConnectionFactory(Inventory("c", "a", (host,), connect_timeout=5), Credentials(), {})
    made = (routes.ssh(host), *routes.gateways)
    assert [each.route.timeout for each in made if isinstance(each, SshTransport)] == [5, 5]


BAD_HOSTS = """
Host shell
  ProxyCommand nc %h %p | tee x
Host circle
  ProxyJump circle
Host jump
  ProxyJump a b
Host minutes
  ConnectTimeout 1y
Host service
  Port no-such-service
Host address
  HostName 10.0.0.1:22
Host quotes
  UserKnownHostsFile "~/a
Host user
  IdentityFile ~no-such-user/key
Host dots
  HostName a..b
"""


@pytest.mark.e2e  # it looks a name up
def test_a_host_without_a_way_keeps_nobody_from_the_others(home: Path) -> None:
    (home / ".ssh/config").write_text(BAD_HOSTS)
    said = {
        "shell": "needs a shell",
        "circle": "circle: its jump host: circle: a chain of more than 8 jump hosts",
        "jump": "jump: its jump host: jump host 'a b': not",
        "minutes": "minutes: ~/.ssh/config:9: ConnectTimeout 1y: must be a time",
        "service": "service: ~/.ssh/config:11: Port no-such-service: must be a number from 1 to 65535 or a service",
        "address": "address: ~/.ssh/config:13: HostName 10.0.0.1:22: not a host name",
        "quotes": "No closing quotation",
        "dots": "dots: no address for a..b: ",
    }
    entries = (Host("here", "here", connection="local"), *(Host(name, name) for name in said))
    with connect(Inventory("c", "here", entries), entries, Credentials()) as fanout:
        answers = fanout.each(lambda transport: transport.run(Command(("echo", "hi"))).stdout)
    assert answers[0] == Answer("here", b"hi\n")
    for answer in answers[1:]:
        assert answer.error
        assert said[answer.host] in answer.error.message
    user = Host("user", "user")
    with connect(Inventory("c", "user", (user,)), (user,), Credentials()) as fanout:
        assert fanout.transports[0].name == "user"


def test_the_limit_on_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        module.allow_files(500)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 500 + len(os.listdir("/proc/self/fd")) - 1
        with pytest.raises(HostError, match="open files are needed") as caught:
            module.allow_files(1 << 40)
        assert "ulimit" in (caught.value.hint or "")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
