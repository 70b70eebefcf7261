"""explain on the command line: files and standard input, text and JSON, what cannot be read, what is not known."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import Taco
from tests.support.command_line import call, failing, succeeding
from tests.support.paths import TESTS

CASES = TESTS / "core/signatures/cases"
DENIED = CASES / "denied_ompi41.txt"
KEYS = ["signature", "cause", "next", "host", "line"]


def test_text_names_line_signature_host_cause_and_next_beside_the_line() -> None:
    answer = call("explain", str(DENIED))
    assert (answer.exit_code, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[0] == "line 1: ssh-permission-denied on gpu2"
    assert lines[1] == "  text:  root@gpu2: Permission denied (publickey,keyboard-interactive)."
    assert lines[2].startswith("  cause: gpu2 rejected the keys")
    assert lines[3].startswith("  next:  Add the public key")
    assert len(lines) == 4


@pytest.mark.parametrize("options", [("--json",), ("-o", "json"), ("-o", "yaml")], ids=" ".join)
def test_data_is_a_list_with_exactly_these_keys(options: tuple[str, ...]) -> None:
    answer = call("explain", *options, str(CASES / "order_consequences_last.txt"))
    assert (answer.exit_code, answer.stderr) == (0, "")
    found = yaml.safe_load(answer.stdout)
    assert [list(entry) for entry in found] == [[*KEYS, "text"]] * 5
    log = (CASES / "order_consequences_last.txt").read_text("utf-8").splitlines()
    assert all(entry.pop("text") in log[entry["line"] - 1] for entry in found)
    assert found == json.loads((CASES / "order_consequences_last.json").read_text("utf-8"))


@pytest.mark.parametrize("output", ["table", "json"])
def test_standard_input(output: str) -> None:
    from_file = call("explain", "-o", output, str(DENIED))
    assert call("explain", "-o", output, "-", stdin=DENIED.read_text("utf-8")).stdout == from_file.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no known failure in {}: 0 lines read\n"),
        ("one\n", "no known failure in {}: 1 line read; its last output: one\n"),
        ("one\ntwo three\n\n\n", "no known failure in {}: 4 lines read; its last output: two three\n"),
        ("one\nsix\x1b[5mseven", "no known failure in {}: 2 lines read; its last output: sixseven\n"),
        ("one\x07", "no known failure in {}: 1 line read; its last output: one\\x07\n"),
    ],
)
def test_a_log_without_a_known_failure_says_so(tmp_path: Path, text: str, told: str) -> None:
    log = tmp_path / "log"
    log.write_text(text, encoding="utf-8")
    answer = call("explain", str(log), "--json")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "[]\n", told.format(log))
    answer = call("explain", "-", stdin=text)
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "", told.format("standard input"))
    assert call("explain", "-q", "-", stdin=text).stderr == ""


@pytest.mark.parametrize("program", ["/bin/ls", "/bin/sh"])
def test_what_is_no_text_is_not_shown(program: str) -> None:
    answer = call("explain", program)
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert answer.stderr.startswith(f"no known failure in {program}: it is not text, or not in UTF-8; name a log")
    assert answer.stderr.isascii()


@pytest.mark.parametrize(
    ("data", "program"),
    [
        (gzip.compress(b"one"), "zcat"),
        (bz2.compress(b"one"), "bzcat"),
        (lzma.compress(b"one"), "xzcat"),
        (b"\x28\xb5\x2f\xfdone", "zstdcat"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_compressed_log_is_named_with_what_reads_it(tmp_path: Path, data: bytes, program: str) -> None:
    log = tmp_path / "my log"
    log.write_bytes(data)
    answer = call("explain", str(log))
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert f"{program} '{log}' | taco-launch explain -" in answer.stderr


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_read(tmp_path: Path, encoding: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(f"\ufeff{DENIED.read_text('utf-8')}".encode(encoding))
    assert call("explain", str(log)).stdout == call("explain", str(DENIED)).stdout


def test_a_log_that_begins_with_nulls_is_text(tmp_path: Path) -> None:
    """As one that was cut while a program had it open."""
    log = tmp_path / "log"
    log.write_bytes(bytes(1 << 20) + b"line\n" * 1000)
    assert call("explain", str(log)).stderr.endswith("; its last output: line\n")


def test_notes_alone_are_no_failure() -> None:
    answer = call("explain", str(CASES / "x_unset_ompi50.txt"))
    assert answer.stdout.startswith("line 2: variable-not-set (no failure)\n")
    assert answer.stderr.startswith("no known failure in ")


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "Is a directory"), ("nosuch", "No such file or directory"), ("x" * 300, "File name too long")],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, why: str) -> None:
    answer = call("explain", "--json", str(tmp_path / name))
    assert (answer.exit_code, json.loads(answer.stdout)["error"]["kind"]) == (2, "usage")
    assert answer.stderr.splitlines()[0].endswith(f": {why}")
    assert "taco-launch logs -v NAME | taco-launch explain -" in answer.stderr


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch(mode=0)
    if os.access(log, os.R_OK):
        log = Path("/proc/self/mem")  # root reads every file, but not address 0
    answer = failing("explain", str(log))
    assert answer.startswith(f"error: explain {log}: ")
    assert "Traceback" not in answer


def test_broken_text_and_control_codes_reach_no_terminal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe\n\x1b]0;title\x07root@gpu\x9b2: Permission denied (publickey).\x08\n")
    answer = succeeding("explain", str(log))
    assert answer.stdout.startswith("line 2: ssh-permission-denied")
    assert answer.stdout.replace("\n", "").isprintable()


def test_a_big_log_is_streamed(taco: Taco) -> None:
    """One line of 24 MiB, then the failure: in little memory."""
    script = (
        f"import sys; [sys.stdout.write('x' * (1 << 20)) for _ in range(24)]; print(); print({DENIED.read_text()!r})"
    )
    limit = "import resource, sys, os; resource.setrlimit(resource.RLIMIT_DATA, (36 << 20,) * 2); os.execv(sys.argv[1], sys.argv[1:])"
    argv = taco.argv("explain", "-")
    with subprocess.Popen([argv[0], "-c", script], stdout=subprocess.PIPE) as log:
        answer = subprocess.run(
            [argv[0], "-c", limit, *argv], stdin=log.stdout, capture_output=True, text=True, env=taco.env, check=False
        )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("line 2: ssh-permission-denied on gpu2\n")


def test_errors_of_a_log_that_ends_well_are_no_failures(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("RuntimeError: CUDA out of memory.\nepoch 1 loss 0.5\ntraining finished successfully\n")
    answer = call("explain", str(log))
    assert answer.stdout.startswith("line 1: cuda-out-of-memory (no failure)\n")
    assert answer.stderr.startswith("no known failure in ")
