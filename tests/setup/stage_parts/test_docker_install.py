"""docker_install.sh among simulated tools: what it does where apt, dpkg, yum or the network fail."""

import hashlib
import shutil
from pathlib import Path

import pytest

from taco_launch.setup.stage_parts import docker_install as install
from tests.support import docker_machine
from tests.support.docker_machine import Machine

machine = docker_machine.machine  # a fixture is found by its name here

# Files of ours, as the script is told them.
LIST, KEY_FILE = "etc/ours/docker.list", "etc/ours/docker.asc"


# --- apt --------------------------------------------------------------------------------------------------------------


def test_apt_installs_and_neither_upgrades_nor_removes(machine: Machine) -> None:
    assert machine.run("docker_install.sh", "apt")[0] == 0
    update, install = machine.called("apt-get")
    assert update.endswith(" update")
    assert install.endswith(" install docker.io iptables ca-certificates")
    assert {"--no-remove", "--no-upgrade", "--no-install-recommends", "-y"} <= set(install.split())
    assert machine.calls[-1] == "systemctl daemon-reload"
    assert not [call for call in machine.called("dpkg") if "--configure" in call]


def test_the_client_is_a_package_of_its_own_on_some_systems(machine: Machine) -> None:
    machine.tool("apt-cache", "")
    assert machine.run("docker_install.sh", "apt")[0] == 0
    assert machine.called("apt-get")[-1].endswith(" ca-certificates docker-cli")


@pytest.mark.parametrize("how", ["audit", "updates"])
def test_an_installation_that_was_cut_off_is_finished_first(machine: Machine, how: str) -> None:
    if how == "audit":
        machine.tool("dpkg", '[ "$1" != --audit ] || echo in a mess')
    else:
        (machine.root / "dpkg/updates/0001").touch()
    assert machine.run("docker_install.sh", "apt")[0] == 0
    names = [call.split()[0] for call in machine.calls]
    assert "dpkg --force-confold --configure -a" in machine.calls
    assert names.index("apt-get") > machine.calls.index("dpkg --force-confold --configure -a")


def test_an_installation_that_is_ended_leaves_nothing_behind(machine: Machine) -> None:
    machine.tool("apt-get", "kill -TERM $PPID")  # run() has no shell of its own
    assert machine.run("docker_install.sh", "apt")[0] == 143  # which sees to it that nothing is left


def locked(machine: Machine, times: int, words: str) -> None:
    """Have apt-get find its lock held, the first `times` times."""
    install = (machine.root / "bin/apt-get").read_text().partition("\n")[2].partition("\n")[2]
    machine.tool("apt-get", f"""tries=$(grep -c ^apt-get {machine.root}/calls)
    if [ "$tries" -le {times} ]; then echo '{words}' >&2; exit 100; fi
    {install}""")  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)",
        "E: Could not get lock /var/lib/dpkg/lock - open (11: Resource temporarily unavailable)",
        "dpkg: error: dpkg frontend lock was locked by another process with pid 4711",
    ],
)
def test_a_lock_is_waited_for(machine: Machine, words: str) -> None:
    locked(machine, 3, words)
    assert machine.run("docker_install.sh", "apt")[0] == 0
    assert machine.called("sleep") == ["sleep 5"] * 3


def test_a_lock_is_not_waited_for_for_ever_and_its_holder_is_named(machine: Machine) -> None:
    locked(
        machine, 1000, "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)"
    )
    code, last = machine.run("docker_install.sh", "apt")
    assert code == 1
    assert len(machine.called("sleep")) == 24
    assert last.startswith("error: another program has held the lock of apt for 120 s: Could not get lock ")
    assert "held by process 4711 (unattended-upgr) - wait for its end, then run setup again" in last


def test_a_source_that_is_down_is_named_where_it_matters(machine: Machine) -> None:
    fetch = "W: Failed to fetch http://deb.example/InRelease  Could not resolve 'deb.example'"
    machine.tool("apt-get", f"""case " $* " in
    *" update "*) echo "{fetch}" ;;
    *) echo 'E: Unable to locate package docker.io' >&2; exit 100 ;;
    esac""")  # fmt: skip
    code, last = machine.run("docker_install.sh", "apt")
    assert code == 1
    assert last == (
        "error: apt-get install: Unable to locate package docker.io; package source: Failed to fetch "
        "http://deb.example/InRelease  Could not resolve 'deb.example'"
    )


def test_a_full_disk_is_named_with_what_is_free(machine: Machine) -> None:
    machine.tool("apt-get", """case " $* " in
    *" install "*) echo "E: You don't have enough free space in /var/cache/apt/archives/." >&2; exit 100 ;;
    esac""")  # fmt: skip
    code, last = machine.run("docker_install.sh", "apt")
    assert code == 1
    assert "You don't have enough free space in /var/cache/apt/archives/.; free on /: " in last


def test_what_brings_no_engine_is_told(machine: Machine) -> None:
    machine.tool("apt-get", "echo done")
    assert machine.run("docker_install.sh", "apt") == (1, "error: docker is still not there: done")


@pytest.mark.parametrize("spoilt", [False, True])
def test_packages_of_the_controller_are_installed_and_no_others(machine: Machine, *, spoilt: bool) -> None:
    folder = machine.root / "packages"
    folder.mkdir()
    (folder / "docker.io_1.deb").write_text("half" if spoilt else "whole")
    (folder / "docker.io_0.deb").touch()  # of a run that was cut
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(b'whole').hexdigest()}  docker.io_1.deb\n")
    code, last = machine.run("docker_install.sh", "apt-packages", str(folder))
    if spoilt:
        assert (code, machine.called("apt-get")) == (1, [])
        assert last.startswith("error: the packages of the controller did not arrive whole: run setup again: ")
    else:
        assert code == 0
        assert machine.called("apt-get")[-1].endswith(f"/dev/null {folder}/docker.io_1.deb")
    assert not folder.exists()


# --- yum, dnf, zypper -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manager", ["yum", "dnf", "zypper"])
def test_package_managers_of_rpm(machine: Machine, manager: str) -> None:
    shutil.copy(machine.root / "bin/sh", machine.root / "bin/docker")
    shutil.copy(machine.root / "bin/sh", machine.root / "bin/dockerd")
    machine.tool(manager, "")
    assert machine.run("docker_install.sh", "rpm", manager, "moby-engine")[0] == 0
    (call,) = machine.called(manager)
    assert call.endswith(" moby-engine")
    assert ("-y" in call) != ("--non-interactive" in call)
    machine.tool(manager, "echo 'Error: Unable to find a match: moby-engine'; exit 1")
    code, last = machine.run("docker_install.sh", "rpm", manager, "moby-engine")
    assert (code, last) == (1, f"error: {manager} install: Error: Unable to find a match: moby-engine (exit code 1)")


@pytest.mark.parametrize(("code", "right"), [(0, True), (102, True), (106, True), (104, False), (4, False), (7, False)])
def test_zypper_tells_more_by_its_exit_code(machine: Machine, code: int, right: bool) -> None:
    shutil.copy(machine.root / "bin/sh", machine.root / "bin/docker")
    shutil.copy(machine.root / "bin/sh", machine.root / "bin/dockerd")
    machine.tool("zypper", f"exit {code}")
    assert (machine.run("docker_install.sh", "rpm", "zypper", "docker")[0] == 0) == right


# --- from elsewhere ---------------------------------------------------------------------------------------------------


def proxy(machine: Machine, content: str = "") -> str:
    path = machine.root / "proxy"
    path.write_text(content)
    return str(path)


def fetches(machine: Machine, content: str, fails: int = 0) -> None:
    """Have curl fetch `content`, after it failed a few times."""
    machine.tool("curl", f"""tries=$(grep -c ^curl {machine.root}/calls)
    if [ "$tries" -le {fails} ]; then echo 'curl: (7) Failed to connect to x' >&2; exit 7; fi
    while [ "$1" != -o ]; do shift; done
    printf %s '{content}' >"$2"
    env | grep _proxy >{machine.root}/environment || :""")  # fmt: skip


def repository(machine: Machine, way: str, url: str = "https://m", *more: str, proxied: str = "") -> tuple[int, str]:
    """Install from Docker's own repository as planned: a source that is filled in, and the files it becomes."""
    text = install.APT_SOURCE if way == "apt-docker" else install.RPM_SOURCE
    source, key = machine.root / "source", machine.root / KEY_FILE
    source.write_text(text.format(key=key, url=url))
    given = proxy(machine, proxied)
    done = machine.run("docker_install.sh", way, given, url, str(source), str(machine.root / LIST), *more)
    assert not Path(given).exists()
    assert not source.exists()
    return done


def by_apt(machine: Machine, url: str = "https://m", *, proxied: str = "") -> tuple[int, str]:
    return repository(machine, "apt-docker", url, str(machine.root / KEY_FILE), proxied=proxied)


def test_dockers_repository_by_apt(machine: Machine) -> None:
    apt = (machine.root / "bin/apt-get").read_text().partition("\n")[2]
    machine.tool("apt-get", f"env | grep _proxy >{machine.root}/environment || :\n{apt}")
    proxied = "https_proxy=http://u:p w@p:1\nno_proxy=a,b\n"
    assert by_apt(machine, "https://m/docker", proxied=proxied)[0] == 0
    variables = (machine.root / "environment").read_text().splitlines()
    assert sorted(variables) == ["https_proxy=http://u:p w@p:1", "no_proxy=a,b"]
    assert (machine.root / LIST).read_text().splitlines()[1:] == [
        f"deb [signed-by={machine.root / KEY_FILE}] https://m/docker/linux/debian bookworm stable"
    ]
    assert " install docker-ce docker-ce-cli containerd.io " in machine.called("apt-get")[-1]


THEIRS = "https://m/linux/debian"


@pytest.mark.parametrize(
    ("name", "text", "used"),
    [
        ("docker.list", f"deb [arch=amd64 signed-by=/k.gpg] {THEIRS}/ bookworm stable\n", True),
        ("docker.sources", f"Types: deb\nURIs: http://a {THEIRS}\nSuites:\n bookworm\nSigned-By: /k\n", True),
        ("docker.list", f"# deb {THEIRS} bookworm stable\ndeb {THEIRS} trixie stable\n", False),
        ("docker.list", "deb https://download.docker.com/linux/debian bookworm stable\n", False),
        ("a.sources", f"Enabled: no\nURIs: {THEIRS}\nSuites: bookworm\n\nURIs: {THEIRS}\nSuites: trixie\n", False),
    ],
)
def test_what_a_user_has_of_that_repository_stays_as_it_is(
    machine: Machine, name: str, text: str, *, used: bool
) -> None:
    """apt takes no second entry of one source that is signed by another file: an equal one is used, others stay."""
    theirs = machine.root / "etc/apt/sources.list.d" / name
    theirs.write_text(text)
    (machine.root / KEY_FILE).parent.mkdir(parents=True, exist_ok=True)
    (machine.root / KEY_FILE).touch()
    assert by_apt(machine)[0] == 0
    assert theirs.read_text() == text
    assert [(machine.root / path).exists() for path in (LIST, KEY_FILE)] == [not used] * 2


@pytest.mark.parametrize(
    ("release", "where"),
    [
        ("ID=ubuntu\nVERSION_CODENAME=jammy\n", "ubuntu jammy"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n', "ubuntu noble"),
        ("ID=other\nID_LIKE=debian\nVERSION_CODENAME=bookworm\n", "debian bookworm"),
    ],
)
def test_systems_that_are_like_others(machine: Machine, release: str, where: str) -> None:
    (machine.root / "etc/os-release").write_text(release)
    assert by_apt(machine)[0] == 0
    written = (machine.root / LIST).read_text()
    assert written.endswith(f" https://m/linux/{where} stable\n")


def test_a_system_that_dockers_repository_does_not_know(machine: Machine) -> None:
    (machine.root / "etc/os-release").write_text("ID=solus\nVERSION_ID=4\n")
    code, last = by_apt(machine)
    assert code == 1
    assert last.startswith("error: Docker's repository has nothing for solus 4: take another docker.source")


@pytest.mark.parametrize(
    ("release", "macros", "where"),
    [
        ('ID="centos"\nVERSION_ID="7"\n', "%{?rhel}=7", "centos/7"),
        ('ID="rhel"\nVERSION_ID="9.3"\n', "%{?rhel}=9", "rhel/9"),
        ('ID="rocky"\nVERSION_ID="8.9"\n', "%{?rhel}=8", "centos/8"),
        ("ID=fedora\nVERSION_ID=40\n", "%{?fedora}=40", "fedora/40"),
    ],
)
def test_dockers_repository_by_rpm(machine: Machine, release: str, macros: str, where: str) -> None:
    (machine.root / "etc/os-release").write_text(release)
    shutil.copy(machine.root / "bin/sh", machine.root / "bin/docker")
    shutil.copy(machine.root / "bin/sh", machine.root / "bin/dockerd")
    name, _, value = macros.partition("=")
    machine.tool("rpm", f"[ \"$2\" != '{name}' ] || echo {value}")
    machine.tool("yum", "")
    theirs = machine.root / "etc/yum.repos.d/docker-ce.repo"
    theirs.write_text("[docker-ce-stable]\n")
    assert repository(machine, "rpm-docker", "https://m", "yum")[0] == 0
    assert theirs.read_text() == "[docker-ce-stable]\n"
    written = (machine.root / LIST).read_text()
    assert f"baseurl=https://m/linux/{where}/$basearch/stable\n" in written
    assert "gpgcheck=1\n" in written
    assert machine.called("yum") == ["yum -y install docker-ce docker-ce-cli containerd.io"]


def test_what_cannot_be_fetched_is_tried_five_times(machine: Machine) -> None:
    fetches(machine, "", fails=9)
    code, last = machine.run("docker_install.sh", "script", proxy(machine), "https://x/get", "0" * 64)
    assert code == 1
    assert last.startswith("error: cannot fetch https://x/get (5 tries): curl: (7) Failed to connect to x\nhint: is")
    assert len(machine.called("curl")) == 5


def test_a_script_is_run_only_with_the_right_sum(machine: Machine) -> None:
    script = f"for each in docker dockerd; do cp {machine.root}/bin/sh {machine.root}/bin/$each; done"
    fetches(machine, script)
    right = hashlib.sha256(script.encode()).hexdigest()
    code, last = machine.run("docker_install.sh", "script", proxy(machine), "https://x/get", "0" * 64)
    assert (code, last) == (
        1,
        f"error: https://x/get has the SHA-256 {right}, and docker.sha256 in the inventory is {'0' * 64}: it was not run",
    )
    assert not (machine.root / "bin/docker").exists()
    assert machine.run("docker_install.sh", "script", proxy(machine), "https://x/get", right)[0] == 0


def test_a_script_that_fails_is_told_by_its_last_line(machine: Machine) -> None:
    script = "echo unsupported distribution; exit 3"
    fetches(machine, script)
    sum_ = hashlib.sha256(script.encode()).hexdigest()
    assert machine.run("docker_install.sh", "script", proxy(machine), "https://x/get", sum_) == (
        1,
        "error: https://x/get: unsupported distribution (exit code 3)",
    )
