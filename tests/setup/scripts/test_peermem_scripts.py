"""peermem_*.sh on a host in a folder: a simulated modprobe, dkms and package managers, which fail as the real ones do."""

import os
import subprocess
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from taco_launch.setup import scripts
from taco_launch.setup.stage_parts.peermem_ops import service_off
from tests.support.setup_scripts import SHELLS, Fakes

NEW, OLD = "nvidia_peermem", "nv_peer_mem"
# What the load script is told for people: NOT_BUILT SYMBOLS KEY IN_USE.
TOLD = ("not built", "other symbols", "no key", "in use")
KERNEL = "3.10.0-957.el7.x86_64"
FAILS = "modprobe: ERROR: could not insert 'nvidia_peermem': "


@dataclass(frozen=True)
class Machine:
    """A host: /sys/module, /lib/modules, /var/lib/dkms and the leases below `root`."""

    root: Path
    fakes: Fakes

    def run(self, name: str, *args: str) -> tuple[int, str]:
        """Run a script as an operation is run; give its exit code and what it says from its last error on, else the last line."""
        front = {"peermem_load.sh": ("idle.sh",), "peermem_install.sh": ("dpkg.sh", "packages.sh", "reload.sh")}.get(
            name, ()
        )
        text = "".join(map(scripts.text, (*front, name)))
        for path in ("/sys/module", "/lib/modules", "/var/lib/", "/run/taco-launch"):
            text = text.replace(path, f"{self.root}{path}")
        argv = (*self.fakes.sh, "-euc", text, "setup", *args)
        env = {**self.fakes.env(), "TMPDIR": str(self.root / "tmp")}
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=-1,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        assert os.listdir(self.root / "tmp") == []
        told = done.stdout.strip().splitlines()
        errors = [number for number, line in enumerate(told) if line.startswith("error: ")] or [-1]
        return done.returncode, "\n".join(told[errors[-1] :])

    def load(self, *names: str) -> None:
        for name in names:
            (self.root / "sys/module" / name).mkdir()

    @property
    def loaded(self) -> set[str]:
        return {each.name for each in (self.root / "sys/module").iterdir()}

    def modprobe(self, *refused: str) -> None:
        """Have modprobe load what it is requested, but fail with these words (`NAME: WORDS`)."""
        told = (each.partition(": ") for each in refused)
        cases = "".join(f"'{name}') echo \"{words}\" >&2; exit 1 ;;\n" for name, _, words in told)
        self.fakes.make("modprobe", f'case "$*" in\n{cases}*) mkdir -p {self.root}/sys/module/$1 ;;\nesac')

    def called(self, name: str) -> list[str]:
        return [call for call in self.fakes.calls if call.split()[0] == name]


@pytest.fixture(params=SHELLS)
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    for folder in ("tmp", "sys/module", f"lib/modules/{KERNEL}/build", "var/lib/dkms", "run/taco-launch/leases"):
        (tmp_path / folder).mkdir(parents=True)
    made = Machine(tmp_path, Fakes(tmp_path / "bin", request.param))
    made.modprobe()
    made.fakes.make(
        "dmesg", "echo '[ 1.0] nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client'"
    )
    made.fakes.make("rmmod", f"rm -r {tmp_path}/sys/module/$1")
    made.fakes.make("uname", f"echo {KERNEL}")
    made.fakes.make("sleep")
    made.fakes.make("modinfo", f"[ -e {tmp_path}/built ]")
    made.fakes.make("dkms", "exit 0")
    made.fakes.make("docker", "exit 1")
    return made


# --- peermem_load.sh --------------------------------------------------------------------------------------------------


def test_it_is_loaded_and_the_other_one_unloaded_first(machine: Machine) -> None:
    assert machine.run("peermem_load.sh", NEW, OLD, *TOLD) == (0, "")
    assert machine.run("peermem_load.sh", NEW, OLD, *TOLD)[0] == 0
    assert (machine.loaded, machine.fakes.calls) == ({NEW}, [f"modprobe {NEW}"] * 2)
    machine.load(OLD)  # both are loaded now
    assert machine.run("peermem_load.sh", NEW, OLD, *TOLD)[0] == 0
    assert (machine.loaded, machine.fakes.calls[2:]) == ({NEW}, [f"rmmod {OLD}", f"modprobe {NEW}"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "Invalid argument",
            "(the kernel: [ 1.0] nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client): not built",
        ),
        (
            "Unknown symbol in module, or unknown parameter (see dmesg)",
            "_memory_client): other symbols",
        ),
        ("Required key not available", "no key"),
        ("Exec format error", "(the kernel: "),
    ],
)
def test_why_it_is_not_loaded(machine: Machine, words: str, told: str) -> None:
    machine.modprobe(f"{NEW}: {FAILS}{words}")
    machine.load(OLD)
    code, last = machine.run("peermem_load.sh", NEW, OLD, *TOLD)
    assert code == 1
    assert last.startswith(f"error: {FAILS}{words}")
    assert told in last
    assert machine.loaded == {OLD}, "what was there before is put back"


def test_a_module_in_use_stays_and_so_does_one_under_a_job(machine: Machine) -> None:
    words = f"rmmod: ERROR: Module {OLD} is in use"
    machine.fakes.make("rmmod", f"echo '{words}' >&2; exit 1")
    machine.load(OLD)
    assert machine.run("peermem_load.sh", NEW, OLD, *TOLD) == (1, f"error: {words}: in use")
    machine.fakes.make("rmmod")
    assert machine.run("peermem_load.sh", NEW, OLD, *TOLD) == (1, f"error: rmmod {OLD} unloads nothing: in use")
    job = machine.root / "var/lib/taco-launch/jobs/train-1"
    job.mkdir(parents=True)
    with (job / "lock").open("w") as lock:
        subprocess.run(("flock", "-x", str(lock.fileno())), pass_fds=(lock.fileno(),), check=True)
        before = machine.fakes.calls
        code, last = machine.run("peermem_load.sh", NEW, OLD, *TOLD)
        assert (code, machine.fakes.calls) == (1, before)
        where = "error: job train-1 runs in a container of this host"
        assert last == f"{where}\nhint: wait for it (--wait-for-jobs 2h), or: taco-launch stop train-1"
        (machine.root / f"sys/module/{OLD}").rmdir()
        assert machine.run("peermem_load.sh", NEW, OLD, *TOLD)[0] == 0, "what is only loaded disturbs nobody"


def test_a_modprobe_that_loads_nothing_is_no_success(machine: Machine) -> None:
    machine.fakes.make("modprobe")
    code, last = machine.run("peermem_load.sh", NEW, OLD, *TOLD)
    assert (code, last[:46]) == (1, "error: modprobe nvidia_peermem loads nothing, ")


# --- the service that came with our package ---------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["enabled", "disabled", "gone"])
def test_the_service_is_disabled_where_it_is_enabled(machine: Machine, tmp_path: Path, state: str) -> None:
    machine.fakes.make("systemctl", f'case "$*" in *is-enabled*) [ {state} = enabled ] ;; esac')
    mark = tmp_path / "mark"
    mark.touch()
    op = service_off("")
    done = machine.fakes.run_text(op.script, op.args[0], str(mark))
    assert (done.returncode, done.stdout, done.stderr, mark.exists()) == (0, "", "", False)
    disabled = ["systemctl disable --no-reload nv_peer_mem.service"] if state == "enabled" else []
    assert [call for call in machine.called("systemctl") if " disable " in call] == disabled
    machine.fakes.make("systemctl", 'case "$*" in *is-enabled* | show*) ;; *) exit 1 ;; esac')
    mark.touch()
    assert machine.fakes.run_text(op.script, op.args[0], str(mark)).returncode == 1
    assert mark.exists(), "what did not succeed is still to be done"


def test_an_init_script_is_not_disabled_under_containers_that_would_lose_their_gpus(machine: Machine) -> None:
    """A program that handles init scripts makes systemd read its units again, whatever systemctl is told."""
    said = 'case "$*" in show*) echo FragmentPath=%s/nv_peer_mem.service ;; esac'
    told = (
        'case "$*" in info*) echo systemd ;; ps*) echo 1a2b ;; *inspect*) echo /train false runc request=nvidia ;; esac'
    )
    machine.fakes.make("docker", told)
    op = service_off("")
    for folder, code in (("/usr/lib/systemd/system", 0), ("/run/systemd/generator.late", 1)):
        machine.fakes.make("systemctl", said % folder)
        done = machine.fakes.run_text(op.script, op.args[0], str(machine.root / "mark"))
        assert done.returncode == code, done.stderr
    assert done.stderr.startswith(
        "error: disabling nv_peer_mem.service, which is an init script, has systemd read its "
    )
    assert "takes the GPUs from train\nhint: when no job runs there: docker stop train; then" in done.stderr
    assert len([call for call in machine.called("systemctl") if " disable " in call]) == 1, "the first alone"


# --- peermem_boot.sh --------------------------------------------------------------------------------------------------


def test_one_place_loads_it_at_boot(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "file"
    for enabled, module, stays in ((True, OLD, False), (False, OLD, True), (True, NEW, True)):
        machine.fakes.make("systemctl", f"exit {int(not enabled)}")
        file.touch()
        assert machine.run("peermem_boot.sh", module, str(file))[0] == 0
        assert file.exists() == stays, (enabled, module)


# --- peermem_install.sh -----------------------------------------------------------------------------------------------

PACKAGE = "nvidia-peer-memory-dkms"
MADISON = """case $2 in
*memory*) for version in 1.3-0 1.1-0 1.0-9 1.0-5; do echo "$2 | $version | http://mirror ./ Packages"; done ;;
esac"""


def apt(machine: Machine, does: str = "") -> None:
    """Have apt-get install what it is requested: the headers, or the module; unless it `does` something else."""
    root = machine.root
    machine.fakes.make("apt-cache", MADISON)
    machine.fakes.make("dpkg-query", "echo 'iF '")
    machine.fakes.make("dpkg", '[ "$1" != --compare-versions ] || exec /usr/bin/dpkg "$@"')
    installs = f"*linux-headers*) mkdir {root}/lib/modules/{KERNEL}/build ;;\n*' install '*) touch {root}/built ;;"
    machine.fakes.make("apt-get", f'case "$*" in\n{does}\n{installs}\nesac')


@pytest.mark.parametrize(("limit", "version"), [("", "1.3-0"), ("1.1", "1.1-0")])
def test_apt_brings_headers_and_the_right_release(machine: Machine, limit: str, version: str) -> None:
    apt(machine)
    (machine.root / f"lib/modules/{KERNEL}/build").rmdir()
    assert (
        machine.run("peermem_install.sh", "apt-get", PACKAGE, limit, "headers!", f"{machine.root}/state/mark")[0] == 0
    )
    assert (machine.root / "state/mark").exists(), "set-up brought it"
    _update, headers, package = machine.called("apt-get")
    assert headers.endswith(f" install linux-headers-{KERNEL}")
    assert package.endswith(f" install {PACKAGE}={version} nvidia-peer-memory={version}")
    assert {"--no-remove", "--no-upgrade"} <= set(package.split())


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (
            "*linux-headers*) echo 'E: Unable to locate package linux-headers-3.10' >&2; exit 100 ;;",
            "error: apt-get install: Unable to locate package linux-headers-3.10: headers!",
        ),
        (
            "*linux-headers*) ;;",
            f"error: the headers that were installed are not those of the kernel {KERNEL}: headers!",
        ),
    ],
)
def test_headers_that_cannot_be_had_are_told(machine: Machine, does: str, told: str) -> None:
    apt(machine, does)
    (machine.root / f"lib/modules/{KERNEL}/build").rmdir()
    assert machine.run("peermem_install.sh", "apt-get", PACKAGE, "", "headers!", "") == (1, told)


def test_what_cannot_be_built_is_told_and_taken_off_again(machine: Machine) -> None:
    log = machine.root / "var/lib/dkms/nvidia-peer-memory/1.3/build/make.log"
    log.parent.mkdir(parents=True)
    log.write_text("CC nv_peer_mem.o\nnv_peer_mem.c:80: fatal error: rdma/peer_mem.h: No such file\nmake: leaving\n")
    apt(machine, "*' install '*) echo 'dpkg: error processing package nvidia-peer-memory-dkms' >&2; exit 100 ;;")
    code, last = machine.run("peermem_install.sh", "apt-get", PACKAGE, "", "headers!", "")
    assert code == 1
    assert (
        "apt-get install: dpkg: error processing package nvidia-peer-memory-dkms; dkms: nv_peer_mem.c:80: fatal" in last
    )
    assert machine.called("apt-get")[-1] == f"apt-get -q -y purge {PACKAGE}"


def test_a_package_that_no_source_has_and_one_that_brings_nothing(machine: Machine) -> None:
    apt(machine)
    machine.fakes.make("apt-cache")
    code, last = machine.run("peermem_install.sh", "apt-get", PACKAGE, "1.1", "headers!", "")
    assert code == 1
    none = f"error: no package source of this host has {PACKAGE} from 1.0-9 on (up to 1.1)\nhint: name one in /etc/apt/"
    assert last.startswith(none)
    machine.fakes.make("apt-cache", 'echo "$2 | 1.0-5 | http://mirror ./ Packages"')
    assert machine.run("peermem_install.sh", "apt-get", PACKAGE, "1.1", "headers!", "") == (code, last), (
        "1.0-5 is too old"
    )
    apt(machine, "*' install '*) echo done ;;")
    code, last = machine.run("peermem_install.sh", "apt-get", PACKAGE, "", "headers!", "")
    assert (code, last) == (
        1,
        f"error: {PACKAGE} is installed, and there is no module nv_peer_mem for the kernel {KERNEL}: done",
    )


@pytest.mark.parametrize(
    "status", ["nvidia-peer-memory/1.1: added", "nvidia-peer-memory, 1.1, 3.10.0-1.el7, x86_64: installed"]
)
def test_what_dkms_knows_already_is_built_for_this_kernel(machine: Machine, status: str) -> None:
    machine.fakes.make("dkms", f'case $1 in status) echo "{status}" ;; *) touch {machine.root}/built ;; esac')
    mark = machine.root / "state/mark"
    assert machine.run("peermem_install.sh", "yum", "nvidia_peer_memory", "", "headers!", str(mark))[0] == 0
    assert not mark.exists(), "another user brought it"
    assert machine.called("dkms")[1:] == [f"dkms install -m nvidia-peer-memory -v 1.1 -k {KERNEL}"]
    assert machine.called("yum") == []


@pytest.mark.parametrize(
    ("manager", "kernel", "limit", "calls"),
    [
        ("yum", KERNEL, "", [f"yum -y install kernel-devel-{KERNEL}", "yum -y install nvidia_peer_memory"]),
        ("dnf", KERNEL, "1.1", [f"dnf -y install kernel-devel-{KERNEL}", "dnf -y install nvidia_peer_memory-1.1*"]),
        ("yum", "5.4.17-2136.el7uek.x86_64", "", ["yum -y install kernel-uek-devel-5.4.17-2136.el7uek.x86_64", "*"]),
        ("zypper", "5.14.21-150500.55.19-default", "1.1", ["*install --no-recommends kernel-default-devel", "*nvidia_peer_memory<1.1.999"]),
    ],
)  # fmt: skip
def test_rpm_systems(machine: Machine, manager: str, kernel: str, limit: str, calls: list[str]) -> None:
    folder = machine.root / "lib/modules" / kernel
    machine.fakes.make("uname", f"echo {kernel}")
    machine.fakes.make(
        manager, f'case "$*" in *devel*) mkdir -p {folder}/build ;; *) touch {machine.root}/built ;; esac'
    )
    if (folder / "build").exists():
        (folder / "build").rmdir()
    assert machine.run("peermem_install.sh", manager, "nvidia_peer_memory", limit, "headers!", "")[0] == 0
    for call, wanted in zip(machine.called(manager), calls, strict=True):
        assert call == wanted or (wanted[0] == "*" and call.endswith(wanted[1:]))


def test_no_package_takes_the_gpus_from_a_container(machine: Machine) -> None:
    apt(machine)
    machine.fakes.make(
        "docker",
        "case $1 in info) echo systemd ;; ps) echo 1 ;; *) echo '/train false nvidia NVIDIA_VISIBLE_DEVICES=all' ;; esac",
    )
    code, last = machine.run("peermem_install.sh", "apt-get", PACKAGE, "", "headers!", "")
    assert code == 1
    assert last.startswith(
        f"error: installing {PACKAGE} has systemd read its units again, which takes the GPUs from train\nhint: "
    )
    assert not [call for call in machine.called("apt-get") if " install " in call]


@pytest.mark.parametrize("again", [False, True])
def test_packages_of_the_controller_are_taken_instead_and_built_where_the_headers_came_late(
    machine: Machine, *, again: bool
) -> None:
    folder = machine.root / "packages"
    folder.mkdir()
    (folder / "a.deb").write_bytes(b"")
    (folder / "SHA256SUMS").write_text(f"{sha256(b'').hexdigest()}  a.deb\n")
    apt(machine, "*' install '*) ;;" if again else "")
    known = "echo nvidia-peer-memory/1.1: added" if again else ":"
    machine.fakes.make("dkms", f"case $1 in status) {known} ;; *) touch {machine.root}/built ;; esac")
    assert machine.run("peermem_install.sh", "apt-get", PACKAGE, "", "headers!", "", str(folder))[0] == 0
    (install,) = machine.called("apt-get")
    assert install.endswith(f"/dev/null {folder}/a.deb")
    assert [call for call in machine.called("dkms") if " install " in f"{call} "][:1] == (
        [f"dkms install -m nvidia-peer-memory -v 1.1 -k {KERNEL}"] if again else []
    )
    assert not folder.exists()
