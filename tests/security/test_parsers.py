"""Texts that others write: each parser takes any damage of a real one, or refuses it with the error that it names."""

import io
import json
import os
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taco_launch.agent.counters import inet_diag, netlink
from taco_launch.agent.host import slot_holders
from taco_launch.agent.rank import tree_pack, tree_unpack
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.bench.history import exchange
from taco_launch.bench.history.exchange import HistoryEntry
from taco_launch.bench.logs import nccl_tests
from taco_launch.bench.logs import parse as training
from taco_launch.bench.run import matrix_file
from taco_launch.core import manifest
from taco_launch.core.errors import DamagedRecordError, TacoLaunchError, UsageError
from taco_launch.core.facts import parse as probe
from taco_launch.core.facts.captures import captured
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.core.protocol import framing
from taco_launch.core.protocol.calls import jobs as _jobs  # noqa: F401 - the kinds of requests and replies
from taco_launch.core.protocol.calls import reply_of, request_of
from taco_launch.core.signatures import log_scan
from taco_launch.core.stalls import dumps
from taco_launch.hosts.inventory import hostfile, load
from taco_launch.jobs.code import git_state
from taco_launch.jobs.command_lines import launcher_line
from taco_launch.jobs.command_lines.arena import arena_line
from taco_launch.jobs.documents import job_file
from tests.support.ladders import ladder, run

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
# 2,000 of each where the extended tier is recorded.
MANY = settings().max_examples if settings().max_examples <= 10 else 20 * settings().max_examples
# What is put into a text: limits of numbers, characters that terminals obey, syntax of the formats.
PIECES = [
    *(b"Infinity", b"NaN", b"-1", b"1e400", b"9" * 400, b"0x", b"null", b"true", b"{}", b"[]", b"{", b"[", b'"', b"'"),
    *(
        b"\0",
        b"\x1b[2J",
        b"\x9b",
        b"\xff\xfe",
        "\u202e".encode(),
        b"\r",
        b"\n",
        b"\n\n",
        b"\t",
        b" " * 70,
        b"../../",
        b"/",
    ),
    *(
        b":",
        b"&a",
        b"*a",
        b"<<: *a",
        b"!!python/object:os.system",
        b"#",
        b"%",
        b"=",
        b",",
        b"-" * 30,
        b"$(id)",
        b"`id`",
        b"a" * 5000,
    ),
]


class Parser(NamedTuple):
    """A parser, real texts for it, and the errors that it may raise."""

    parse: Callable[[bytes], object]
    seeds: list[bytes]
    errors: tuple[type[Exception], ...] = ()


def files(pattern: str, most: int = 1 << 16) -> list[bytes]:
    found = [path.read_bytes()[:most] for path in sorted(ROOT.glob(pattern)) if path.is_file()]
    assert found, pattern
    return found


def text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def words(data: bytes) -> list[str]:
    """Return the words of a command line, at least one: a parser is chosen by the first."""
    try:
        return shlex.split(text(data)) or ["mpirun"]
    except ValueError:
        return text(data).split() or ["mpirun"]


def in_a_file(data: bytes, read: Callable[[Path], object]) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(data)
        return read(path)


def message(data: bytes) -> object:
    line = framing.read(io.BytesIO(data)) or {}
    try:
        return request_of(str(line.get("op")), line)
    except ValueError:
        return reply_of(line)


def record(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as path:
        folder = JobFolder(Path(path))
        folder.events.write_bytes(data)
        return records.record(folder)


def holder(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"slot-0.{os.geteuid()}").write_bytes(data)
        return slot_holders.read(Path(folder), ["slot-0"])


def unpacked(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder, "deep", "er")
        inside.mkdir(parents=True)
        try:
            return tree_unpack.unpack(io.BytesIO(data), inside / "copy", 1 << 20, lambda _words: None)
        finally:
            assert [path.name for path in Path(folder).iterdir()] == ["deep"]
            assert [path.name for path in Path(folder, "deep").iterdir()] == ["er"]


def tree() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a").mkdir()
        Path(folder, "a", "b").write_text("text")
        Path(folder, "a", "c").symlink_to("b")
        out = io.BytesIO()
        tree_pack.pack(Path(folder, "a"), out, 1 << 20, lambda _words: None)
        return out.getvalue()


def history() -> list[bytes]:
    entries = (HistoryEntry(ladder(1), ((0, run(100.5)), (1, run(None, why="exit 1")))), HistoryEntry(ladder(2), ()))
    texts = [io.StringIO(newline=""), io.StringIO(newline="")]
    exchange.write_json(entries, texts[0])
    exchange.write_csv(entries, texts[1])
    return [text.getvalue().encode() for text in texts]


def sockets(data: bytes) -> object:
    found, _is_over = netlink.messages(data)
    return [(inet_diag.connection(each.body), netlink.attributes(each.body)) for each in found]


EVENTS = "\n".join(
    json.dumps(event)
    for event in (
        {"time": 1.0, "kind": "submitted", "reason": "", "data": {"id": "a" * 32}},
        {
            "time": 2.0,
            "kind": "placed",
            "reason": "",
            "data": {
                "np": 2,
                "hosts": ["me"],
                "line": "mpirun",
                "shares": [{"host": "me", "ranks": 2, "slots": ["slot-0"]}],
            },
        },
        {"time": 3.0, "kind": "running", "reason": "", "data": {}},
        {"time": 4.0, "kind": "ended", "reason": "", "data": {"state": "FAILED", "exit_code": 1}},
    )
)
STATUS = b"# branch.oid 0123\0# branch.head main\x001 .M N... 100644 100644 100644 a b file\0? other\0u UU N... 1 2 3 4 a b c d\0"
MANIFEST = manifest.written(
    manifest.Manifest((manifest.FileEntry("a", False, 5, "0" * 64),), (("b", "a"),), ("c",), ())
)
DUMPS = json.loads(files("tests/core/stalls/cases/*.json", 1 << 24)[0])["dumps"]
ARENA = [
    b"submit mpi --name=a --workers=2 --gpus=8 --image=train:1 'mpirun -np 16 python train.py'",
    b"submit pytorch --name a --workers 2 --gpus 1 --sync-mode git --sync-source https://host/a.git 'python a.py'",
]
MPIRUN = [
    b"mpirun -np 16 -H gpu1:8,gpu2:8 -bind-to none -x NCCL_IB_HCA=mlx5_0 -mca pml ob1 -mca btl ^openib python a.py",
    b"mpirun --allow-run-as-root -n 4 --hostfile /etc/mpi/hostfile --map-by slot -x PATH python a.py --lr 0.1",
]
HYDRA = [b"mpiexec.hydra -n 4 -ppn 2 -hosts gpu1,gpu2 -genv NCCL_DEBUG INFO python a.py"]


def launchers_line(data: bytes) -> None:
    line = words(data)
    found = inner(line)
    if found is not None:
        launcher_line.read(line[found.begin :], found)


PARSERS = {
    "messages": Parser(
        message, [framing.dump({"op": "stop", "names": ["a"], "by": "me", "signal": 15})], (ValueError, UsageError)
    ),
    "records": Parser(record, [EVENTS.encode()], (DamagedRecordError,)),
    "inventories": Parser(lambda data: load.parse(data, "x"), files("inventories/*.yaml"), (TacoLaunchError,)),
    "hostfiles": Parser(
        lambda data: hostfile.parse(text(data), "x"),
        [b"gpu1 slots=8\ngpu2 slots=8\nroot@10.0.0.3 slots=4\n"],
        (TacoLaunchError,),
    ),
    "logs": Parser(
        lambda data: log_scan.explain(text(data).splitlines(keepends=True)),
        files("tests/core/signatures/cases/*", 1 << 14),
    ),
    "nccl-tests": Parser(lambda data: nccl_tests.read(text(data)), files("tests/bench/logs/nccl_tests/*.log", 1 << 14)),
    "training output": Parser(lambda data: training.parse(text(data)), files("tests/bench/logs/cases/*.log", 1 << 14)),
    "manifests": Parser(manifest.parsed, [MANIFEST], (ValueError,)),
    "archives": Parser(unpacked, [tree()], (TacoLaunchError,)),
    "git": Parser(lambda data: git_state.parsed(data, "below"), [STATUS]),
    "job files": Parser(
        lambda data: job_file.parse(data, "x", {}), files("taco_launch/examples/*/*.yaml"), (TacoLaunchError,)
    ),
    "matrices": Parser(
        lambda data: matrix_file.parse(data, "x", {}), files("taco_launch/bench/matrices/*.yaml"), (TacoLaunchError,)
    ),
    "captures": Parser(
        lambda data: captured.read([("x", data)]), files("tests/core/facts/cases/*/*", 1 << 14), (TacoLaunchError,)
    ),
    "probe": Parser(lambda data: probe.parse("gpu1", data, 0.0, 0.0), files("tests/core/facts/cases/*/*", 1 << 14)),
    "Arena": Parser(lambda data: arena_line.read(words(data), ()), ARENA, (TacoLaunchError,)),
    "launchers": Parser(launchers_line, [*MPIRUN, *HYDRA], (TacoLaunchError, launcher_line.UnclearError)),
    "py-spy": Parser(lambda data: dumps.main_stack(text(data)), [json.dumps(dump).encode() for dump in DUMPS]),
    "netlink": Parser(sockets, [netlink.request(20, bytes(range(256)))], (netlink.NetlinkError,)),
    "leases": Parser(holder, [b'{"job": "a", "owner": "me", "pid": 1, "since": 1.0, "gpus": [0]}']),
    "history": Parser(lambda data: in_a_file(data, exchange.read), history(), (TacoLaunchError,)),
}


@st.composite
def damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A real text with a few pieces replaced, removed, doubled or put in."""
    data = draw(st.sampled_from(seeds))
    for _number in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 40)))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=8), st.just(data[begin:end] * 2)))
        data = data[:begin] + piece + data[end:]
    return data


@pytest.mark.parametrize("name", list(PARSERS))
@settings(max_examples=MANY, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_damaged_text_is_read_or_refused(name: str, data: st.DataObject) -> None:
    parser = PARSERS[name]
    try:
        parser.parse(data.draw(damaged(parser.seeds)))
    except parser.errors:
        return


@pytest.mark.parametrize("name", list(PARSERS))
def test_the_real_text_is_read(name: str) -> None:
    """Else the damaged ones would be refused for another reason than their damage."""
    parser = PARSERS[name]
    assert any(_reads(parser, seed) for seed in parser.seeds)


def _reads(parser: Parser, seed: bytes) -> bool:
    try:
        parser.parse(seed)
    except parser.errors:
        return False
    return True
