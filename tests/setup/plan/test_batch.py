"""The one script of a host and stage, under the shells that are here: what it does, and what is left where it is cut."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taco_launch.core.model.host import paths
from taco_launch.setup.model.ops import FileTarget, Op
from taco_launch.setup.plan import batch
from taco_launch.setup.plan.batch import OpResult, apart, command, failure_reason, hint, read, script
from tests.conftest import eventually

MARKER = "taco-0123"
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
each_shell = pytest.mark.parametrize("shell", SHELLS)


@pytest.fixture(autouse=True)
def own_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep lock and output off the machine's own /run."""
    monkeypatch.setattr(batch, "_HEAD", batch._HEAD.replace(paths.RUN, str(tmp_path / "run")))


def op(text: str = "", *args: str, files: tuple[FileTarget, ...] = (), seconds: float = 20) -> Op:
    return Op("docker", text or "files", "because", text, args, files, seconds=seconds)


def argv(shell: str) -> list[str]:
    return [shell, *(["sh"] if shell == "busybox" else []), "-s", "--", MARKER]


def run(shell: str, *ops: Op) -> batch.BatchOutcome:
    done = subprocess.run(argv(shell), input=script(ops).encode(), capture_output=True, timeout=60, check=False)
    assert done.stderr == b""
    return read(done.stdout.splitlines(keepends=True), MARKER)


@each_shell
def test_operations_one_after_another(shell: str, tmp_path: Path) -> None:
    outcome = run(shell, op('echo "$1"; echo oh >&2', "a b\nc'$HOME"), op('read -r x || echo "empty$x"'), op())
    assert outcome.ran == (OpResult(0, 0, b"a b\nc'$HOME\noh"), OpResult(1, 0, b"empty"), OpResult(2, 0, b""))
    assert (outcome.whole, outcome.failed, outcome.begun, outcome.busy) == (True, None, 2, False)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["setup.lock"]


@each_shell
def test_the_first_that_fails_is_the_last(shell: str, tmp_path: Path) -> None:
    outcome = run(
        shell, op("echo fine"), op("echo 'E: no space' >&2; false; echo never"), op(f"touch {tmp_path}/never")
    )
    assert outcome.failed == OpResult(1, 1, b"E: no space")
    assert (outcome.whole, len(outcome.ran), (tmp_path / "never").exists()) == (True, 2, False)


@each_shell
def test_scripts_know_what_the_user_types(shell: str) -> None:
    step = op('echo "error: job j runs" >&2; echo "hint: ${taco_typed-taco-launch} stop j." >&2; exit 1')
    words = [*argv(shell), "taco-launch -i 'my c.yaml'"]
    done = subprocess.run(words, input=script([step]).encode(), capture_output=True, timeout=60, check=False)
    failed = read(done.stdout.splitlines(keepends=True), MARKER).failed
    assert failed is not None
    assert hint(failed) == "taco-launch -i 'my c.yaml' stop j"


@each_shell
def test_how_far_an_operation_is_arrives_while_it_runs(shell: str, tmp_path: Path) -> None:
    told: list[str] = []

    def heard(text: str) -> None:
        told.append(text)
        (tmp_path / text[0]).touch()  # the operation waits for it, and so has not ended

    step = (
        'for n in 1 2; do echo "$n of 2" >"$taco_progress"; until [ -e "$1/$n" ]; do sleep 0.05; done; done; echo end'
    )
    with running(shell, op(step, str(tmp_path)), op("echo more")) as process:
        assert process.stdout is not None
        outcome = read(process.stdout, MARKER, progress=heard)
    assert not run(shell, op()).stale  # nothing that watched it holds the lock
    assert told == ["1 of 2", "2 of 2"]
    assert outcome.ran == (OpResult(0, 0, b"end"), OpResult(1, 0, b"more"))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["setup.lock"]


def test_how_far_an_operation_is_has_an_end() -> None:
    told: list[str] = []
    read(answer(f"{MARKER} begin 0", f"{MARKER} progress {'x' * 9999}"), MARKER, progress=told.append)
    assert [len(text) for text in told] == [100]


@each_shell
def test_an_unset_variable_fails(shell: str) -> None:
    failed = run(shell, op('echo "$nothing"')).failed
    assert failed is not None
    assert failed.code


@each_shell
def test_files_appear_before_the_script(shell: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 400
    file = FileTarget(f"{tmp_path}/deep/er/it's a file", data, 0o640)
    outcome = run(shell, op('wc -c <"$1"', file.path, files=(file, FileTarget(f"{tmp_path}/empty", b""))))
    assert outcome.ran[0].output.strip() == str(len(data)).encode()
    path = Path(file.path)
    assert (path.read_bytes(), path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (data, 0o640, 0o755)
    assert (tmp_path / "empty").read_bytes() == b""
    assert not list(tmp_path.rglob("*.taco-new"))


@each_shell
def test_a_file_is_replaced_or_rewritten_in_place(shell: str, tmp_path: Path) -> None:
    replaced, rewritten = tmp_path / "replaced", tmp_path / "rewritten"
    for path in (replaced, rewritten):
        path.write_text("a longer text than the new one\n")
    before = [path.stat().st_ino for path in (replaced, rewritten)]
    held = replaced.open()  # so that its inode cannot be had again
    files = (FileTarget(str(replaced), b"new\n"), FileTarget(str(rewritten), b"new\n", 0o600, in_place=True))
    assert run(shell, op(files=files)).failed is None
    held.close()
    assert [path.read_text() for path in (replaced, rewritten)] == ["new\n", "new\n"]
    after = [path.stat().st_ino for path in (replaced, rewritten)]
    assert (after[0] == before[0], after[1] == before[1]) == (False, True)
    assert rewritten.stat().st_mode & 0o777 == 0o600


@each_shell
def test_no_link_is_followed(shell: str, tmp_path: Path) -> None:
    foreign, linked, beside = tmp_path / "foreign", tmp_path / "linked", tmp_path / "beside"
    foreign.write_text("theirs\n")
    linked.symlink_to(foreign)
    (tmp_path / "beside.taco-new").symlink_to(foreign)
    step = op("echo never", files=(FileTarget(str(linked), b"ours\n", in_place=True),))
    failed = run(shell, step).failed
    assert failed is not None
    assert failure_reason(step, failed).startswith(
        f"{step.name}: {linked} is a symbolic link, and what it leads to would be"
    )
    assert run(shell, op(files=(FileTarget(str(linked), b"ours\n"), FileTarget(str(beside), b"ours\n")))).failed is None
    assert (foreign.read_text(), linked.read_text(), beside.read_text()) == ("theirs\n", "ours\n", "ours\n")
    assert not linked.is_symlink()


@each_shell
def test_a_file_that_cannot_be_written_fails_its_operation(shell: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    failed = run(shell, op("echo never", files=(FileTarget(f"{tmp_path}/file/below", b"x"),))).failed
    assert failed is not None
    assert b"never" not in failed.output
    assert b"file" in failed.output


@each_shell
def test_what_takes_too_long(shell: str) -> None:
    slow = op("echo begun; sleep 20", seconds=0.3)
    failed = run(shell, slow).failed
    assert failed is not None
    assert failure_reason(slow, failed) == f"{slow.name}: not done after 0.3 s; its last output: begun"


@each_shell
def test_nothing_runs_before_all_has_arrived(shell: str, tmp_path: Path) -> None:
    text = script([op(f"touch {tmp_path}/ran")]).encode()
    for length in (len(text) // 2, len(text) - len('taco_batch "$@"\n')):
        subprocess.run(argv(shell), input=text[:length], capture_output=True, timeout=20, check=False)
    assert not (tmp_path / "ran").exists()
    subprocess.run(argv(shell), input=text, capture_output=True, timeout=20, check=True)
    assert (tmp_path / "ran").exists()


@contextlib.contextmanager
def running(shell: str, *ops: Op) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        argv(shell), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(script(ops).encode())
        process.stdin.close()
        yield process


SLOW = 'echo x >"$1/begun"; sleep 0.5; echo x >"$1/finished"'
HELD = (
    'echo x >"$1/begun"; echo half >"$taco_progress"; until [ -e "$1/go" ]; do sleep 0.05; done; echo x >"$1/finished"'
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
@each_shell
def test_a_step_is_finished_though_its_batch_is_ended(shell: str, number: int, tmp_path: Path) -> None:
    with running(shell, op(HELD, str(tmp_path)), op(f"touch {tmp_path}/second")) as process:
        eventually((tmp_path / "begun").exists, 10, "the step to begin")
        os.killpg(process.pid, number)
        process.wait(10)
        # a second set-up waits until that step is over, and then plans anew
        waited = []
        with running(shell, op('touch "$1/third"', str(tmp_path))) as second:
            assert second.stdout is not None
            told = [second.stdout.readline()]
            (tmp_path / "go").touch()
            told += second.stdout
        assert second.returncode == 0
    outcome = read(told, MARKER, waits=lambda: waited.append(True))
    assert (outcome.whole, outcome.stale, outcome.ran, waited) == (True, True, (), [True])
    assert (tmp_path / "finished").exists()
    assert not (tmp_path / "second").exists()
    assert not (tmp_path / "third").exists()


@each_shell
def test_it_stops_where_nobody_listens(shell: str, tmp_path: Path) -> None:
    with running(shell, op(SLOW, str(tmp_path)), op(f"touch {tmp_path}/second")) as process:
        eventually((tmp_path / "begun").exists, 10, "the step to begin")
        assert process.stdout is not None
        process.stdout.close()
        process.wait(10)
    assert (tmp_path / "finished").exists()
    assert not (tmp_path / "second").exists()


def test_a_busy_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(batch, "_HEAD", batch._HEAD.replace("flock -w 2400", "flock -w 0.1"))
    with running("dash", op(SLOW, str(tmp_path))):
        eventually((tmp_path / "begun").exists, 10, "the step to begin")
        done = subprocess.run(argv("dash"), input=script([op("echo no")]).encode(), capture_output=True, check=False)
    outcome = read(done.stdout.splitlines(keepends=True), MARKER)
    assert (outcome.busy, outcome.whole, outcome.ran, outcome.begun) == (True, False, (), None)


def test_large_files_go_apart(tmp_path: Path) -> None:
    large = FileTarget(f"{tmp_path}/large", b"x" * (2 << 20))
    ops = [op("true", files=(large, FileTarget(f"{tmp_path}/small", b"y")))]
    assert apart(ops) == (large,)
    assert len(script(ops)) < 10_000


def test_the_command_runs_as_root_and_shows_nothing_in_its_arguments() -> None:
    secret = FileTarget("/x", b"very secret", secret=True)
    made = command([op("true", files=(secret,))], MARKER, "taco-launch -i 'my c.yaml'")
    assert made.sudo
    assert made.argv == ("/bin/sh", "-s", "--", MARKER, "taco-launch -i 'my c.yaml'")
    assert b"very secret" not in made.stdin


def test_a_batch_may_take_as_long_as_its_operations_and_the_lock() -> None:
    seconds = command([op("true", seconds=100), op("true", seconds=30)], MARKER).timeout
    assert seconds == pytest.approx(100 + 30 + 2400 + 60, abs=1)


def test_last_words() -> None:
    assert (
        failure_reason(op("x"), OpResult(0, 1, b"noise\nerror: one\nmore\nerror: no room\n  make some\n"))
        == "x: no room; make some"
    )
    assert failure_reason(op("x"), OpResult(0, 1, b"a\nb\n\nc\nd\n")) == "x: b; c; d"
    assert failure_reason(op("x"), OpResult(0, 7, b"\n")) == "x: exit code 7"
    steps = OpResult(0, 1, b"hint: not this\nerror: old\nerror: no key\nhint: enrol it\nthe end\n")
    assert (failure_reason(op("x"), steps), hint(steps)) == ("x: no key; the end", "enrol it")
    assert (
        failure_reason(op("x"), OpResult(0, 1, b"hint: of a tool\n")),
        hint(OpResult(0, 1, b"hint: of a tool\n")),
    ) == (
        "x: hint: of a tool",
        "",
    )


def answer(*lines: str) -> list[bytes]:
    return [f"{line}\n".encode() for line in lines]


def test_an_answer_that_is_cut_off() -> None:
    begun: list[int] = []
    lines = answer("a message of the day", f"{MARKER} begin 0", "one", f"{MARKER} end 0 0", f"{MARKER} begin 1", "two")
    outcome = read(lines, MARKER, begun.append)
    assert outcome == batch.BatchOutcome((OpResult(0, 0, b"one"),), 1, whole=False, busy=False, said=b"two\n")
    assert begun == [0, 1]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20)))
def test_whatever_an_operation_says_is_its_output(lines: list[str]) -> None:
    said = [line for line in lines if not line.startswith(MARKER)]
    told = answer(f"{MARKER} begin 0", *said, "", f"{MARKER} end 0 3", f"{MARKER} done")
    outcome = read(told, MARKER)
    assert outcome.ran == (OpResult(0, 3, "\n".join(said).encode().strip(b"\n")),)
    assert outcome.whole


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50), st.binary(max_size=500))
def test_arguments_and_files_travel_unchanged(tmp_path: Path, word: str, data: bytes) -> None:
    file = FileTarget(f"{tmp_path}/it's $HOME `x`", data)
    outcome = run("dash", op('printf "%s." "$1"; cat <"$2" | cksum', word, file.path, files=(file,)))
    expected = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout
    assert outcome.ran[0].output == f"{word}.".encode().lstrip(b"\n") + expected.rstrip(b"\n")
    assert Path(file.path).read_bytes() == data


def test_a_part_of_a_file_does_not_stay(tmp_path: Path) -> None:
    lines = script([op(files=(FileTarget(f"{tmp_path}/file", b"x" * 100),))]).splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if line.startswith("eHh4"))
    broken = "".join([*lines[:place], "***\n", *lines[place + 1 :]])
    done = subprocess.run(argv("dash"), input=broken.encode(), capture_output=True, timeout=20, check=True)
    outcome = read(done.stdout.splitlines(keepends=True), MARKER)
    assert outcome.failed is not None
    said = outcome.failed.output.decode()
    assert re.fullmatch(rf"error: cannot write {tmp_path}/file: invalid input; free: \S+ on /\S*", said), said
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
