"""Records what a guard would see of a situation of `programs/situation.py`, as a case: record.py SITUATION FILE.

It needs two cores, py-spy and mpi4py beside what the project's tests need, and the right to trace processes. Paths are
replaced by those of a container; nothing else is.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from taco_launch.agent.counters import processes, sockets

HERE = Path(__file__).resolve().parent
LOOKS, EVERY, WORKS, NAME = 16, 1.0, 7.0, 100


def start(situation: str, folder: Path) -> tuple[list["subprocess.Popen[bytes]"], int]:
    program = [sys.executable, str(HERE / "programs" / "situation.py"), situation, str(folder), str(WORKS)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if situation.startswith(("horovod", "mpi")):
        # By TCP, as between hosts; on lo, since ranks that are told of docker0 too may wait for each other for ever.
        network = ["--mca", "btl", "tcp,self"]
        if situation != "mpi_network_is_stuck":
            network += ["--mca", "btl_tcp_if_include", "lo"]
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", *network]
        with (folder / "log.0").open("wb") as log:
            return [subprocess.Popen([*mpirun, *program], env=env, stdout=log, stderr=log)], 2
    ranks = 1 if situation.startswith("alone") else 2
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    found = []
    for rank in range(ranks):
        own = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with (folder / f"log.{rank}").open("wb") as log:
            found.append(subprocess.Popen(program, env={**env, **own}, stdout=log, stderr=log))
    return found, ranks


def dump(pid: int) -> Any:
    command = [shutil.which("py-spy") or f"{sys.prefix}/bin/py-spy", "dump", "--json", "--native", "--pid", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    if done.returncode:
        print(f"py-spy: {done.stderr.strip()}")
        return None
    text = done.stdout.replace(str(HERE / "programs"), "/train").replace(sys.prefix, "/opt/venv")
    text = text.replace(sys.base_prefix, "/usr/local")
    # what was compiled elsewhere names the folders of its build
    text = re.sub(r'"/[^"]*/(lib/python3\.\d+/site-packages/)', r'"/opt/venv/\1', text)
    text = re.sub(r'"/[^"]*/(horovod/(?:common|torch)/[^"/]+\.cc")', r'"/build/\1', text)
    return [short(thread) for thread in json.loads(text)]


def short(thread: Any) -> Any:
    """Return a thread with the names of templates cut, and without what says nothing of where it is."""
    frames = [
        {"name": frame["name"][:NAME], "filename": frame["filename"], "line": frame["line"], "module": frame["module"]}
        for frame in thread["frames"]
    ]
    return {"pid": 0, "thread_name": thread["thread_name"], "active": thread["active"], "frames": frames}


def look(rank: int, pid: int, folder: Path) -> dict[str, Any]:
    counted = processes.of_processes([pid])
    log = folder / f"log.{rank}"
    assert counted is not None
    return {
        "time": time.monotonic(),
        "output": log.stat().st_size if log.exists() else 0,
        "sockets": sockets.of_processes([pid]).bytes,
        "read": counted.read,
        "written": counted.written,
        "cpu": counted.cpu_seconds,
        "main_cpu": counted.main_cpu_seconds,
        "state": counted.state,
        "dump": dump(pid),
    }


def main() -> None:
    situation, target = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started, ranks = start(situation, folder)
        try:
            files = [folder / f"{rank}.pid" for rank in range(ranks)]
            until = time.monotonic() + 120
            while not all(file.exists() and file.read_text() for file in files):
                assert time.monotonic() < until, (folder / "log.0").read_text()
                time.sleep(0.1)
            pids = [int(file.read_text()) for file in files]
            seen: list[list[dict[str, Any]]] = [[] for _ in pids]
            begun = time.monotonic()
            for count in range(LOOKS):
                time.sleep(max(0.0, begun + count * EVERY - time.monotonic()))
                for rank, pid in enumerate(pids):
                    seen[rank].append(look(rank, pid, folder))
                if count == LOOKS // 2:
                    print((folder / "log.0").read_text()[-60:])
        finally:
            for pid in [int(file.read_text()) for file in folder.glob("*.pid")]:
                os.kill(pid, 9)
            for process in started:
                process.kill()
                process.wait()
    dumps: list[Any] = []
    for looks in seen:
        for each in looks:
            each["time"] = round(each["time"] - begun, 3)
            if each["dump"] is not None:
                if each["dump"] not in dumps:
                    dumps.append(each["dump"])
                each["dump"] = dumps.index(each["dump"])
    rows = (",\n".join(json.dumps(each) for each in looks) for looks in seen)
    lists = ",\n".join(f"[{row}]" for row in rows)
    stacks = ",\n".join(json.dumps(each) for each in dumps)
    head = json.dumps({"situation": situation, "works_seconds": WORKS})[:-1]
    target.write_text(f'{head},\n"ranks": [{lists}],\n"dumps": [{stacks}]}}\n')


if __name__ == "__main__":
    main()
