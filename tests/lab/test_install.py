"""While packages are installed no service is started, and nothing of that stays behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = """
import os, sys
from pathlib import Path
from taco_launch.lab.docker import daemon, reporter
daemon._POLICY = Path(sys.argv[1])
os.geteuid = lambda: 0
daemon.install(("package",), reporter.Reporter(print, print))
"""


def install(policy: Path, then: str) -> int:
    """Install a package with an apt-get that keeps the policy beside it, then does what it is told."""
    apt = policy.with_name("apt-get")
    apt.write_text(f"#!/bin/sh\ncp {policy} {policy}.seen\n{then}\n")
    apt.chmod(0o755)
    env = {**os.environ, "PATH": f"{apt.parent}:{os.environ['PATH']}"}
    return subprocess.run((sys.executable, "-c", INSTALL, str(policy)), env=env, check=False).returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_no_policy_stays_when_installing_is_cut_short(tmp_path: Path, number: signal.Signals) -> None:
    policy = tmp_path / "policy-rc.d"
    assert install(policy, f"kill -{int(number)} $PPID") == 128 + number
    assert not policy.exists()
    assert "exit 101" in policy.with_name("policy-rc.d.seen").read_text()


def test_a_policy_that_a_killed_command_left_is_taken_away(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    assert install(policy, "kill -9 $PPID") == -signal.SIGKILL
    assert policy.exists()
    assert install(policy, "") == 0
    assert not policy.exists()


def test_a_policy_of_the_machines_own_stays(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    assert install(policy, "") == 0
    assert policy.read_text() == policy.with_name("policy-rc.d.seen").read_text() == "#!/bin/sh\nexit 101\n"
