"""What explain does with any text: it never fails, finds what exists, keeps order and bounds, and takes linear time."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.core.signatures import log_scan
from taco_launch.core.signatures.known import Signature
from taco_launch.core.signatures.log_scan import LogScan, explain, is_consequence
from taco_launch.core.signatures.phrases import vocabulary
from taco_launch.core.signatures.table import TABLE
from tests.support.findings import REFUSED, TRACEBACK, names

SHUT_DOWN = (
    "RuntimeError: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt"
)
DRESSES = {
    "plain": "{}",
    "merged": "gpu1/mpirun | {}",
    "merged rank": "gpu-1.rack/12  | {}",
    "tagged": "[1,0]<stderr>:{}",
    "tagged 5": "[1,3]<stderr>: {}",
    "time and tag": "Fri Nov 20 15:18:13 2026[1,0]<stderr>:{}",
    "docker time": "2026-11-20T15:18:13.123456789Z {}",
    "nccl time": "[2026-11-20 15:18:13] {}",
    "dmesg": "[12345.678901] {}",
    "torch": "[rank3]: {}",
    "colour": "\x1b[1;31m{}\x1b[0m",
    "title": "\x1b]0;title\x07{}",
    "windows": "{}\r",
    "progress": " 10%|#  |\r{}\r 20%|## |",
    "nul": "\0{}",
    "far right": "." * 100_000 + " {}",
    "far left": "{} " + "." * 100_000,
    "all": "gpu1/mpirun | Fri Nov 20 15:18:13 2026[1,0]<stderr>:\x1b[31m{}\x1b[0m\r",
}
NOISE = st.sampled_from(
    [
        "",
        "Iter #3: 343.2 img/sec per GPU",
        "gpu1:31:87 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [receive] via NET/IB/0/GDRDMA",
        " 45%|####      | 3/10 [00:01<00:02]\r 46%",
        "\x1b[32mok\x1b[0m",
        "\udcff\udcfe broken",
        "x" * 5000,
    ]
)


@settings(max_examples=2 * settings().max_examples)
@given(st.lists(st.text() | NOISE | st.sampled_from([key for entry in TABLE for key in entry.keys])))
def test_any_text_is_explained_without_failing(lines: list[str]) -> None:
    for finding in explain(lines):
        assert 1 <= finding.line <= len(lines)
        assert finding.cause
        assert finding.next
    is_consequence("\n".join(lines))


@given(st.lists(NOISE, max_size=200), st.lists(NOISE, max_size=200), st.sampled_from(sorted(DRESSES)))
def test_a_known_line_is_found_among_noise(before: list[str], after: list[str], dress: str) -> None:
    found = explain([*before, DRESSES[dress].format(REFUSED), *after])
    assert [(finding.signature, finding.host, finding.line) for finding in found] == [
        ("ssh-refused", "gpu2", len(before) + 1)
    ]


@settings(max_examples=20)
@given(st.integers(0, 1 << 19), st.integers(1, 1 << 18), st.sampled_from("x\n"))
def test_where_a_log_is_cut_into_pieces_does_not_matter(ahead: int, piece: int, filler: str) -> None:
    text = filler * ahead + "\n" + REFUSED + "\n" + filler * ahead
    scan = LogScan()
    for begin in range(0, len(text), piece):
        scan.feed(text[begin : begin + piece])
    assert [(finding.signature, finding.line) for finding in scan.findings()] == [
        ("ssh-refused", text[: text.index(REFUSED)].count("\n") + 1)
    ]
    assert scan.lines == text.count("\n") + (not text.endswith("\n"))


@given(st.sampled_from(sorted({key for entry in TABLE for key in entry.keys})), st.integers(0, 1 << 9))
def test_a_key_within_a_very_long_line_is_seen_as_in_a_short_one(key: str, ahead: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_scan, "_BLOCK", 1 << 8)
        scan = LogScan()
        text = "." * ahead + key + "." * (1 << 9)
        alone = "." * 100 + key
        hits = [scan._hits(each, len(each), vocabulary(each)) for each in (text, alone)]
        orders = [{entry.name for _start, entry, _at in found} for found in hits]
        assert orders[0] == orders[1]
        assert orders[0]


@pytest.mark.parametrize("behind", [*range(70), 1000, 20_000])
def test_a_text_of_several_lines_is_found_across_the_pieces_of_a_log(
    behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a block ends: within the text, or behind so many characters more."""
    monkeypatch.setattr(log_scan, "_BLOCK", 1 << 15)  # the real one takes eight times as long
    text = "gpu1/mpirun | Process name: [[17350,1],4]\ngpu1/mpirun |   Exit code:    255\n"
    scan = LogScan()
    scan.feed("-" * ((1 << 15) - behind) + "\n" + text[:behind])
    scan.feed(text[behind:] + "more\n")
    assert [(finding.signature, finding.line) for finding in scan.findings()] == [("rank-exited-255", 2)]


def test_lines_with_and_without_their_ends_are_the_same() -> None:
    lines = ["one", REFUSED, "", "Host key verification failed."]
    assert explain(lines) == explain([f"{line}\n" for line in lines]) == explain([f"{line}\r\n" for line in lines])
    assert [finding.line for finding in explain(lines)] == [2, 4]


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_what_a_cut_text_lacks_is_left_out(entry: Signature) -> None:
    """Of each key alone."""
    for key in entry.keys:
        for finding in explain([key]):
            assert not re.search(r"(?<![\w)])\?|\[\[|\]\]|\|\|", finding.cause + finding.next), finding


def test_a_failure_stands_before_what_follows_from_it_and_before_notes() -> None:
    text = "\n".join(
        (
            'Warning: Could not find the environment variable: "PATH2"',
            f"gpu1/0 | {SHUT_DOWN}",
            "gpu1/mpirun | ORTE was unable to reliably start one or more daemons.",
            "gpu1/mpirun | mpirun noticed that process rank 1 with PID 0 on node gpu2 exited on signal 9 (Killed).",
            "gpu2/9 | RuntimeError: CUDA out of memory.",
        )
    )
    assert names(text) == ["cuda-out-of-memory", "rank-killed", "horovod-shut-down", "variable-not-set"]


def test_a_command_that_is_known_to_be_missing_is_told_once() -> None:
    missing = "gpu1/0 | taco-launch: cannot run 'x': No such file or directory"
    assert names(f"{missing}\n  Process name: [[17350,1],4]\n  Exit code:    127") == ["command-missing"]


@pytest.mark.parametrize(
    ("later", "first"),
    [
        ("Connection closed by 10.0.0.2 port 22", "python-exception"),
        ("RuntimeError: CUDA out of memory.", "python-exception"),
        ("gpu1:1:2 [0] NCCL WARN Error: network IB not found.", "nccl-network-unknown"),
        ("Out of memory: Killed process 4711 (python3)", "out-of-memory"),
    ],
)
def test_what_comes_after_a_programs_own_error_follows_from_it(later: str, first: str) -> None:
    """Unless NCCL or the kernel says it, who may be late."""
    found = names("\n".join(["one", *TRACEBACK, later]))
    assert (found[0], len(found)) == (first, 2)


def test_what_ssh_says_after_a_ranks_end_never_explains_it() -> None:
    killed = "mpirun noticed that process rank 1 with PID 0 on node gpu2 exited on signal 9 (Killed)."
    assert names(f"{killed}\n{REFUSED}") == ["rank-killed", "ssh-refused"]
    assert names(f"{REFUSED}\n{killed}") == ["ssh-refused", "rank-killed"]


def test_only_ssh_denies_for_want_of_a_key() -> None:
    denied = "error: cannot open /cache/x: Permission denied (os error 13)"
    assert names(denied) == ["unknown-error"]
    scan = LogScan(failed=True)  # of a job the last words are told in its place
    scan.feed(denied)
    assert scan.matches() == ()
    assert names("gpu2: Permission denied (gssapi-with-mic).") == ["ssh-permission-denied"]


def test_the_launchers_general_words_are_told_only_alone() -> None:
    general = "ORTE was unable to reliably start one or more daemons."
    assert names(general) == ["launch-failed"]
    assert names(f"{REFUSED}\n{general}") == ["ssh-refused"]
    assert names(f"{general}\n{REFUSED}") == ["ssh-refused"]


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        (REFUSED, "ssh-refused"),
        ("bash: orted: command not found", "orted-not-on-path"),
        ("bash: line 1: /opt/wrong/bin/orted: No such file or directory", "orted-wrong-prefix"),
        ("sh: 1: /opt/wrong/bin/prted: not found", "orted-wrong-prefix"),
        ("  Process name: [[17350,1],4]\n  Exit code:    255", "rank-exited-255"),
        ("   Process name: [prterun-gpu1-31@1,4]\n   Exit code:    127", "rank-command-not-found"),
        ("  Process name: [[17350,1],4]\n  Exit code:    126", "rank-not-executable"),
        ("  Process name: [[17350,1],4]\n  Exit code:    1", "rank-exited"),
        ("  Process name: [[17350,1],4]\n  Exit code:    1270", "rank-exited"),
    ],
)
def test_what_one_exit_code_may_mean_is_told_apart_by_text(text: str, signature: str) -> None:
    assert names(text) == [signature]
    labelled = "\n".join(f"gpu1/mpirun | {line}" for line in text.split("\n"))
    assert names(labelled) == [signature]


def test_a_rank_speaks_for_its_host_and_mpirun_for_none() -> None:
    text = "RuntimeError: CUDA out of memory."
    assert explain([f"gpu2/9 | {text}"])[0].host == "gpu2"
    assert explain([f"gpu2/mpirun | {text}"])[0].host == ""
    assert explain(["gpu7:12:13 [0] NCCL WARN Duplicate GPU detected : rank 0 and 1"])[0].host == "gpu7"


@pytest.mark.parametrize(
    ("said", "host"),
    [("gpu2", "gpu2"), ("[gpu2]:2222", "gpu2"), ("[fd00::2]:2222", "fd00::2"), ("10.0.0.2", "10.0.0.2")],
)
def test_a_host_is_told_without_its_port(said: str, host: str) -> None:
    line = f"No ED25519 host key is known for {said} and you have requested strict checking."
    assert explain([line])[0].host == host


def test_the_same_of_the_same_host_is_told_once_and_the_first_line_counts() -> None:
    lines = [f"ssh: connect to host gpu{number % 3} port 22: Connection refused" for number in range(1, 1000)]
    assert [(finding.host, finding.line) for finding in explain(lines)] == [("gpu1", 1), ("gpu2", 2), ("gpu0", 3)]


def test_the_findings_are_bounded() -> None:
    one = [f"ssh: connect to host gpu{number} port 22: Connection refused" for number in range(1000)]
    assert len(explain(one)) == 16
    more = [f"gpu{number}:1:2 [0] NCCL WARN {key}" for number in range(10) for entry in TABLE for key in entry.keys]
    assert len(explain([*one, *more])) == 64


def test_several_logs_are_told_in_their_order() -> None:
    scan = LogScan()
    scan.begin("gpu2")
    scan.feed("one\nRuntimeError: CUDA out of memory.")
    scan.begin()
    scan.feed(f"{REFUSED}\n")
    assert [(finding.signature, finding.host, finding.line) for finding in scan.findings()] == [
        ("cuda-out-of-memory", "gpu2", 2),
        ("ssh-refused", "gpu2", 1),
    ]


def test_a_text_without_a_host_is_not_told_beside_the_same_with_one() -> None:
    unnamed = "MPI_INIT has failed because at least one MPI process is unreachable"
    named = "gpu2/8 | " + unnamed
    for lines in ([unnamed, named], [named, unnamed]):
        assert [finding.host for finding in explain(lines)] == ["gpu2"]


def test_hosts_are_told_by_the_names_that_are_given() -> None:
    scan = LogScan({"vm": "localhost"})
    scan.feed("vm:1:2 [0] NCCL WARN Duplicate GPU detected : 0\nssh: connect to host vm port 22: Connection refused")
    assert [(finding.host, "vm" in finding.cause) for finding in scan.findings()] == [("localhost", False)] * 2


@pytest.mark.parametrize(
    ("head", "between", "line"),
    [("one\ntwo\n", 10, 13), ("one\ntw", 10, 12), ("one\ntw", 0, 2), ("", 0, 1), ("", 5, 6)],
)
def test_lines_that_are_passed_over_are_counted(head: str, between: int, line: int) -> None:
    scan = LogScan()
    scan.feed(head)
    scan.skip(between)
    scan.feed(REFUSED)
    assert [finding.line for finding in scan.findings()] == [line]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (f"Traceback ...\n{SHUT_DOWN}\n", True),
        (f"Traceback (most recent call last):\n  File 'x'\n{SHUT_DOWN}\n", True),
        ("RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [10.0.0.2]:29084: Connection reset by peer", True),
        (f"Traceback (most recent call last):\n  File 'x'\nKeyError: 'lr'\n{SHUT_DOWN}\n", False),
        (f"RuntimeError: CUDA out of memory.\n{SHUT_DOWN}\n", False),
        ("RuntimeError: mine\n", False),
        ("kex_exchange_identification: read: Connection reset by peer", False),
        ("", False),
    ],
)
def test_what_blames_another_rank(text: str, answer: bool) -> None:
    assert is_consequence(text) is answer


def test_no_text_takes_long() -> None:
    """Texts that are near misses, repeated: as long lines and as many lines. Twice as much takes about twice as long."""
    near = [f"{key} " for entry in TABLE for key in entry.keys]

    def seconds(text: str) -> float:
        begin = time.process_time()
        explain(text.split("\n"))
        return time.process_time() - begin

    once = "".join(near)
    text = "\n".join([*near, once * 20, *(key * 200 for key in near)])
    assert seconds(text * 2) < max(4 * seconds(text), 10)


def test_texts_that_never_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start of a text of many lines, again and again: in the end it costs no more than any other line."""
    monkeypatch.setattr(log_scan, "_MOST_IN_VAIN", 1 << 16)  # after a sixteenth of what is really looked through
    scan = LogScan()
    begin = time.process_time()
    scan.feed("Traceback (most recent call last):\n" * 100_000)
    scan.feed("\n" * 100 + REFUSED)
    assert [finding.signature for finding in scan.findings()] == ["ssh-refused"]
    assert time.process_time() - begin < 10  # 1.2 on an idle machine, 17 where they are not given up
