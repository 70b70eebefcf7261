"""What `check` says of simulated hardware that ails, by the probe itself: no container is needed for it."""

import os
import re
import subprocess
import time
from collections.abc import Callable

from taco_launch.core.facts.parse import parse
from taco_launch.core.facts.reports.health.judge import checked
from taco_launch.core.facts.reports.health.system import Expected
from tests.lab.hardware.hosts import LIBRARY, STATE, Host
from tests.support.shells import SCRIPT

PLACES = (b"/sys/class/infiniband", b"/sys/bus/pci", b"/proc/driver", b"/sys/module")
FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin")


def faults(host: Host) -> dict[str, str]:
    """Look at the host; between the two looks at its counters `sleep` adds 7 errors to its ports."""
    root = str(host.root).encode()
    sleep = host.root / "usr/bin/sleep"
    sleep.write_text(
        "#!/bin/sh\nfor file in {}; do echo 7 >$file; done\n".format(
            " ".join(map(str, host.root.glob("sys/devices/**/counters/symbol_error")))
        )
    )
    sleep.chmod(0o755)
    script = re.sub(rb"(?<!\w)(%s)" % b"|".join(PLACES), root + rb"\1", SCRIPT)
    path = ":".join([*(str(host.root / folder) for folder in FOLDERS), os.environ["PATH"]])
    argv = ["/bin/sh", "-s", "--", "m", "health", "gpu", "topology", "rdma"]
    env = {"PATH": path, "SIMULATED_HARDWARE_ROOT": str(host.root)}
    begun = time.time()
    output = subprocess.run(argv, input=script, capture_output=True, check=True, timeout=60, env=env).stdout
    facts = parse("gpu1", output.replace(root, b""), begun, time.time())
    ((_, verdicts),) = checked((facts,), Expected())
    return {each.name: each.text for each in verdicts if each.level in ("fault", "warning")}


def test_what_ails_is_named_and_nothing_else(own: Callable[[str], Host]) -> None:
    host = own("a100x8")
    counters = list(host.root.glob("sys/devices/**/counters/symbol_error"))
    assert set(faults(host)) == {"port errors"}
    for fact, value in (("gpu/3/nvlink-down", "2"), ("gpu/3/nvlink-errors", "7"), ("gpu/1/ecc-uncorrected", "3")):
        (host.root / STATE / fact).write_text(f"{value}\n")  # nvidia-smi alone shows them
    for counter in counters:
        counter.write_text("0\n")
    address = host.ok("nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader").splitlines()[3][4:14].lower()
    line = f"NVRM: Xid (PCI:{address}): 79, pid=1, GPU has fallen off the bus."
    assert host.run([str(host.root / LIBRARY / "simulated-hardware"), "say", line]).returncode == 0
    wrong = faults(host)
    assert set(wrong) == {"port errors", "NVLink links", "NVLink errors", "ECC", "Xid"}
    assert wrong["NVLink links"] == "GPU 3: links 10-11 down"
    assert wrong["NVLink errors"] == "GPU 3 link 0 CRC Errors 7"
    assert re.fullmatch(r"Xid 79 on GPU 3 \S+ s ago \(RESTART_BM\): pid=1, GPU has fallen off the bus.", wrong["Xid"])
    assert "port 1 symbol_error +7 in " in wrong["port errors"]
