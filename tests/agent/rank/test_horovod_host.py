"""The hosts of an elastic Horovod job: what the first one does with the driver that it runs."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import patience

pytestmark = pytest.mark.enable_socket  # the host connects to this machine alone

# A driver that has told its own host of the job's end, and tells the others a moment later.
DRIVER = """#!{python}
import socket, sys, time
host, _where = socket.create_server((sys.argv[3], int(sys.argv[4]))).accept()
host.sendall(b'{{"op":"job-ended","exit_code":3}}\\n')
time.sleep(0.5)
open({file!r}, "w").close()
"""
HOST = """
import sys
from pathlib import Path
from taco_launch.agent.rank import horovod_host
from taco_launch.agent.store.folders import JobFolder
folder, driver, python = sys.argv[1:]
sys.exit(horovod_host.main(JobFolder(Path(folder)), driver, "127.0.0.1", "1:2:1:1", 1, [python, "train.py"]))
"""


def test_the_driver_tells_all_hosts_of_the_end_before_its_own_host_ends_it(tmp_path: Path) -> None:
    python, file = tmp_path / "python3", tmp_path / "others were told"
    python.write_text(DRIVER.format(python=sys.executable, file=str(file)))
    python.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    argv = (sys.executable, "-c", HOST, str(tmp_path), f"127.0.0.1:{port}", str(python))
    done = subprocess.run(argv, check=False, timeout=patience(30))
    assert (done.returncode, file.exists()) == (3, True)
