"""What starting something costs, counted and not timed: modules, processes and connections, against budget.yaml.

Speed is lost by one import and one process at a time, and no test that takes the time on a busy machine would tell.
"""

import io
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from taco_launch.core.command import Command
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.core.protocol import framing as protocol
from taco_launch.core.protocol.calls import EndOfReplies, Reply
from taco_launch.core.protocol.calls.jobs import Accepted, JobReply
from taco_launch.hosts.remote import agent_bundle
from taco_launch.jobs.backend import agent_location
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.jobs.backend.agent_client import AgentClient

BUDGET: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("budget.yaml").read_text(encoding="ascii"))
HOOK = Path(__file__).with_name("hook.py").read_text(encoding="ascii")
MAIN = f"{HOOK}\nsys.argv[0] = 'taco-launch'\nfrom taco_launch.cli.main import main\nmain()\n"
MPIRUN = """#!/bin/sh
[ "$1" != --version ] || { echo "mpirun (Open MPI) 4.1.4"; exit; }
until [ "$1" = "$PYTHON" ]; do shift; done
export OMPI_COMM_WORLD_SIZE=2
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 "$@" &
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 "$@" &
wait
"""


def with_hook(whole: bytes) -> bytes:
    """Put the hook before what an agent's zip file starts with."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as given, zipfile.ZipFile(packed, "w") as made:
        for entry in given.infolist():
            text = given.read(entry)
            made.writestr(entry, HOOK.encode() + text if entry.filename == "__main__.py" else text)
    return packed.getvalue()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with an mpirun that only starts the ranks, and an agent that takes notes."""
    programs, agents = tmp_path / "programs", tmp_path / "state" / "agent"
    programs.mkdir()
    (programs / "mpirun").write_text(MPIRUN)
    (programs / "mpirun").chmod(0o755)
    agents.mkdir(parents=True, mode=0o700)
    contents = agent_bundle.sources()
    (agents / agent_bundle.name(contents)).write_bytes(with_hook(agent_bundle.build(contents)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TACO_LAUNCH", "PYTHON"))}
    own = {"TACO_LAUNCH_STATE": str(tmp_path / "state"), "TACO_LAUNCH_LEASES": str(tmp_path / "leases")}
    # Of its own: other tests beside it push entries out of a shared one.
    own["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    notes = {"TACO_LAUNCH_NOTES": str(tmp_path / "notes"), "PYTHON": sys.executable}
    return {**kept, **own, **notes, "PATH": f"{programs}:{os.environ['PATH']}"}


def counted(environ: Mapping[str, str], *words: str) -> dict[str, dict[str, list[str]]]:
    """Run a command line and give what each role has imported, started and connected to, of the busiest of its processes.

    It is the second run that counts: the first one keeps the shipped files as read.
    """
    for _run in range(2):
        Path(environ["TACO_LAUNCH_NOTES"]).unlink(missing_ok=True)
        argv = [sys.executable, "-c", MAIN, *words]
        done = subprocess.run(argv, env=dict(environ), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    found: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: {"import": [], "start": [], "connect": []})
    for line in Path(environ["TACO_LAUNCH_NOTES"]).read_text(encoding="ascii").splitlines():
        pid, role, kind, told = line.split(" ", 3)
        found[pid, role][kind].append(re.sub("[0-9]+", "N", told) if kind == "connect" else told)
    roles: dict[str, dict[str, list[str]]] = {}
    for (_pid, role), notes in found.items():
        before = roles.setdefault(role, {"import": [], "start": [], "connect": []})
        for kind, entries in notes.items():  # a connection may take several tries
            new = entries if kind == "start" else [*dict.fromkeys(entries)]
            before[kind] = max(before[kind], new, key=len)
    return roles


def over(name: str, notes: Mapping[str, list[str]]) -> list[str]:
    """Return what is over a budget."""
    budget = BUDGET[name]
    ours = [module for module in notes["import"] if module.startswith("taco_launch")]
    forbidden = re.compile("|".join(budget["never"])) if budget["never"] else None
    never = [module for module in notes["import"] if forbidden is not None and forbidden.fullmatch(module)]
    found = {
        "modules": len(notes["import"]),
        "ours": len(ours),
        "starts": len(notes["start"]),
        "connects": len(notes["connect"]),
    }
    print(name, found)
    said = [
        f"{name}: {kind}: {count}, and {budget[kind]} are allowed"
        for kind, count in found.items()
        if count > budget[kind]
    ]
    return said + [f"{name}: imports {module}" for module in never]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("help", ("--help",)),
        (
            "dry_run",
            ("run", "-H", "gpu1:8,gpu2:8", "--interface", "eth0", "--profile", "ack", "--dry-run", "--", "true"),
        ),
    ],
)
def test_what_asks_nobody(environ: dict[str, str], name: str, words: tuple[str, ...]) -> None:
    found = counted(environ, *words)
    assert list(found) == ["controller"]
    assert not over(name, found["controller"])


def test_a_dry_run_that_asks_the_agent(environ: dict[str, str]) -> None:
    found = counted(environ, "run", "--np", "2", "--dry-run", "--", "true")
    assert not over("dry_run_asking", found["controller"]) + over("facts", found["facts"])


def test_a_job_of_this_machine(environ: dict[str, str]) -> None:
    found = counted(environ, "run", "--np", "2", "--", "true")
    assert set(found) == {"controller", "submit", "run", "guard", "rank"}
    assert not [
        said for role, notes in found.items() for said in over({"controller": "run_local"}.get(role, role), notes)
    ]


def test_the_notes_tell_of_an_import(environ: dict[str, str]) -> None:
    before = counted(environ, "--help")["controller"]
    assert not over("help", before)
    more = {**before, "import": [*before["import"], "yaml", *(f"taco_launch.{number}" for number in range(50))]}
    assert len(over("help", more)) == 3


class Counted:
    """A host that answers, and counts what it is asked."""

    name = "gpu1"

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    @contextmanager
    def tail(self, command: Command) -> Iterator[IO[bytes]]:
        self.asked["tail"] += 1
        assert command.stdin
        spec = JobSpec("job", ("true",), (Host("gpu1", "10.0.0.1"),))
        job = JobView(spec, JobRecord("0", JobState.RUNNING), "/jobs/job")
        replies: tuple[Reply, ...] = (Accepted(name="job"), JobReply(job=job), EndOfReplies())
        header = protocol.dump(protocol.header("submit", "agent"))
        yield io.BytesIO(header + b"".join(reply.encode() for reply in replies))

    def put(self, *_words: Any, **_more: Any) -> None:
        self.asked["put"] += 1

    def run(self, _command: Command) -> Any:
        self.asked["run"] += 1


def test_a_job_elsewhere_is_one_call(environ: dict[str, str]) -> None:
    host = Counted()
    spec = JobSpec("job", ("true",), (Host("gpu1", "10.0.0.1"),), head="gpu1")
    AgentBackend(AgentClient(host, agent_location.on_host())).submit(spec, {})  # type: ignore[arg-type]
    assert host.asked == Counter(tail=BUDGET["submit_remote"]["calls"])
    script = f"{HOOK}\nimport taco_launch.cli.main, taco_launch.cli.jobs.run, taco_launch.api.cluster, taco_launch.jobs.backend.agent, taco_launch.hosts.ssh.connection"
    subprocess.run([sys.executable, "-c", script], env=environ, check=True)
    lines = Path(environ["TACO_LAUNCH_NOTES"]).read_text(encoding="ascii").splitlines()
    imported = [*dict.fromkeys(line.split(" ", 3)[3] for line in lines if line.split(" ")[2] == "import")]
    assert not over("submit_remote", {"import": imported, "start": [], "connect": []})
