"""notify test: every address is tried from each machine, and shown without its secret."""

import json
from pathlib import Path

from tests.support.command_line import call


def test_each_address_is_tried(tmp_path: Path) -> None:
    inventory = tmp_path / "i.yaml"
    inventory.write_text(
        "cluster: c\nhosts: {a: {connection: local}}\nnotify: [exec:/bin/true, {to: exec:/bin/false}]\n"
    )
    done = call("-i", str(inventory), "notify", "test", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == [
        {"number": 1, "from": "here", "to": "exec:/bin/true", "problem": ""},
        {"number": 2, "from": "here", "to": "exec:/bin/false", "problem": "/bin/false: exit code 1"},
    ]


def test_a_secret_is_not_shown() -> None:
    done = call("notify", "test", "http://127.0.0.1:9/hook/of/me#SECRET", "exec:/bin/true")
    assert done.exit_code == 1
    assert "http://127.0.0.1:9 " in done.stdout
    assert "SECRET" not in done.stdout + done.stderr


def test_what_cannot_be_tried() -> None:
    done = call("notify", "test")
    assert (done.exit_code, "has no `notify`" in done.stderr) == (2, True)
    done = call("notify", "test", "ftp://x/")
    assert (done.exit_code, "is not a valid address for messages\n" in done.stderr) == (2, True)
    assert "for messages\n" in call("notify", "test", "https://me@foo/x").stderr, (
        "it is no help to repeat what was typed"
    )
    assert "write http://foo/x\n" in call("notify", "test", "http//foo/x").stderr
    assert "write https://10.0.0.1:80/hook, or http:" in call("notify", "test", "10.0.0.1:80/hook").stderr
