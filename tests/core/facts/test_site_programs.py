"""The site's own health programs, DCGM, NHC and gcm: what they answer, on the host or in the container, and what is made of it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.facts.parse import parse
from taco_launch.core.facts.site_programs import provided
from taco_launch.core.facts.text.sections import feed
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.health import Provided
from tests.support.host_facts import known
from tests.support.probe_answers import answer
from tests.support.shells import SCRIPT, each_shell, run, tool

GONE = ("", 127, "it: not found")
# The form of DCGM 3's answer; its words are those of its own source.
DCGM = """+---------------------------+------------------------------+
| Health Monitor Report     |                              |
+===========================+==============================+
| Overall Health            | Failure                      |
| GPU                       |                              |
| -> 0                      | Failure                      |
|    -> Errors              |                              |
|       -> Memory           | Failure                      |
|                           | A row remap is pending       |
+---------------------------+------------------------------+
"""


def read(**told: Any) -> dict[str, Found[Provided]]:
    return dict(provided(answer(**told)))


def on(value: Any, where: str) -> Any:
    """Return a verdict as it is shown, with where the program ran."""
    if isinstance(value, Unknown):
        return Unknown(f"{value.reason} ({where})")
    return replace(value, text=f"{value.text} ({where})") if isinstance(value, Provided) else value


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (DCGM, Provided("DCGM", "fault", "Failure: A row remap is pending")),
        (DCGM.replace("Failure", "Healthy").replace("A row remap is pending", ""), Provided("DCGM", "ok", "Healthy")),
        (GONE, Absent("it: not found")),
        (
            ("Error: Health watches not enabled. Please enable watches.", 253, ""),
            Unknown("dcgmi health -c: 'Error: Health watches not enabled. Please enable watches.'"),
        ),
    ],
)
def test_dcgm(told: Any, found: Any) -> None:
    assert read(health_dcgm=told)["DCGM"] == on(found, "host")


# Answers of NHC 1.4.3 itself to `nhc -l - -v -t 20 MARK_OFFLINE=0 DETACHED_MODE=0`, with configurations of one or two lines.
NHC_STARTS = "Node Health Check starting.\n"
NHC_PASSED = f"""{NHC_STARTS}Running check:  "check_file_test -r /etc/hostname"
Running check:  "check_fs_mount_rw -f /"
Node Health Check completed successfully (0s).
"""
NHC_FAILED = f"""{NHC_STARTS}Running check:  "check_file_test -r /etc/hostname"
Running check:  "check_file_test -r /no/such"
ERROR:  nhc:  Health check failed:  check_file_test:  -r /no/such returned 1.
"""
NHC_HUNG = f"""{NHC_STARTS}Running check:  "sleep 100"
NHC watchdog timer 15695 (20 secs) has expired.  Signaling NHC:  kill -s ALRM -- -15633
ERROR:  nhc:  Health check failed:  Script timed out while executing "sleep 100".
"""
NHC_UNKNOWN = f"""{NHC_STARTS}Running check:  "check_gpu_temp 80"
Node Health Check failed.  Check check_gpu_temp 80 returned 127
ERROR:  nhc:  Health check failed:  Check check_gpu_temp 80 returned 127
"""
NHC_NOTHING = Unknown("NHC ran no check: is there a line for this host in /etc/nhc/nhc.conf?")


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (NHC_PASSED, Provided("NHC", "ok", "2 checks passed")),
        ((NHC_FAILED, 1, ""), Provided("NHC", "fault", "check_file_test:  -r /no/such returned 1.")),
        ((NHC_HUNG, 142, "Alarm clock"), Provided("NHC", "fault", 'Script timed out while executing "sleep 100".')),
        (
            (NHC_UNKNOWN, 127, "/usr/sbin/nhc: line 652: check_gpu_temp: command not found"),
            Provided("NHC", "fault", "Check check_gpu_temp 80 returned 127"),
        ),
        ("", NHC_NOTHING),  # without a configuration
        (f"{NHC_STARTS}Node Health Check completed successfully (0s).\n", NHC_NOTHING),
        (
            (f"{NHC_STARTS}ERROR:  nhc:  Health check failed:  Terminated by signal SIGTERM.", 143, ""),
            Unknown(
                "Node Health Check starting.; ERROR:  nhc:  Health check failed:  Terminated by signal SIGTERM. (exit code 143)"
            ),
        ),
        (
            ("", 1, "ERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port is ACTIVE (LinkUp 100 Gb/sec)."),
            Provided("NHC", "fault", "check_hw_ib:  No IB port is ACTIVE (LinkUp 100 Gb/sec)."),
        ),
        (("", 2, "sudo: a password is required"), Unknown("sudo: a password is required (exit code 2)")),
        (GONE, Absent("it: not found")),
    ],
)
def test_nhc(told: Any, found: Any) -> None:
    assert read(health_nhc=told)["NHC"] == on(found, "host")


# Captured: what gcm 0.0.2 prints on a machine without GPUs, as the probe ran it.
GCM_UPTIME = "run check-node uptime\nOK - check uptime. Node is up enough time: 79302 secs\n\nexit 0\n"
GCM_FULL = """run check-storage disk-usage
CRITICAL - disk usage. Volume /: Disk usage, 77%, is above critical threshold of 50%.


exit 2
"""
GCM_ZOMBIE = """run check-process check-zombie
WARNING - check zombie. Found zombie processes. Node needs a reboot.

exit 1
"""
GCM_REFUSED = """run check-syslogs xid
Usage: health_checks check-syslogs xid [OPTIONS] CLUSTER
                                       {prolog|epilog|nagios|app}
Try 'health_checks check-syslogs xid --help' for help.

Error: Missing argument '{prolog|epilog|nagios|app}'. Choose from:
	prolog,
	app

exit 2
"""
GCM_OFF = "run check-storage disk-usage\nOK - disk usage. disk usage is disabled by killswitch.\n\nexit 0\n"
# What else its source can print, not captured.
GCM_UNKNOWN = "run check-pci\nUNKNOWN - check pci\n\nexit 3\n"
GCM_BROKEN = "run check-pci\nWARNING - check did not exit normally\nKeyError: 1\n\nexit 1\n"
GCM_LATE = "run check-pci\nnot run: the checks before it took 15 s\nexit 124\n"

FULL = "check-storage disk-usage: disk usage. Volume /: Disk usage, 77%, is above critical threshold of 50%."
REFUSED = "no verdict of check-syslogs xid: Error: Missing argument '{prolog|epilog|nagios|app}'. Choose from:"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (GCM_UPTIME, Provided("gcm", "ok", "1 check passed")),
        (GCM_UPTIME + GCM_FULL + GCM_ZOMBIE, Provided("gcm", "fault", FULL)),
        (
            GCM_UPTIME + GCM_ZOMBIE,
            Provided(
                "gcm",
                "warning",
                "check-process check-zombie: check zombie. Found zombie processes. Node needs a reboot.",
            ),
        ),
        (GCM_UPTIME + GCM_REFUSED, Unknown(REFUSED)),
        (GCM_FULL + GCM_REFUSED, Provided("gcm", "fault", f"{FULL}; {REFUSED}")),
        (
            GCM_UPTIME + GCM_OFF,
            Unknown("no verdict of check-storage disk-usage: disk usage. disk usage is disabled by killswitch."),
        ),
        (GCM_UPTIME + GCM_UNKNOWN, Unknown("no verdict of check-pci: check pci")),
        (GCM_UPTIME + GCM_BROKEN, Unknown("no verdict of check-pci: check did not exit normally KeyError: 1")),
        (GCM_UPTIME + GCM_LATE, Unknown("no verdict of check-pci: not run: the checks before it took 15 s")),
        (
            GCM_UPTIME.replace("exit 0", "exit 1"),
            Unknown("no verdict of check-node uptime: check uptime. Node is up enough time: 79302 secs"),
        ),
        ("", Unknown("gcm ran no check: does /etc/fb-healthchecks/config.toml have a table for one that only reads?")),
        (
            ("", 1, "cat: /etc/fb-healthchecks/config.toml: No such file or directory"),
            Unknown("cat: /etc/fb-healthchecks/config.toml: No such file or directory"),
        ),
        (GONE, Absent("it: not found")),
    ],
)
def test_gcm(told: Any, expected: Any) -> None:
    assert read(health_gcm=told)["gcm"] == on(expected, "host")


def test_a_program_that_the_host_lacks_is_read_in_the_container_and_its_row_names_it() -> None:
    inside = {"image_where": "taco-launch_train", "container_nhc": NHC_PASSED, "container_dcgm": DCGM}
    results = read(health_nhc=GONE, health_dcgm="Overall Health: Healthy", **inside)
    assert results["NHC"] == Provided("NHC", "ok", "2 checks passed (container taco-launch_train)")
    assert results["DCGM"] == Provided("DCGM", "ok", "Healthy (host)"), "the host's own counts where there are two"
    refused = read(health_nhc=("", 2, "sudo: a password is required"), **inside)
    assert isinstance(refused["NHC"], Unknown), "one that the host has and cannot run is not replaced by another"
    assert read(health_nhc=GONE, image_where="taco-launch_train", container_nhc=GONE)["NHC"] == Absent("it: not found")


# A site's file of gcm with what may be run and what may not.
GCM_SITE = """[health_checks.check-nvidia-smi]
 cluster = "train"
 check = [ "gpu_num", 'row_remap',
   "running_procs_and_kill" ]
[health_checks.check-dcgmi.diag]
 cluster = "train"
[health_checks.check-ipmitool.check-sel] # clears the log of the BMC
[other.check-pci]
[health_checks.check-storage.disk-usage]
 volume = ["/"]
"""


@each_shell
def test_the_probe_asks_them_to_read_only_on_the_host_and_in_the_container(
    shell: tuple[str, ...], tmp_path: Path
) -> None:
    host, container = tmp_path / "host", tmp_path / "container"
    host.mkdir()
    container.mkdir()
    (tmp_path / "config.toml").write_text(GCM_SITE)
    (tmp_path / "passed").write_text(NHC_PASSED)
    tool(host, "sleep", "exit 0")
    tool(host, "dcgmi", 'echo "Overall Health: Healthy $*"')
    tool(host, "nhc", f'echo "$* ${{NHC_RM-}}" >{tmp_path}/asked; cat {tmp_path}/passed')
    # simulated: a container is another PATH, and gcm answers that all is well
    tool(host, "docker", f'shift 3; PATH={container}:/usr/bin:/bin exec "$@"')
    tool(container, "health_checks", f'echo "$*" >>{tmp_path}/gcm; echo "OK - $3. Fine."')
    script = SCRIPT.replace(b"/etc/fb-healthchecks/config.toml", f"{tmp_path}/config.toml".encode())
    path = f"{host}:{os.environ['PATH']}"
    done = run(shell, "health", "image", script=feed(script, "train"), path=path, NHC_RM="slurm", TMPDIR=str(tmp_path))
    results = dict(known(parse("gpu1", done.stdout, 0.0, 1.0).health).provided)
    assert results == {
        "DCGM": Provided("DCGM", "ok", "Healthy (host)"),
        "NHC": Provided("NHC", "ok", "2 checks passed (host)"),
        "gcm": Provided("gcm", "ok", "2 checks passed (container train)"),
    }
    asked = (tmp_path / "asked").read_text().strip()
    assert asked == "-l - -v -t 20 MARK_OFFLINE=0 DETACHED_MODE=0", "NHC marks no node"
    gcm = (tmp_path / "gcm").read_text().splitlines()
    assert [line.partition(" --verbose-out")[0].partition("config.toml ")[2] for line in gcm] == [
        "check-nvidia-smi -c gpu_num -c row_remap",
        "check-storage disk-usage",
    ], "what ends processes, loads GPUs or clears a log is not run"
    assert all("--sink file --sink-opt file_path=" in line for line in gcm), "nothing is published"
    assert not list(tmp_path.glob("tmp.*")), "gcm's log is removed"
