"""What --diff shows, and what it does not."""

from taco_launch.setup.model.ops import FileTarget, Op
from taco_launch.setup.plan.diff import diffs, wanted


def op(*files: FileTarget, old: tuple[tuple[str, str], ...] = ()) -> Op:
    return Op("docker", "name", "why", files=files, old=old)


def test_a_change() -> None:
    (found,) = diffs([op(FileTarget("/a", b"one\ntwo\n"), old=(("/a", "one\nthree\n"),))], {})
    assert found == "--- /a\n+++ /a\n@@ -1,2 +1,2 @@\n one\n-three\n+two\n"


def test_a_new_file_and_one_without_a_newline() -> None:
    assert diffs([op(FileTarget("/a", b"one"))], {}) == (
        "--- /dev/null\n+++ /a\n@@ -0,0 +1 @@\n+one\n\\ No newline at end of file\n",
    )


def test_what_the_host_has_now() -> None:
    (found,) = diffs([op(FileTarget("/a", b"new\n"))], {"/a": b"old\xff\n"})
    assert "-old\ufffd\n+new\n" in found
    assert diffs([op(FileTarget("/a", b"same\n"))], {"/a": b"same\n"}) == ()


def test_what_a_script_moves_on() -> None:
    candidate = FileTarget("/var/lib/taco-launch/docker/daemon.json", b"{}\n", shown="/etc/docker/daemon.json")
    assert wanted([op(candidate)]) == ("/etc/docker/daemon.json",)
    (found,) = diffs([op(candidate)], {"/etc/docker/daemon.json": b'{"a": 1}\n'})
    assert found.startswith("--- /etc/docker/daemon.json\n+++ /etc/docker/daemon.json\n")


def test_secrets_are_neither_shown_nor_read() -> None:
    secret = FileTarget("/key", b"PRIVATE", secret=True)
    assert wanted([op(secret)]) == ()
    (found,) = diffs([op(secret, old=(("/key", "OLD PRIVATE"),))], {"/key": b"OLD PRIVATE"})
    assert found == "--- /key\n+++ /key\n(secret, not shown)\n"


def test_what_is_no_text() -> None:
    for data in (b"\xff\xfe", b"a\0b"):
        assert wanted([op(FileTarget("/agent", data))]) == ()
        assert diffs([op(FileTarget("/agent", data))], {}) == (
            f"--- /agent\n+++ /agent\n({len(data)} bytes, not shown)\n",
        )


def test_only_what_is_not_known_is_wanted() -> None:
    assert wanted([op(FileTarget("/a", b""), FileTarget("/b", b""), old=(("/a", ""),)), op(FileTarget("/b", b""))]) == (
        "/b",
    )
