"""Why a job failed: from the start and the end of the log of the rank to blame, and of mpirun's own."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.logs import segments
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.failure_analysis import analyze_failure, explained, last_lines
from taco_launch.core.model.host.hosts import Container, Host
from taco_launch.core.model.jobs import CleanUp, CodeSnapshot, JobSpec, Policy, RankEnd
from tests.agent.conftest import scratch

OUT_OF_MEMORY = b"RuntimeError: CUDA out of memory.\n"
BANNER = b"  Process name: [[17350,1],4]\n  Exit code:    1\n"
REFUSED = b"ssh: connect to host gpu2 port 22: Connection refused\n"


def write(stem: Path, data: bytes, max_bytes: int = 1 << 30) -> None:
    writer = segments.Writer(stem, max_bytes)
    writer.write(data)
    writer.close()


@pytest.fixture(autouse=True)
def _spec(folder: JobFolder) -> None:
    hosts = (Host("gpu1", "10.0.0.1"), Host("gpu2", "10.0.0.2"))
    records.write_spec(folder, JobSpec("job", ("true",), hosts, head="gpu1"))


def told(folder: JobFolder, *, ended_itself: bool = True) -> list[tuple[str, str, int]]:
    found = analyze_failure(folder, 4, "gpu1", ended_itself=ended_itself).findings
    return [(finding.signature, finding.host, finding.line) for finding in found]


def test_nothing_is_told_of_empty_logs(folder: JobFolder) -> None:
    assert told(folder) == []


def test_the_rank_to_blame_comes_before_mpirun_whose_banner_says_nothing_new(folder: JobFolder) -> None:
    write(folder.rank(4), b"one\n" + OUT_OF_MEMORY)
    write(folder.rank(3), REFUSED)
    write(folder.launcher, b'[gpu1:1] Warning: could not find environment variable "A"\n' + BANNER)
    assert told(folder) == [("cuda-out-of-memory", "gpu1", 2)]


def test_what_mpirun_says_is_of_no_host_of_its_own(folder: JobFolder) -> None:
    write(folder.launcher, b"bash: orted: command not found\n" + REFUSED)
    assert told(folder) == [("orted-not-on-path", "", 1), ("ssh-refused", "gpu2", 2)]


def test_hosts_are_told_by_the_names_of_the_spec(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by an address, by what the head calls itself, nor by what another host calls itself in its rank's log."""
    monkeypatch.setattr("socket.gethostname", lambda: "vm.lab")
    pair = b"pair of MPI processes are unable to reach each other\n Process 1 ([[1,1],0]) is on host: vm\n"
    write(folder.launcher, pair + b" Process 2 ([[1,1],8]) is on host: 10.0.0.2\n BTLs attempted: self\n")
    write(folder.rank(4), b"ip-10-0-0-2:31:31 [0] NCCL WARN Duplicate GPU detected : rank 0 and rank 1\n")
    found = analyze_failure(folder, 4, "gpu2", ended_itself=True).findings
    assert [(finding.signature, finding.host) for finding in found] == [
        ("nccl-gpu-shared", "gpu2"),
        ("mpi-unreachable", "gpu1"),
    ]
    assert found[1].cause == "Two ranks on gpu1 and gpu2 have no transport in common (tried: self)."


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("trian.py", "Check the name: there is no trian.py in the working folder {cwd}. Did you mean train.py?"),
        ("{cwd}/x/trian.py", "Check the name, or go to its folder first (cd, or --workdir): there is no x/trian.py in"),
        ("/nosuch/t.py", "Check the name: there is no /nosuch/t.py on this machine."),
        ("{cwd}/train.py", "Mount or copy it there, "),  # it may not be read
    ],
)
def test_a_missing_script_of_this_machine(folder: JobFolder, tmp_path: Path, file: str, told: str) -> None:
    (tmp_path / "train.py").touch()
    spec = JobSpec("job", ("true",), (Host("localhost", "127.0.0.1", connection="local"),), cwd=str(tmp_path))
    records.write_spec(folder, spec)
    write(folder.rank(0), f"python3: can't open file '{file.format(cwd=tmp_path)}': [Errno 2] x\n".encode())
    (found,) = analyze_failure(folder, 0, "localhost", ended_itself=True).findings
    assert found.next.startswith(told.format(cwd=tmp_path))


@pytest.mark.parametrize("kind", ["folder", "file", "none"])
def test_a_module_in_the_folder_in_which_the_job_starts(folder: JobFolder, tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        (tmp_path / "mylib").mkdir()
    elif kind == "file":
        (tmp_path / "mylib.py").touch()
    spec = JobSpec("job", ("true",), (Host("localhost", "127.0.0.1", connection="local"),), cwd=str(tmp_path))
    records.write_spec(folder, spec)
    write(folder.rank(0), b"ModuleNotFoundError: No module named 'mylib'\n")
    (found,) = analyze_failure(folder, 0, "localhost", ended_itself=True, exit_code=1).findings
    assert found.next.startswith("Name that folder for Python: -x PYTHONPATH=. (mylib is in") is (kind != "none")


def test_a_program_that_is_not_on_the_path_of_this_machine(folder: JobFolder, tmp_path: Path) -> None:
    spec = JobSpec("job", ("true",), (Host("localhost", "127.0.0.1", connection="local"),), cwd=str(tmp_path))
    records.write_spec(folder, spec)
    write(folder.rank(0), b"taco-launch: cannot run 'qqq': No such file or directory\n")
    (found,) = analyze_failure(folder, 0, "localhost", ended_itself=True, exit_code=127).findings
    assert found.next == "Check the name: it is not on your PATH. Give its full path, or install it."


LACKS = "The folder that --sync copied has no"
CANNOT_OPEN, COPY = (
    "python3: can't open file '{}': [Errno 2] x",
    "on your machine, copy its folder to the hosts: --sync DIR.",
)


@pytest.mark.parametrize(
    ("source", "output", "told"),
    [
        ("", CANNOT_OPEN.format("//train.py"), f"If train.py is {COPY} Mount or copy it there, "),
        (".", CANNOT_OPEN.format("{code}/src/train.py"), f"{LACKS} src/train.py: check the name and --workdir; "),
        (".", CANNOT_OPEN.format("/home/me/train.py"), "Give its path relative to the copied folder: "),
        ("", "taco-launch: cannot run './run.sh': No such file or directory", f"If run.sh is {COPY} "),
    ],
)
def test_a_missing_script_or_command_of_a_job_on_hosts(folder: JobFolder, source: str, output: str, told: str) -> None:
    code = CodeSnapshot("0" * 64, source) if source else None
    spec = JobSpec("job", ("true",), (Host("gpu1", "10.0.0.1"),), head="gpu1", container=Container("train"), code=code)
    records.write_spec(folder, spec)
    write(folder.rank(0), f"{output.format(code=folder.code)}\n".encode())
    (found,) = analyze_failure(folder, 0, "gpu1", ended_itself=True).findings
    assert found.next.startswith(told), found.next


def test_the_machines_own_name_may_be_that_of_another_host(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "gpu2")
    write(folder.launcher, REFUSED)
    assert told(folder) == [("ssh-refused", "gpu2", 1)]


def test_a_warning_tells_why_a_job_failed(folder: JobFolder) -> None:
    write(
        folder.launcher, b"tensors were submitted to be reduced, gathered or broadcasted by subset of ranks\nstep 2\n"
    )
    assert told(folder) == [("horovod-stalled", "", 1)]


@pytest.mark.parametrize("ended_itself", [True, False])
def test_of_a_job_that_we_ended_only_what_came_before_is_told(folder: JobFolder, ended_itself: bool) -> None:
    stall = b"tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and\nMissing ranks:\n1: [a]\n"
    write(folder.rank(4), stall + b"Traceback (most recent call last):\nKeyboardInterrupt\n")
    names = [name for name, _host, _line in told(folder, ended_itself=ended_itself)]
    assert names == (["python-exception", "horovod-stalled"] if ended_itself else ["horovod-stalled"])


def test_what_a_rank_survived_is_not_why_it_ended(folder: JobFolder) -> None:
    early = b"sh: 1: lspci_not_here: not found\n"
    end = b"Traceback (most recent call last):\n  File 'x'\nValueError: mine\n"
    write(folder.rank(4), early + end)
    assert told(folder) == [("python-exception", "gpu1", 4), ("command-not-found", "gpu1", 1)]
    write(folder.rank(5), early + b"step\n" * 100 + end)
    found = analyze_failure(folder, 5, "gpu1", ended_itself=True).findings
    assert [(finding.signature, finding.line) for finding in found] == [("python-exception", 104)]
    write(folder.rank(6), OUT_OF_MEMORY + end.replace(b"mine", b"caught") + b"step\n" * 300 + end)
    found = analyze_failure(folder, 6, "gpu1", ended_itself=True).findings
    assert [(finding.signature, finding.line) for finding in found] == [
        ("python-exception", 307),
        ("cuda-out-of-memory", 1),
    ]
    assert found[0].cause == "The program raised ValueError: mine."


def test_mpirun_does_not_explain_a_rank_that_raised_an_error(folder: JobFolder) -> None:
    write(folder.rank(4), b"Traceback (most recent call last):\n  File 'x'\nValueError: mine\n")
    write(folder.launcher, b"Connection closed by 10.0.0.2 port 22\n")
    assert told(folder) == [("python-exception", "gpu1", 3), ("ssh-closed", "gpu2", 1)]


@pytest.mark.parametrize("code", [126, 127, 255, 1])
def test_the_code_of_a_rank_is_no_cause(folder: JobFolder, code: int) -> None:
    write(folder.launcher, b"  Process name: [[17350,1],0]\n  Exit code:    %d\n" % code)
    assert told(folder) == []


@pytest.mark.parametrize(("code", "signatures"), [(3, []), (143, ["torchrun-ended"])])
def test_the_supervisor_that_ended_torchrun_is_not_why_a_rank_failed(
    folder: JobFolder, code: int, signatures: list[str]
) -> None:
    hosts = (Host("gpu1", "10.0.0.1"),)
    records.write_spec(folder, JobSpec("job", ("true",), hosts, head="gpu1", launcher="torchrun"))
    line = b"W1130 17:00:00.0 31 torch/distributed/elastic/agent/server/api.py:739] Received 15 death signal, shutting down workers\n"
    write(folder.launcher, line)
    found = analyze_failure(folder, 4, "gpu1", ended_itself=True, exit_code=code).findings
    assert [each.signature for each in found if each.signature == "torchrun-ended"] == signatures


def test_a_long_log_is_told_of_from_both_ends_with_the_right_lines(folder: JobFolder) -> None:
    middle = b"nothing\n" * (1 << 19)
    write(folder.rank(4), b"one\n" + REFUSED + middle + REFUSED.replace(b"gpu2", b"gpu7") + middle + OUT_OF_MEMORY)
    lines = 2 * (1 << 19) + 4
    assert told(folder) == [("ssh-refused", "gpu2", 2), ("cuda-out-of-memory", "gpu1", lines)]


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\xff", b"\n")), st.integers(1, 30), st.integers(2, 40))
def test_the_ends_of_a_log_and_the_lines_between(data: bytes, most: int, segment: int) -> None:
    with scratch() as folder:
        write(folder / "log", data, segment)
        kept = b"".join(path.read_bytes() for _offset, path in segments.segments(folder / "log"))
        head, between, tail = segments.head_and_tail(folder / "log", most)
        assert head == kept[:most].decode("utf-8", "replace")
        rest = kept[most:]
        assert tail == rest[-most:].decode("utf-8", "replace")
        assert between == rest[: len(rest) - most if len(rest) > most else 0].count(b"\n")


@pytest.mark.parametrize(
    ("host", "attempt", "clean_up", "where"),
    [
        ("gpu1", 1, CleanUp.RUNNING, "gpu1:{}/logs/rank-4.0.log"),
        ("gpu1", 2, CleanUp.ALL, "gpu1:{}/logs/attempt-2/rank-4.0.log"),
        # Elsewhere every attempt has a new folder, unless that is gone.
        ("gpu2", 2, CleanUp.RUNNING, "gpu2:{}/logs/rank-4.0.log"),
        ("gpu2", 2, CleanUp.ALL, "gpu1:{}/logs/attempt-2/rank-4.0.log"),
    ],
)
def test_where_the_last_lines_of_a_rank_stand(
    folder: JobFolder, host: str, attempt: int, clean_up: CleanUp, where: str
) -> None:
    hosts = (Host("gpu1", "10.0.0.1"), Host("gpu2", "10.0.0.2"))
    spec = JobSpec("job", ("true",), hosts, head="gpu1", policy=Policy(clean_up=clean_up))
    own = folder.of_attempt(attempt)
    own.rank(4).parent.mkdir(exist_ok=True)
    write(own.rank(4), b"first\nlast\n")
    assert last_lines(own, spec, RankEnd(4, host, 1)) == (where.format(folder.path), ("first", "last"))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", ()),
        (b"\n", ("",)),
        (b"no end", ("no end",)),
        (b"1%|" + b"\r2%|" * 5000 + b"\r3%|\r\nraised", ("3%|", "raised")),
        (b"one\r\n\ntwo \xff\n", ("one", "", "two \ufffd")),
        (b"".join(b"%d\n" % number for number in range(50)), tuple(map(str, range(30, 50)))),
        (b"x" * 5000 + b"\n", ("x" * 1000,)),
        (b"a\n" + b"x" * (1 << 20) + b"\nb\n", ("x" * 1000, "b")),
    ],
)
def test_the_last_lines_of_a_rank_are_bounded(folder: JobFolder, data: bytes, lines: tuple[str, ...]) -> None:
    if data:
        write(folder.rank(4), data)
    spec = records.read_spec(folder)
    assert last_lines(folder, spec, RankEnd(4, "gpu1", 1))[1] == lines


@pytest.mark.parametrize(("before", "filler", "after"), [(3, 0, 40), (30, 0, 20), (30, 1 << 18, 40), (2, 0, 19)])
def test_lines_that_tell_why_are_shown_where_others_follow(
    folder: JobFolder, before: int, filler: int, after: int
) -> None:
    """Those of torch's launcher, which come after its ranks' own; also in a log that is looked at from both ends."""
    error = b"[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: NaN\n"
    box = b"torchrun said\n" * (after - 1) + b"=====\n"
    write(folder.rank(4), b"nothing\n" * 2 * filler + b"step\n" * before + error + box)
    told = analyze_failure(folder, 4, "gpu1", ended_itself=True)
    assert [finding.signature for finding in told.findings] == ["python-exception"]
    assert told.line == 2 * filler + before + 2
    shown = last_lines(folder, records.read_spec(folder), RankEnd(4, "gpu1", 1), told.line)[1]
    end = ["torchrun said"] * 3 + ["====="]
    steps = ["step"] * min(before, 13)
    if after < 20:
        assert shown[-after - 1] == "[rank3]: ValueError: NaN"
        return
    assert list(shown) == [*steps, *error.decode().splitlines(), f"[taco-launch: {after - 4} lines left out]", *end]


@pytest.mark.parametrize("launcher", ["env", "torchrun"])
@pytest.mark.parametrize(
    ("code", "said", "names"),
    [
        (137, b"step\n", ["rank-killed"]),
        (135, b"step\n", ["rank-bus-error"]),
        (139, b"step\n", ["rank-crashed"]),
        (143, b"step\n", ["rank-terminated"]),
        (130, b"step\n", []),
        (1, b"step\n", []),
        (137, OUT_OF_MEMORY, ["cuda-out-of-memory", "rank-killed"]),
        (137, b"Traceback (most recent call last):\nValueError: mine\n", ["rank-killed", "python-exception"]),
        (139, b"Fatal Python error: Segmentation fault\n", ["python-crashed"]),
    ],
)
def test_a_signal_is_told_where_no_launcher_does(
    folder: JobFolder, launcher: str, code: int, said: bytes, names: list[str]
) -> None:
    """The processes that share a slot are told by RANK and PROCESS_INDEX."""
    spec = replace(records.read_spec(folder), launcher=launcher, procs_per_gpu=2)
    records.write_spec(folder, spec)
    write(folder.rank(3), said)
    found = analyze_failure(folder, 3, "gpu1", ended_itself=True, exit_code=code).findings
    assert [finding.signature for finding in found] == names
    assert all(
        finding.cause.startswith("Rank 1, process 1 on gpu1 ") for finding in found if finding.signature[:5] == "rank-"
    )
    assert (
        analyze_failure(folder, 3, "gpu1", ended_itself=False, exit_code=code).findings
        == found[: found[:1] != () and "cuda" in names[0]]
    )


NOTICED = b"mpirun noticed that process rank 3 with PID 0 on node gpu1 exited on signal 9 (Killed).\n"


@pytest.mark.parametrize("launcher", [b"", NOTICED])
@pytest.mark.parametrize(
    ("killed", "cause", "steps"),
    [
        (
            "",
            ". The log does not show whether memory ran out, or a process or a user killed it.",
            ["smaller", "administrator"],
        ),
        ("by the kernel, because of that", " by the kernel, because of that.", ["smaller"]),
        ("by a process or a user", " by a process or a user.", []),
    ],
)
def test_who_killed_a_rank(folder: JobFolder, launcher: bytes, killed: str, cause: str, steps: list[str]) -> None:
    write(folder.rank(3), b"step\n")
    write(folder.launcher, launcher)
    (told,) = analyze_failure(folder, 3, "gpu1", ended_itself=True, exit_code=137, killed_by=killed).findings
    assert told.cause == f"Rank 3 on gpu1 was killed (signal 9){cause}"
    assert [word for word in ("smaller", "administrator") if word in told.next.lower()] == steps


def test_a_ruler_is_no_last_word(folder: JobFolder) -> None:
    write(folder.rank(4), b"the end\n-----\n *** \n\n")
    end = RankEnd(4, "gpu1", 1)
    assert explained(folder, "failed", end, 1, "gpu1", ended_itself=True)[0] == "failed; its last output: the end"


@pytest.mark.parametrize(
    ("log", "exit_code", "causes", "possible"),
    [
        (OUT_OF_MEMORY + b"step\n" * 50, 137, ["rank-killed"], ["cuda-out-of-memory"]),
        (OUT_OF_MEMORY + b"step\n" * 50, 3, [], ["cuda-out-of-memory"]),
        (OUT_OF_MEMORY + b"step\n" * 50 + OUT_OF_MEMORY, 1, ["cuda-out-of-memory"], []),
        (
            OUT_OF_MEMORY + b"step\n" * 50 + b"Traceback (most recent call last):\nConnectionResetError: x\n",
            1,
            ["python-exception"],
            ["cuda-out-of-memory"],
        ),
        (OUT_OF_MEMORY + b"step 1\n" * 400_000, 137, ["rank-killed"], ["cuda-out-of-memory"]),
    ],
)
def test_a_line_after_which_a_rank_continued_may_explain_its_end(
    folder: JobFolder, log: bytes, exit_code: int, causes: list[str], possible: list[str]
) -> None:
    write(folder.rank(4), log)
    found = analyze_failure(folder, 4, "gpu1", ended_itself=True, exit_code=exit_code)
    assert [finding.signature for finding in found.findings] == [*causes, *possible]
    assert found.possible == len(possible)
    assert [finding.cause.startswith("An earlier line") for finding in found.findings] == [
        *[False] * len(causes),
        *[True] * len(possible),
    ]


def test_the_last_words_are_told_beside_what_may_explain_an_end(folder: JobFolder) -> None:
    write(folder.rank(4), OUT_OF_MEMORY + b"step\n" * 50 + b"too low\n")
    end = RankEnd(4, "gpu1", 4, "exited with code 4")
    reason, _told = explained(folder, "it failed", end, 8, "gpu1", ended_itself=True)
    assert reason == "it failed; its last output: too low"


@pytest.mark.parametrize(
    ("reason", "killed", "causes"),
    [
        ("exited with code 137, as a shell does after signal 9 (SIGKILL)", "by a process or a user", []),
        ("exited with code 137, as a shell does after signal 9 (SIGKILL)", "by the kernel, out of memory", [True]),
        ("", "by a process or a user", [True]),
    ],
)
def test_a_code_that_the_program_chose_is_no_signal(
    folder: JobFolder, reason: str, killed: str, causes: list[bool]
) -> None:
    """A shell that ran the program passes on that memory ran out, which the kernel has counted."""
    end = RankEnd(4, "gpu1", 137, reason, killed=killed)
    _reason, told = explained(folder, "it failed", end, 8, "gpu1", ended_itself=True)
    assert [killed in finding.cause for finding in told.findings] == causes


@pytest.mark.parametrize(
    ("command", "output", "cause", "advice"),
    [
        ("./t.py", "taco-launch: cannot run './t.py': Exec format error", "./t.py' is a script", "python3 ./t.py. "),
        ("./t.py", "taco-launch: cannot run './t.py': Permission denied", "not marked as exec", "python3 ./t.py. "),
        ("./t", "taco-launch: cannot run './t': Permission denied", "not marked as exec", "chmod +x './t'"),
        (
            "./p",
            "taco-launch: cannot run './p': Permission denied (it is a folder)",
            "./p is a folder",
            "./p/train.py.",
        ),
        (
            "./s",
            "taco-launch: cannot run './s': No such file or directory (its first line names '/bin/bash\\r')",
            "'./s' cannot start: its first line names the interpreter '/bin/bash\\r'",
            "sed -i 's/\\r$//' './s'.",
        ),
        (
            "./s",
            "taco-launch: cannot run './s': No such file or directory (its first line names '/opt/sh')",
            "'./s' cannot start: its first line names the interpreter '/opt/sh'",
            "Correct the first line of './s', or put",
        ),
        ("python3 p", "python3: can't find '__main__' module in '/w/p'", "p was started", "such as /w/p/train.py, or"),
        ("deepspeed p", "python3: can't find '__main__' module in 'p'", "p was started", "Put options of a launcher"),
    ],
)
def test_what_is_no_program(folder: JobFolder, command: str, output: str, cause: str, advice: str) -> None:
    records.write_spec(folder, replace(records.read_spec(folder), command=tuple(command.split())))
    write(folder.rank(4), f"{output}\n".encode())
    (found,) = analyze_failure(folder, 4, "gpu1", ended_itself=True, exit_code=1).findings
    assert cause in found.cause
    assert advice in found.next
