"""The probe itself, under every shell that is here: its frame, what it runs as root, what it does not wait for."""

import os
import re
import shutil
import subprocess
import time
from hashlib import sha256
from pathlib import Path

import pytest

from taco_launch.core.facts.parse import parse
from taco_launch.core.facts.text.sections import PROBE, Section, feed, read
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import HostFacts, SetupFile, System
from tests.support.host_facts import known
from tests.support.patience import HANG
from tests.support.shells import SCRIPT, SHELLS, each_shell, run, tool

# as on a host that nothing was set up on: on one with many agents their sums take a second
BARE = SCRIPT.replace(b"state=/var/lib/taco-launch\n", b"state=/no/such/folder\n")
SUBJECTS = ("system", "network", "rdma", "docker", "image", "gpu", "topology")


def alone(shell: tuple[str, ...], lines: str, **env: str) -> dict[str, Section]:
    """Run lines of shell where the probe would look at its subjects."""
    body, end = SCRIPT.rsplit(b'\nprobe "$@"\n', 1)
    assert end == b""
    test = f'\nlook_at_system() {{\n{lines}\n}}\nprobe "$@"\n'
    answer = run(shell, "system", script=body + test.encode(), **env)
    assert answer.stderr == b""
    return read(answer.stdout)


@each_shell
def test_all_subjects(shell: tuple[str, ...]) -> None:
    sent = time.time()
    answer = run(shell, script=BARE)
    facts = parse("here", answer.stdout, sent, time.time())
    assert (answer.returncode, answer.stderr) == (0, b"")
    told = read(answer.stdout)
    assert list(dict.fromkeys(name.partition(".")[0] for name in told if name != PROBE)) == ["host", *SUBJECTS]
    assert told[PROBE].exit_code == 0
    assert all(section.exit_code is not None for section in told.values())
    assert isinstance(facts.system, System)
    assert facts.system.hostname == os.uname().nodename
    assert facts.system.kernel == os.uname().release
    assert abs(known(facts.system.clock_offset)) <= known(facts.system.clock_error) + 1e-3


@each_shell
def test_only_what_was_asked(shell: tuple[str, ...]) -> None:
    facts: HostFacts = parse("here", run(shell, "system").stdout, 0, time.time())
    assert isinstance(facts.system, System)
    assert {facts.network, facts.docker, facts.gpu, facts.topology, facts.rdma, facts.image} == {Unknown("not asked")}


@each_shell
def test_an_unknown_subject_is_refused(shell: tuple[str, ...]) -> None:
    answer = run(shell, "system", "weather")
    assert (answer.returncode, answer.stdout) == (2, b"")
    assert answer.stderr == b"probe: no such subject: weather\n"


@each_shell
def test_no_path_and_no_home(shell: tuple[str, ...]) -> None:
    absolute = (shutil.which(shell[0]) or "", *shell[1:])
    told = read(run(absolute, "system", "network", path="").stdout)
    assert told["system.uname"].stdout.startswith(os.uname().nodename)
    assert told["system.disks"].exit_code == 0


@each_shell
def test_the_frame(shell: tuple[str, ...]) -> None:
    told = alone(
        shell,
        "section a.none no-such-tool -x\n"
        "section a.whole printf 'x\\n'\n"
        "section a.half printf x\n"
        "section a.empty true\n"
        "both() { echo out; printf 'one\\n* two\\n' >&2; return 3; }\n"
        "section a.both both\n"
        "section a.input cat\n",
    )
    assert told["a.none"] == Section("a.none", "", "no-such-tool: not found\n", 127)
    assert told["a.whole"].stdout == "x\n"
    assert told["a.half"].stdout == "x"
    assert told["a.empty"] == Section("a.empty", "", "", 0)
    assert told["a.both"] == Section("a.both", "out\n", "one\n* two\n", 3)
    assert told["a.input"].stdout == ""  # and not the rest of the script


@each_shell
def test_no_command_waits_for_what_may_follow_on_stdin(shell: tuple[str, ...]) -> None:
    body = SCRIPT.rsplit(b'\nprobe "$@"\n', 1)[0]
    test = b'\nlook_at_system() {\nsection a.input cat\n}\nprobe "$@"\nexit\n'
    with subprocess.Popen(
        [*shell, "-s", "--", "m", "system"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(body + test)
        process.stdin.flush()
        said = process.stdout.read()
    assert read(said)["a.input"] == Section("a.input", "", "", 0)


@each_shell
@pytest.mark.parametrize("timeout", ["", "timeout() { return 1; }\nprepare\n"], ids=["timeout", "its own watchdog"])
def test_what_hangs_is_not_waited_for(shell: tuple[str, ...], timeout: str) -> None:
    begun = time.monotonic()
    told = alone(
        shell,
        f"{timeout}section a.slow limited 0.3 sleep 600\nsection a.quick limited 60 echo ready\nsection a.code limited 60 sh -c 'exit 3'\n",
    )
    assert told["a.slow"].exit_code == 124
    assert told["a.quick"] == Section("a.quick", "ready\n", "", 0)
    assert told["a.code"].exit_code == 3
    assert time.monotonic() - begun < HANG


@each_shell
def test_root_by_sudo(shell: tuple[str, ...], tmp_path: Path) -> None:
    tool(tmp_path, "id", "echo 1000")
    tool(tmp_path, "sudo", 'printf "%s\\n" "$*" >&2; [ "$1" = -n ] || exit 9; shift; exec "$@"')
    path = f"{tmp_path}:{os.environ['PATH']}"
    lines = 'section a.access echo "$access"\nsection a.root root echo yes\nsection a.both limited 5 root echo yes\nsection a.none root no-such-tool\n'
    told = alone(shell, lines, path=path)
    assert told["a.access"].stdout == "sudo\n"
    assert told["a.root"] == Section("a.root", "yes\n", "-n env LC_ALL=C echo yes\n", 0)
    assert told["a.both"] == Section("a.both", "yes\n", "-n env LC_ALL=C timeout -k 2 5 echo yes\n", 0)
    assert told["a.none"] == Section("a.none", "", "no-such-tool: not found\n", 127)
    tool(tmp_path, "sudo", "exit 1")
    told = alone(shell, lines, path=path)
    assert told["a.access"].stdout == "user\n"
    assert told["a.root"] == Section("a.root", "yes\n", "", 0)


@each_shell
def test_the_connection_that_sudo_takes_away(shell: tuple[str, ...]) -> None:
    """Here env stands for sudo: a parent that has the variable, and does not hand it on."""
    script = (
        "PATH=$PATH; export PATH; unset SSH_CONNECTION; SUDO_COMMAND=x; export SUDO_COMMAND\n"
        f"{' '.join(shell)} -s -- m network; exit $?"
    )
    begin = ["/bin/sh", "-c", script]
    answer = subprocess.run(
        begin,
        input=SCRIPT,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "SSH_CONNECTION": "192.0.2.9 5 192.0.2.1 22"},
        check=False,
    )
    assert read(answer.stdout)["network.connection"].stdout == "192.0.2.9 5 192.0.2.1 22\n"


@each_shell
def test_an_image_is_looked_at_inside_its_container(shell: tuple[str, ...], tmp_path: Path) -> None:
    tool(
        tmp_path,
        "docker",
        '[ "$1 $2 $3 $4" = "exec -i taco train\'s /bin/sh" ] || { echo "No such container: $3" >&2; exit 1; }\nshift 3; exec "$@"',
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    sent = time.time()
    answer = run(shell, "system", "image", script=feed(SCRIPT, "taco train's"), path=path)
    facts = parse("here", answer.stdout, sent, time.time())
    assert isinstance(facts.system, System)
    assert known(facts.image).where == "taco train's"
    assert re.search(rb"(?s)image\.shm.*begin image\.where", answer.stdout)
    answer = run(shell, "image", script=feed(SCRIPT, "other"), path=path)
    assert parse("here", answer.stdout, sent, time.time()).image == Unknown("No such container: other (exit code 1)")


@each_shell
def test_the_disk_where_docker_is_to_keep_its_images_is_looked_at(shell: tuple[str, ...], tmp_path: Path) -> None:
    config = tmp_path / "daemon.json"
    config.write_text('{"debug": true, "data-root" : "/proc/no such", "x": "y"}')
    script = feed(SCRIPT.replace(b"/etc/docker/daemon.json", str(config).encode()), data_root="/sys/it's new")
    asked = read(run(shell, "system", script=script).stdout)["system.disks"].stdout.split("Filesystem")[0]
    assert {"asked /proc", "asked /sys"} <= set(asked.splitlines())


def test_without_a_container_the_text_is_fed_as_it_is() -> None:
    assert feed(SCRIPT) == SCRIPT


def test_it_writes_nothing_and_names_no_temporary_folder() -> None:
    text = re.sub(r"(?m)^ *#.*$", "", SCRIPT.decode())
    assert not re.search(r"<<|/tmp/", text)
    assert text.count("mktemp") == text.count('root rm -rf "$folder"') == 1, "gcm alone, which always keeps a log"
    redirected = set(re.findall(r"[0-9]?>>?\s*&?([^\s;)}|&]+)", re.sub(r"'[^']*'", "''", text)))
    assert redirected <= {"/dev/null", "1", "2", "3", "-"}, redirected


@each_shell
def test_a_driver_that_hangs_is_waited_for_once(shell: tuple[str, ...], tmp_path: Path) -> None:
    tool(tmp_path, "nvidia-smi", 'echo "$*" >>"${0%/*}/asked"; exec sleep 20')
    path = f"{tmp_path}:{os.environ['PATH']}"
    script = SCRIPT.replace(b"limited 30 nvidia-smi", b"limited 0.3 nvidia-smi")
    told = read(run(shell, "gpu", "topology", script=script, path=path).stdout)
    assert (tmp_path / "asked").read_text() == "-L\n"
    names = ("gpu.list", "gpu.query", "gpu.remapped", "gpu.processes", "gpu.smi", "topology.matrix")
    assert {name: told[name].exit_code for name in names} == dict.fromkeys(names, 124)
    assert "is not asked again" in told["topology.matrix"].stderr


@each_shell
def test_no_process_where_files_show_that_there_is_nothing(shell: tuple[str, ...], tmp_path: Path) -> None:
    names = ("ls", "cat", "systemctl", "busctl", "timedatectl", "modinfo")
    for name in names:
        tool(tmp_path, name, 'echo "${0##*/} $*" >>"${0%/*}/asked"; echo "Module nvidia not found" >&2; exit 1')
    path = f"{tmp_path}:{os.environ['PATH']}"
    script = re.sub(rb" /(run|etc|proc/driver|dev/infiniband|sys/class/infiniband)(?=[/ \n])", rb" /nowhere/\1", SCRIPT)
    told = read(run(shell, "system", "rdma", "gpu", script=script, path=path).stdout)
    asked = (tmp_path / "asked").read_text().splitlines()
    # the kernel may take no modules: then /proc/modules does not exist to be read
    assert [line for line in asked if line != "cat /proc/modules"] == [
        "modinfo -F filename nvidia_peermem",
        "modinfo -F filename nv_peer_mem",
        "modinfo -F version nvidia",
    ]
    assert told["gpu.license"] == Section("gpu.license", "", "Module nvidia not found\n", 1)
    gone = {"host.simulated": "cat: /nowhere/etc/taco-launch/simulated", "rdma.devices": "ls: /nowhere/dev/infiniband"}
    for name, words in gone.items():
        assert told[name] == Section(name, "", f"{words}: No such file or directory\n", 1)
    for name in ("system.logind", "system.clock", "gpu.fabric_manager"):
        words = "System has not been booted with systemd as init system (PID 1)\n"
        assert told[name] == Section(name, "", words, 1)
    assert told["rdma.comes_back"].stdout == "nv_peer_mem.service \n"


@each_shell
def test_systemd_is_asked_where_it_runs(shell: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("systemctl", "timedatectl"):
        tool(tmp_path, name, 'echo "${0##*/} $*"')
    (tmp_path / "systemd" / "system").mkdir(parents=True)
    (tmp_path / "systemd" / "system" / "nv_peer_mem.service").touch()
    script = SCRIPT.replace(b" /run/systemd/system", f" {tmp_path}/systemd/system".encode())
    told = read(run(shell, "system", "rdma", "gpu", script=script, path=f"{tmp_path}:{os.environ['PATH']}").stdout)
    assert told["system.clock"] == Section("system.clock", "timedatectl \n", "", 0)
    assert told["gpu.fabric_manager"].stdout.startswith("systemctl show ")
    assert told["rdma.comes_back"].stdout.endswith("nv_peer_mem.service systemctl is-enabled nv_peer_mem\n")


@each_shell
def test_what_a_module_for_the_gpus_depends_on(shell: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "etc/modprobe.d").mkdir(parents=True)
    (tmp_path / "modules").mkdir()
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  450.80.02\n")
    for name, mode in (("rc.local", 0o755), ("rc.old", 0o644)):
        (tmp_path / "etc" / name).write_text("# insmod nv_peer_mem.ko\ncd /root && insmod ./nv_peer_mem.ko\n")
        (tmp_path / "etc" / name).chmod(mode)
    (tmp_path / "etc/modprobe.d/a.conf").write_text("# nv_peer_mem\n blacklist nvidia-peermem\n")
    tool(tmp_path, "mokutil", "echo SecureBoot enabled; echo 'Platform is in Setup Mode'")
    tool(tmp_path, "systemctl", 'echo systemctl "$@"')  # not every machine has systemd
    path = f"{tmp_path}:{os.environ['PATH']}"

    def ask(old: str = "rc.local") -> dict[str, Section]:
        script = SCRIPT.replace(b"/proc/driver/nvidia/version", f"{tmp_path}/version".encode())
        script = script.replace(b" /etc/rc.local", f" {tmp_path}/etc/{old}".encode())
        script = script.replace(b" /etc/modprobe.d/", f" {tmp_path}/etc/modprobe.d/".encode())
        script = script.replace(b"/sys/bus/pci", f"{tmp_path}/pci".encode())
        script = script.replace(b"/lib/modules/", b"/nowhere/")
        return dict(read(run(shell, "gpu", "rdma", script=script, path=path).stdout))

    told = ask()
    assert "headers no\n" in told["rdma.peermem"].stdout
    assert "secureboot SecureBoot enabled Platform is in Setup Mode\n" in told["rdma.peermem"].stdout
    loads = f"{tmp_path}/etc/rc.local:cd /root && insmod ./nv_peer_mem.ko\n"
    blocks = f"{tmp_path}/etc/modprobe.d/a.conf: blacklist nvidia-peermem\n"
    assert told["rdma.comes_back"].stdout.startswith(f"{loads}{blocks}nv_peer_mem.service")
    (tmp_path / "version").write_text("")
    (tmp_path / "pci/devices/0000:1b:00.0").mkdir(parents=True)
    for vendor in ("0x10de", "0x8086"):  # GPUs whose driver is not loaded
        (tmp_path / "pci/devices/0000:1b:00.0/vendor").write_text(f"{vendor}\n")
        (tmp_path / "pci/devices/0000:1b:00.0/class").write_text("0x030200\n")
        assert ("secureboot SecureBoot" in ask()["rdma.peermem"].stdout) == (vendor == "0x10de")
    assert ask("rc.old")["rdma.comes_back"].stdout.startswith(f"{blocks}nv_peer_mem.service")  # it does not run


@pytest.mark.skipif(os.geteuid() == 0, reason="cannot: root may enter every folder")
@each_shell
def test_a_file_that_cannot_be_seen_is_not_told_to_be_gone(shell: tuple[str, ...], tmp_path: Path) -> None:
    tmp_path.chmod(0o600)
    told = alone(shell, f"section_of a.closed cat {tmp_path}/file\n")
    tmp_path.chmod(0o700)
    assert told["a.closed"].stderr.endswith("Permission denied\n")


def test_the_packages_that_python_would_find(tmp_path: Path) -> None:
    for name in (
        "torch-2.1.0+cu118.dist-info",
        "Horovod-0.28.1-py3.10.egg-info",
        "nvidia_nccl_cu12-2.19.3.dist-info",
        "light_cc-1.0.egg",
        "torchvision-0.16.dist-info",
        "torch.dist-info",
        "torch-1.0.txt",
    ):
        (tmp_path / name).mkdir()
    library = tmp_path / "horovod" / "torch" / "mpi_lib_v2.cpython.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\0 12MPIAllreduceE 13NCCLAllreduceE \0")
    told = read(run(("/bin/sh",), "image", PYTHONPATH=str(tmp_path)).stdout)["image.python"].stdout.splitlines()
    assert re.fullmatch(r"version 3\.[0-9]+\.[0-9]+", told[0])
    assert told[1:8] == [
        "package Horovod 0.28.1",
        "package light_cc 1.0",
        "package nvidia_nccl_cu12 2.19.3",
        "package torch 2.1.0+cu118",
        f"library {library}",
        "holds 12MPIAllreduceE",
        "holds 13NCCLAllreduceE",
    ]


@each_shell
def test_a_unit_starts_at_boot_if_its_files_say_so(shell: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever systemd remembers, which is `enabled` here until it reads its units again."""
    blocks = (f"Id={unit}.service\nActiveState=active\nUnitFileState=enabled\n" for unit in ("taco-launch-c", "docker"))
    (tmp_path / "shown").write_text("\n".join(blocks))
    script = feed(BARE, cluster="c").replace(b"-d /run/systemd/system", b"-d /")
    tool(tmp_path, "systemctl", f'[ "$1" = is-enabled ] || exec cat "{tmp_path}/shown"; echo said; exit 1')
    answer = run(shell, "made", script=script, path=f"{tmp_path}:{os.environ['PATH']}").stdout
    for said, enabled in ((b"disabled", False), (b"enabled-runtime", False), (b"not-found", None), (b"", True)):
        made = known(parse("here", answer.replace(b"said\n", said + b"\n"), time.time(), time.time()).made)
        none = Absent("taco-launch-c.service has no UnitFileState")
        assert made.enabled == (none if enabled is None else enabled)
        assert isinstance(made.engine_unit, Absent) or made.engine_unit == (said.decode() or "enabled")


@each_shell
def test_what_setup_left_is_asked_by_name_and_of_one_cluster(shell: tuple[str, ...]) -> None:
    answer = run(shell, "made", script=feed(BARE, cluster="no-such"))
    made = known(parse("here", answer.stdout, time.time(), time.time()).made)
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert isinstance(made.capabilities, tuple)
    assert isinstance(made.devices, tuple)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    machine = f"{boot}{Path('/proc/self/ns/pid').readlink()}\n{os.uname().nodename}"
    assert known(made.machine).strip() == machine
    keys = read(answer.stdout)["made.keys"].stderr
    if os.geteuid() == 0:
        assert keys.count("/var/lib/taco-launch/clusters/no-such/ssh/") == 2
        assert isinstance(made.host_key, Absent)
        assert not [file for file in known(made.files) if "/no-such" in file.path]


def test_the_files_of_one_cluster(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for path in (
        "agent/agent-1.pyz",
        "clusters/a/ssh/key",
        "clusters/b/ssh/key",
        "jobs/x/spec.json",
        "setup/a/1/x.log",
        "../etc/a/wait.sh",
        "../etc/b/wait.sh",
    ):
        (state / path).parent.mkdir(parents=True, exist_ok=True)
        (state / path).write_text(path)
    (state / "agent" / "current").symlink_to("agent-1.pyz")
    (state / "clusters/a").chmod(0o700)
    script = SCRIPT.replace(b"/var/lib/taco-launch", str(state).encode())
    script = script.replace(b"/etc/taco-launch", str(tmp_path / "etc").encode())
    made = known(parse("here", run(SHELLS[0], "made", script=feed(script, cluster="a")).stdout, 0.0, 1.0).made)
    ours = {file.path.removeprefix(f"{tmp_path}/").removeprefix("state/"): file for file in known(made.files)}
    ours = {path: file for path, file in ours.items() if path[0] != "/" and path != "state"}
    assert list(ours) == [
        "etc", "etc/a", "etc/a/wait.sh", "etc/b",
        "agent", "agent/agent-1.pyz", "agent/current",
        "clusters", "clusters/a", "clusters/a/ssh", "clusters/a/ssh/key", "clusters/b",
    ]  # fmt: skip
    assert ours["agent/current"].link == "agent-1.pyz"
    assert ours["clusters/a"] == SetupFile(f"{state}/clusters/a", None, 0o700)
    assert ours["clusters/a/ssh/key"].sha256 == sha256(b"clusters/a/ssh/key").hexdigest()


def test_what_setup_puts_among_the_files_of_others_is_found(tmp_path: Path) -> None:
    script, places = BARE, {}
    for place in (paths.PEERMEM, paths.PEERMEM_OPTIONS):
        places[place] = tmp_path / Path(place).parent.name
        places[place].write_text(place)
        script = script.replace(place.encode(), str(places[place]).encode())
    made = known(parse("here", run(SHELLS[0], "made", script=feed(script, cluster="a")).stdout, 0.0, 1.0).made)
    found = {file.path: file.sha256 for file in known(made.files)}
    assert {place: found.get(str(file)) for place, file in places.items()} == {
        place: sha256(place.encode()).hexdigest() for place in places
    }
