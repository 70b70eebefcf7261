"""toolkit_install.sh and reload.sh among simulated tools: which toolkit is installed, and when systemd reads its units."""

import hashlib
from pathlib import Path

import pytest

from taco_launch.setup import scripts
from tests.support import docker_machine
from tests.support.docker_machine import Machine
from tests.support.setup_scripts import SHELLS, Fakes

machine = docker_machine.machine  # a fixture is found by its name here

URL = "https://m/nvidia"
PROGRAMS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook")


def brings(machine: Machine, manager: str, *programs: str, base: str = "") -> None:
    """Have a package manager bring programs, and the host have the toolkit's first half by version `base`."""
    put = "".join(f"cp {machine.root}/bin/sh {machine.root}/bin/{name}; " for name in programs) or ":"
    machine.tool(manager, f'case " $* " in *" install "*) {put} ;; esac')
    found = f'[ "$4" != nvidia-container-toolkit-base ] || echo "ii |{base}"' if base else "exit 1"
    if manager == "apt-get":
        machine.tool("dpkg-query", found)
    else:
        machine.tool("rpm", f'case " $* " in *" -q "*) {f"echo {base}" if base else "exit 1"} ;; esac')


def install(machine: Machine, way: str, *more: str, url: str = URL) -> tuple[int, str]:
    """Install as planned: the source of packages becomes LIST."""
    given, source = machine.root / "proxy", machine.root / "source"
    given.touch()
    source.write_text("deb the source\n")
    files = (str(machine.root / "etc/ours.list"), str(machine.root / "etc/keys/ours.asc"))
    done = machine.run("toolkit_install.sh", way, str(given), url, str(source), *files, *more)
    assert not given.exists()
    assert not source.exists()
    return done


def test_apt_installs_it_from_our_source(machine: Machine) -> None:
    brings(machine, "apt-get", *PROGRAMS)
    assert install(machine, "apt")[0] == 0
    assert (machine.root / "etc/ours.list").read_text() == "deb the source\n"
    update, call = machine.called("apt-get")
    assert update.endswith(" update")
    assert {"--no-upgrade", "--no-remove"} <= set(call.split())
    assert call.endswith(" install nvidia-container-toolkit")
    assert machine.called("systemctl") == []  # GPU containers may run


@pytest.mark.parametrize("uri", [f"{URL}/stable/deb/$(ARCH)", f"{URL}/stable/deb/amd64/"])
def test_a_source_of_the_user_is_used_as_it_is(machine: Machine, uri: str) -> None:
    """For apt refuses two entries of one place that name different keys."""
    brings(machine, "apt-get", *PROGRAMS)
    theirs = machine.root / "etc/apt/sources.list.d/nvidia-container-toolkit.list"
    theirs.write_text(f"deb [signed-by=/usr/share/keyrings/nvidia.gpg] {uri} /\n")
    assert install(machine, "apt")[0] == 0
    assert not (machine.root / "etc/ours.list").exists()


def test_certificates_for_https_come_first(machine: Machine) -> None:
    brings(machine, "apt-get", *PROGRAMS)
    (machine.root / "bin/update-ca-certificates").unlink()
    assert install(machine, "apt")[0] == 0
    assert [call.split()[-1] for call in machine.called("apt-get")[:2]] == ["update", "ca-certificates"]


def test_half_of_it_is_completed_by_its_own_version(machine: Machine) -> None:
    brings(machine, "apt-get", *PROGRAMS, base="1.16.2-1")
    assert install(machine, "apt")[0] == 0
    assert machine.called("apt-get")[-1].endswith(" install nvidia-container-toolkit=1.16.2-1")
    brings(machine, "dnf", *PROGRAMS, base="1.16.2-1")
    (machine.root / "bin/dpkg-query").unlink()
    assert install(machine, "rpm", "dnf")[0] == 0
    assert machine.called("dnf")[-1].endswith(" install nvidia-container-toolkit-1.16.2-1")


@pytest.mark.parametrize("manager", ["yum", "dnf", "zypper"])
def test_package_managers_of_rpm(machine: Machine, manager: str) -> None:
    brings(machine, manager, *PROGRAMS)
    assert install(machine, "rpm", manager)[0] == 0
    assert machine.called(manager)[-1].endswith(" nvidia-container-toolkit")
    imports = [call for call in machine.called("rpm") if "--import" in call]
    assert imports == ([f"rpm --import {machine.root}/etc/keys/ours.asc"] if manager == "zypper" else [])


def test_why_it_cannot_be_installed(machine: Machine) -> None:
    brings(machine, "apt-get", *PROGRAMS[:2])
    code, last = install(machine, "apt")
    assert (code, last.partition(":")[0]) == (1, "error")
    assert "nvidia-container-runtime-hook is still not there" in last
    for url, hint in (
        (URL, "is it another one: check toolkit.url in hosts.yaml"),
        ("https://nvidia.github.io/libnvidia-container", "is there a mirror (toolkit.url in the inventory)"),
    ):
        failed = f"echo 'E: Failed to fetch {url}/stable/deb/amd64/InRelease  Could not resolve host: m'; exit 100"
        machine.tool("apt-get", failed)
        code, last = install(machine, "apt", url=url)
        assert code == 1
        assert f"package source: Failed to fetch {url}/stable/deb/amd64/InRelease" in last
        assert last.endswith(f"\nhint: {hint}, or does this host take a proxy (docker.proxy in the inventory)?")


def test_packages_of_the_controller(machine: Machine) -> None:
    brings(machine, "apt-get", *PROGRAMS)
    folder = machine.root / "packages"
    folder.mkdir()
    (folder / "toolkit_1.deb").write_text("whole")
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(b'whole').hexdigest()}  toolkit_1.deb\n")
    assert machine.run("toolkit_install.sh", "apt-packages", str(folder))[0] == 0
    assert machine.called("apt-get")[-1].endswith(f"/dev/null {folder}/toolkit_1.deb")
    assert not folder.exists()


# --- reload.sh --------------------------------------------------------------------------------------------------------


def engine(fakes: Fakes, *containers: str, driver: str = "systemd", loaded: str = "no") -> None:
    """Have an engine run these: name, privileged, runtime, requests and variables, as the template gives them."""
    told = "".join(f"/{line}\n" for line in containers)
    fakes.make("docker", f"""case "$1" in
    info) echo {driver} ;;
    ps) echo one two ;;
    container) printf '%s' '{told}' ;;
    esac""")  # fmt: skip
    fakes.make("systemctl", f'[ "$1" != show ] || printf "LoadState=loaded\\nNeedDaemonReload={loaded}\\n"')


SAFE = (
    "other false runc PATH=/bin",
    "cdi false runc request=cdi NVIDIA_VISIBLE_DEVICES=all",
    "privileged true nvidia NVIDIA_VISIBLE_DEVICES=all",
    "none false nvidia NVIDIA_VISIBLE_DEVICES=void",
    "plain false nvidia PATH=/bin",
)


@pytest.mark.parametrize("shell", SHELLS)
def test_no_container_loses_its_gpus_when_units_are_read(tmp_path: Path, shell: str) -> None:
    fakes = Fakes(tmp_path / "bin", shell)
    call = "systemctl daemon-reload"

    def reload(unit: str) -> str:
        before = fakes.calls.count(call)
        done = fakes.run_text(scripts.text("reload.sh") + 'reload_units "$1"\n', unit)
        assert (done.returncode == 0) != bool(done.stderr)
        return done.stderr or ("read" if fakes.calls.count(call) > before else "left")

    engine(fakes, *SAFE, loaded="yes")
    assert reload("box.service") == "read"
    engine(fakes, *SAFE)
    assert reload("box.service") == "left", "a reload that nothing needs may take GPUs all the same"
    assert reload("") == "read"
    for busy in (
        "busy false runc request=",
        "busy false runc request=nvidia",
        "busy false nvidia A=1 NVIDIA_VISIBLE_DEVICES=0",
    ):
        engine(fakes, *SAFE, busy, loaded="yes")
        said = reload("box.service")
        assert said.startswith(
            "error: for box.service systemd has to read its units again (daemon-reload), which takes"
        )
        assert "from containers that run: busy; stop them" in said
        assert reload("") == "left"  # nothing waits for it
        engine(fakes, busy, driver="cgroupfs", loaded="yes")
        assert reload("box.service") == "read"
        engine(fakes, busy)
        assert reload("box.service") == "left"  # systemd knows the unit as it is


@pytest.mark.parametrize(("job", "stopped"), [(False, True), (True, False)])
def test_the_training_container_is_stopped_before_unless_a_job_runs(
    tmp_path: Path, *, job: bool, stopped: bool
) -> None:
    fakes = Fakes(tmp_path / "bin")
    engine(fakes, "box false nvidia NVIDIA_VISIBLE_DEVICES=all", loaded="yes")
    idle = "idle() { echo 'error: job j runs' >&2; return 1; }\n" if job else "idle() { :; }\n"
    fakes.make("sleep")
    done = fakes.run_text(
        idle + scripts.text("reload.sh") + scripts.text("start.sh"), "box", "box.service", "/no", "/no"
    )
    assert ("docker stop box" in fakes.calls) == stopped
    assert ("error: job j runs" in done.stderr) == job
    if job:
        assert not [call for call in fakes.calls if "daemon-reload" in call or "enable" in call]
